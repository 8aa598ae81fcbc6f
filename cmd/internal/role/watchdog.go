package role

import (
	"context"
	"os"
	"strconv"
	"sync"
	"time"
)

// Watchdog tells systemd that this process lives (WatchdogSec of its unit), for as long as every loop that it looks at
// makes progress. A loop that hangs lets the time pass, and systemd starts the process again. Without systemd it does
// nothing.
type Watchdog struct {
	every  time.Duration // 0: nobody wants to know
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex // protects looks
	looks []func(context.Context)
}

// StartWatchdog begins at once, for a role that starts may take its time.
func StartWatchdog() *Watchdog {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watchdog{every: watchdogTime() / 3, cancel: cancel}
	if w.every > 0 {
		w.done.Go(func() { w.run(ctx) })
	}
	return w
}

// watchdogTime is within what time systemd wants a word of this process, or 0.
func watchdogTime() time.Duration {
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err != nil || us <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// add has it look at a loop, too: look returns when the loop has done something.
func (w *Watchdog) add(look func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = append(w.looks, look)
}

// clear has it look at nothing any more: loops that have ended make no progress.
func (w *Watchdog) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = nil
}

func (w *Watchdog) run(ctx context.Context) {
	t := time.NewTicker(w.every)
	defer t.Stop()
	for {
		w.mu.Lock()
		looks := w.looks
		w.mu.Unlock()
		for _, look := range looks {
			look(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		notify("WATCHDOG=1")
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Stop ends it. Then the process has the unit's time to end, or to give its place to another program.
func (w *Watchdog) Stop() {
	w.cancel()
	w.done.Wait()
}
