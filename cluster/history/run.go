package history

import (
	"context"
	"time"

	"skerry.dev/skerry/internal/panics"
)

// firstRead is when the first point is read: after workers have had the time to connect.
const firstRead = 5 * time.Second

// Run reads what the file has, and then a point each minute until ctx ends. read gives what each worker uses now, by name. What it returns
// an error for leaves a gap.
func (h *History) Run(ctx context.Context, read func(ctx context.Context) (map[string]Reading, error)) {
	defer panics.Catch(h.log, "the site's history")
	h.load()
	defer h.save()
	next := time.NewTimer(firstRead)
	defer next.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		next.Reset(Every)
		if now, err := read(ctx); err == nil {
			h.add(time.Now(), now)
		} else if ctx.Err() == nil {
			h.log.Debug("the history has a gap: nobody answers what workers use", "err", err)
		}
		if n%writeEach == 0 {
			h.save()
		}
	}
}
