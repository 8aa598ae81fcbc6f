package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry.dev/skerry/api"
)

// wear is what a tier costs its flash memory.
type wear struct {
	tier  string // of the names of figures
	pids  []int
	syncs *syncs // nil: they are not counted
}

// worn is how many bytes were written and how often the disk was waited for.
type worn struct{ bytes, syncs float64 }

func (w worn) less(o worn) worn            { return worn{w.bytes - o.bytes, w.syncs - o.syncs} }
func (w worn) times(f float64) worn        { return worn{w.bytes * f, w.syncs * f} }
func (w worn) plus(o worn) worn            { return worn{w.bytes + o.bytes, w.syncs + o.syncs} }
func perDay(w worn, in time.Duration) worn { return w.times(float64(24*time.Hour) / float64(in)) }

func (w *wear) now() (out worn, err error) {
	if out.bytes, err = sum(w.pids, written); err == nil && w.syncs != nil {
		out.syncs, err = w.syncs.count()
	}
	return out, err
}

// disk measures what is written, and how often disks are waited for: with ten instances that do nothing, and of one deployment with its
// deletion, from which follows a day with one an hour.
func (b *budgeter) disk(ctx context.Context) error {
	const app = "diskidle"
	if _, err := b.s.root.Apply(ctx, manifest(app, 10), api.ApplyOptions{}); err != nil {
		return err
	}
	if err := b.ready(ctx, app, 10); err != nil {
		return err
	}
	var agents []int
	for _, w := range b.s.workers {
		agents = append(agents, w.processes()...)
	}
	tiers := []*wear{{tier: "agent", pids: agents}, {tier: "control", pids: []int{b.s.control.Process.Pid}}}
	for _, w := range tiers {
		counted, err := countSyncs(w.pids)
		if err != nil {
			b.r.Find("", w.tier+".syncs", "").Skip, b.r.Find("", w.tier+".syncs.hourly", "").Skip = err.Error(), err.Error()
			continue
		}
		w.syncs = counted
		defer counted.close()
	}
	window, deployments := time.Minute, 5
	if b.o.Full {
		window, deployments = 30*time.Minute, 20
	}
	if err := pause(ctx, 20*time.Second); err != nil { // until what the deployment left has settled
		return err
	}
	if err := b.round(ctx, func() error { return b.wearOf(ctx, tiers, window, deployments) }); err != nil {
		return err
	}
	idle := fmt.Sprintf("10 instances on 2 workers, for %s, times a day", window)
	hourly := fmt.Sprintf("that, and 24 times a deployment with its deletion, each the mean of %d", deployments)
	for _, w := range tiers {
		b.about(idle+"; write_bytes of /proc", w.tier+".disk")
		b.about(hourly, w.tier+".disk.hourly", w.tier+".syncs.hourly")
		b.about(idle+"; fsync and fdatasync, counted by the kernel", w.tier+".syncs")
	}
	return b.remove(ctx, app)
}

// wearOf measures a round.
func (b *budgeter) wearOf(ctx context.Context, tiers []*wear, window time.Duration, deployments int) error {
	read := func() (out []worn, err error) {
		for _, w := range tiers {
			v, e := w.now()
			out, err = append(out, v), errors.Join(err, e)
		}
		return out, err
	}
	first, err1 := read()
	begin := time.Now()
	err2 := pause(ctx, window)
	rested, err3 := read()
	rest := time.Since(begin)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	begin = time.Now()
	for range deployments {
		name := b.fresh("disk")
		if _, err := b.s.root.Apply(ctx, manifest(name, 1), api.ApplyOptions{}); err != nil {
			return err
		}
		if err := errors.Join(b.ready(ctx, name, 1), pause(ctx, time.Second), b.remove(ctx, name), pause(ctx, time.Second)); err != nil {
			return err
		}
	}
	last, err := read()
	if err != nil {
		return err
	}
	busy := time.Since(begin)
	for i, w := range tiers {
		idle := perDay(rested[i].less(first[i]), rest)
		each := last[i].less(rested[i]).less(idle.times(float64(busy) / float64(24*time.Hour))).times(1 / float64(deployments))
		hourly := idle.plus(each.times(24))
		b.add(idle.bytes/1e6, w.tier+".disk")
		b.add(max(hourly.bytes, idle.bytes)/1e6, w.tier+".disk.hourly")
		if w.syncs != nil {
			b.add(idle.syncs, w.tier+".syncs")
			b.add(max(hourly.syncs, idle.syncs), w.tier+".syncs.hourly")
		}
	}
	return nil
}

// pause waits, unless the benchmark is to end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
