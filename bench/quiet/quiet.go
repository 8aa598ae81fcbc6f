package quiet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
)

// Limit is how much of a processor others may use, and of the time may stall for disks, on a machine that is quiet.
const Limit = 0.3

const (
	// span is one look at the machine, of which a wait needs two in a row that are quiet.
	span = 2 * time.Second
	// burst is how long a round may be for its share of others to be that of Limit: in a longer one a minute of somebody's
	// work would not show in the mean.
	burst = 10 * time.Second
	// background is what others may always use in a round, in processors: a quiet machine has daemons.
	background = 0.05
	// again is how often a wait says for whom it waits.
	again = 30 * time.Second
)

// Options say whether to wait. The zero value waits for as long as it takes.
type Options struct {
	NoWait  bool
	MaxWait time.Duration // in all; 0: no limit
}

// Add adds the flags.
func (o *Options) Add(fs *pflag.FlagSet) {
	fs.BoolVar(&o.NoWait, "no-wait", false, "do not wait until others leave the machine alone; the report says that it was not quiet")
	fs.DurationVar(&o.MaxWait, "max-wait", 0, "wait no longer than this in all, then measure as with --no-wait (default no limit)")
}

// Check refuses what cannot be.
func (o *Options) Check() error {
	if o.MaxWait < 0 || o.NoWait && o.MaxWait > 0 {
		return skerry.Errorf(skerry.CodeInvalid, "--max-wait %v cannot be with or without --no-wait", o.MaxWait)
	}
	return nil
}

// Record is what a report keeps of the waiting.
type Record struct {
	Limit  float64 `json:"limit"` // processors that others may use
	Waited float64 `json:"waitedSeconds"`
	For    []Use   `json:"for,omitempty"` // the busiest first
	// NotQuiet says why figures were taken that are not those of a quiet machine; empty: the machine was quiet, but for the rounds that are
	// marked.
	NotQuiet string `json:"notQuiet,omitempty"`
}

// Use is processor time of processes of a name that are not the benchmark's.
type Use struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Remarks are what a reader has to know. A nil record is that of a report from before there were any.
func (r *Record) Remarks() (out []string) {
	switch {
	case r == nil:
		out = append(out, "Nobody knows whether the machine was quiet: the report is from before benchmarks waited for that.")
	case r.NotQuiet != "":
		out = append(out, "Not in quiet: "+r.NotQuiet)
	case r.Waited > 0:
		out = append(out, fmt.Sprintf("It waited %.0f s until the machine was quiet, for %s.", r.Waited, words(r.For)))
	default:
		out = append(out, "The machine was quiet.")
	}
	return out
}

func words(list []Use) string {
	var out []string
	for _, u := range list {
		out = append(out, fmt.Sprintf("%s (%.1f s of a processor)", u.Name, u.Seconds))
	}
	return cmp.Or(strings.Join(out, ", "), "disks")
}

// Watch follows the machine during one benchmark. A nil one waits for nobody and marks nothing.
type Watch struct {
	o    Options
	say  func(string)
	look func() (moment, error)
	span time.Duration
	// limit and background are the constants, but for tests on machines that are not quiet.
	limit, background float64
	self              int
	own               func() []int // roots of processes beside its own; nil: none
	// known are the benchmark's processes that were seen so far: those that lose their parent stay its own.
	known map[id]bool
	// before are processes that are older than the first round and not the benchmark's own.
	before map[id]bool
	// parents are the benchmark's ancestors and the first process, which may be given its orphans.
	parents map[id]bool
	last    moment  // when the present round began
	base    float64 // processors that foreign ones use in quiet
	r       Record
	seconds map[string]float64
	waited  time.Duration
	over    bool // it waits no more
}

// New gives one that says on whom it waits.
func New(o Options, say func(string)) *Watch {
	return &Watch{o: o, say: say, look: func() (moment, error) { return lookAt("/proc") }, span: span, limit: Limit,
		background: background, self: os.Getpid(), known: map[id]bool{}, seconds: map[string]float64{}, r: Record{Limit: Limit}}
}

// Own names processes, beside the benchmark's own and those that descend from it, that are a part of what is measured.
func (w *Watch) Own(pids func() []int) {
	if w != nil {
		w.own = pids
	}
}

// Resume takes over what the report that a benchmark goes on from has of the waiting.
func (w *Watch) Resume(was *Record) {
	switch {
	case w == nil:
	case was == nil:
		w.r.NotQuiet = "the report that it goes on from does not say whether the machine was quiet"
	default:
		w.waited, w.r.NotQuiet = time.Duration(was.Waited*float64(time.Second)), was.NotQuiet
		for _, u := range was.For {
			w.seconds[u.Name] += u.Seconds
		}
	}
}

// Record is what a report keeps; nil of a nil Watch.
func (w *Watch) Record() *Record {
	if w == nil {
		return nil
	}
	r := w.r
	r.Waited, r.For = w.waited.Seconds(), busiest(w.seconds)
	return &r
}

// busiest gives the three that used most.
func busiest(by map[string]float64) (out []Use) {
	for name, s := range by {
		if s > 0 {
			out = append(out, Use{name, s})
		}
	}
	slices.SortFunc(out, func(a, b Use) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name)) })
	return out[:min(3, len(out))]
}

// Begin waits until the machine is quiet. It fails when ctx ends. Where the machine does not tell, the record says so.
func (w *Watch) Begin(ctx context.Context) error {
	if w == nil {
		return nil
	}
	now, err := w.now()
	if err != nil {
		w.over, w.r.NotQuiet = true, "this system does not say who uses it: "+err.Error()
		return nil
	}
	w.strangers(&now)
	if !w.o.NoWait {
		err := w.wait(ctx, now)
		w.strangers(&w.last)
		return err
	}
	w.over = true
	then, err := w.later(ctx)
	if err != nil {
		return err
	}
	used, by, _ := w.others(&now, &then)
	w.r.NotQuiet = "it was not to wait (--no-wait)"
	if used >= w.limit {
		w.r.NotQuiet += fmt.Sprintf("; others used %.2f processors: %s", used, words(busiest(by)))
	}
	return nil
}

// strangers notes who is there before anything is measured.
func (w *Watch) strangers(now *moment) {
	w.parents, w.before = now.above(w.self), map[id]bool{}
	if first, ok := now.processes[1]; ok {
		w.parents[first.id] = true
	}
	for _, p := range now.processes {
		if !w.known[p.id] && !w.parents[p.id] && !p.kernel() {
			w.before[p.id] = true
		}
	}
}

// Round ends a round, of which everything that was started has ended or rests: it tells who disturbed it, or "", and
// waits until the machine is quiet again. It fails when ctx ends.
func (w *Watch) Round(ctx context.Context) (disturbed string, err error) {
	if w == nil || w.over {
		return "", nil
	}
	end, err := w.now()
	if err != nil {
		return "", err
	}
	disturbed = w.during(&w.last, &end)
	rest, err := w.later(ctx)
	if err != nil {
		return disturbed, err
	}
	if text := w.disturbs(&end, &rest); text != "" {
		disturbed = cmp.Or(disturbed, "when it ended, "+text)
		return disturbed, w.wait(ctx, rest)
	}
	w.last = rest
	return disturbed, nil
}

// now looks at the machine, and knows the benchmark's processes since.
func (w *Watch) now() (moment, error) {
	m, err := w.look()
	if err != nil {
		return m, err
	}
	roots := []int{w.self}
	if w.own != nil {
		roots = append(roots, w.own()...)
	}
	for pid, p := range m.processes {
		if w.known[p.id] {
			roots = append(roots, pid)
		}
	}
	maps.Copy(w.known, m.below(roots))
	return m, nil
}

// later looks again after a span.
func (w *Watch) later(ctx context.Context) (moment, error) {
	select {
	case <-ctx.Done():
		return moment{}, ctx.Err()
	case <-time.After(w.span):
		return w.now()
	}
}

// others is what others used between two moments in which the benchmark rested, in processors, with the seconds by name; and the share of
// the time in which something waited for a disk.
func (w *Watch) others(before, after *moment) (processors float64, by map[string]float64, stalled float64) {
	took := after.at.Sub(before.at).Seconds()
	if took <= 0 {
		return 0, nil, 0
	}
	own, _ := spent(before, after, w.known, func(id) bool { return true })
	rest, threads := map[id]bool{}, map[id]bool{}
	for _, p := range after.processes {
		switch {
		case p.kernel():
			threads[p.id] = true
		case !w.known[p.id]:
			rest[p.id] = true
		}
	}
	kernel, _ := spent(before, after, threads, func(id) bool { return true })
	all := max(0, after.busy-before.busy-own-kernel)
	stolen := max(0, after.stolen-before.stolen)
	seen, names := spent(before, after, rest, func(id) bool { return false })
	by = named(names, stolen)
	if all > seen {
		by["processes that ended or cannot be seen"] = (all - seen).Seconds()
	}
	return (all + stolen).Seconds() / took, by, max(0, after.stalled-before.stalled).Seconds() / took
}

// disturbs says what of others is too much between two moments at rest, or "".
func (w *Watch) disturbs(a, b *moment) string {
	used, by, stalled := w.others(a, b)
	switch {
	case used >= w.limit:
		return fmt.Sprintf("others used %.2f processors: %s", used, words(busiest(by)))
	case stalled >= Limit:
		return fmt.Sprintf("something waited for a disk for %.0f %% of the time", 100*stalled)
	}
	// What is there in quiet is not what comes.
	there, _ := w.foreign(a, b)
	w.base = max(w.background, there.Seconds()/b.at.Sub(a.at).Seconds())
	return ""
}

// foreign is the processor time of processes that are older than the benchmark, of what descends from them, and of other
// machines. Processes that came since and descend from none of them may be the benchmark's own, which lose their parent,
// as containers do.
func (w *Watch) foreign(a, b *moment) (used time.Duration, by map[string]float64) {
	var roots []int
	for _, m := range []*moment{a, b} {
		for pid, p := range m.processes {
			if w.before[p.id] && !w.known[p.id] {
				roots = append(roots, pid)
			}
		}
	}
	of := b.below(roots)
	maps.Copy(of, a.below(roots))
	maps.DeleteFunc(of, func(p id, _ bool) bool { return w.known[p] })
	used, names := spent(a, b, of, func(p id) bool { return !w.parents[p] })
	return used + max(0, b.stolen-a.stolen), named(names, b.stolen-a.stolen)
}

// named is processor time by name, in seconds, with that of other machines.
func named(names map[string]time.Duration, stolen time.Duration) map[string]float64 {
	by := map[string]float64{}
	for name, d := range names {
		by[name] = d.Seconds()
	}
	if stolen > 0 {
		by["other machines of the hypervisor"] = stolen.Seconds()
	}
	return by
}

// during says who used more in a round than in quiet, or "".
func (w *Watch) during(a, b *moment) string {
	took := b.at.Sub(a.at)
	used, by := w.foreign(a, b)
	if used.Seconds() < w.base*took.Seconds()+w.limit*min(took, burst).Seconds() {
		return ""
	}
	return fmt.Sprintf("others used %.1f s of a processor in %.1f s: %s", used.Seconds(), took.Seconds(), words(busiest(by)))
}

// wait looks until the machine was quiet twice, from a moment on, or for as long as it may.
func (w *Watch) wait(ctx context.Context, from moment) error {
	var told time.Time
	began := from.at
	for calm, last := 0, from; calm < 2; {
		now, err := w.later(ctx)
		if err != nil {
			return err
		}
		text := w.disturbs(&last, &now)
		if calm++; text != "" {
			calm = 0
			w.waited += now.at.Sub(began)
			began = now.at
			_, by, _ := w.others(&last, &now)
			for name, s := range by {
				w.seconds[name] += s
			}
			if now.at.Sub(told) >= again {
				told = now.at
				w.say(fmt.Sprintf("waiting until the machine is quiet, for %v so far (--max-wait limits it): %s", w.waited.Round(time.Second), text))
			}
			if w.o.MaxWait > 0 && w.waited >= w.o.MaxWait {
				w.over = true
				w.r.NotQuiet = fmt.Sprintf("it waited for %v and no longer (--max-wait); %s", w.waited.Round(time.Second), text)
				w.say("measuring, and not in quiet: " + text)
				break
			}
		}
		last, w.last = now, now
	}
	return nil
}
