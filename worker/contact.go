//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/lease"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// contactEvery is how often the moment of the last contact is written down, while something runs that depends on it.
const contactEvery = time.Second

// errLeaseOver says that a container is not started because its instance was ended in the agent's place.
var errLeaseOver = errors.New("the lease of its instance has run out")

// leases keeps the moment of the last contact with the cluster, and the guard that ends instances should the agent hang.
type leases struct {
	contact *lease.Contact    // nil: not kept
	holder  *lease.Holder     // nil: nobody guards
	wanted  chan []core.Lease // the last word of the core
	up      func() *tier.Up
	post    func(any)
	log     *slog.Logger
	slept   slept

	mu      sync.Mutex
	held    map[skerry.InstanceID]bool // that are guarded
	err     error                      // why what is wanted is not
	changed chan struct{}              // closed at the next change
}

// newLeases keeps nothing without a directory in memory, and without a command has no guard.
func newLeases(runDir, cgroupParent string, command []string) (*leases, error) {
	l := &leases{wanted: make(chan []core.Lease, 1), changed: make(chan struct{}), held: map[skerry.InstanceID]bool{}}
	if runDir == "" {
		return l, nil
	}
	var err error
	if l.contact, err = lease.NewContact(filepath.Join(runDir, "contact")); err == nil && len(command) > 0 {
		l.holder, err = lease.NewHolder(lease.Options{Dir: filepath.Join(runDir, LeaseDir), Contact: l.contact, CgroupParent: cgroupParent,
			Command: command})
	}
	return l, err
}

// LeaseDir is where the guard's files are, in the run directory.
const LeaseDir = "lease"

// want takes the core's word.
func (l *leases) want(list []core.Lease) {
	select { // the last word counts
	case <-l.wanted:
	default:
	}
	l.wanted <- list
}

// keep writes the moment of the last contact down until ctx ends, while the core wants it, and sees to the guard.
func (l *leases) keep(ctx context.Context) {
	if l.contact == nil {
		return
	}
	tick := time.NewTicker(contactEvery)
	tick.Stop()
	defer tick.Stop()
	var list []core.Lease
	for {
		select {
		case <-ctx.Done():
			return
		case list = <-l.wanted:
			l.heard(list) // before the guard hears of what depends on it
			l.hold(ctx, list)
			if tick.Stop(); len(list) > 0 {
				tick.Reset(contactEvery)
			}
		case <-tick.C:
			l.heard(list)
			if l.failed() || !l.ensure(ctx) {
				l.hold(ctx, list)
			}
		}
	}
}

// heard writes down when the cluster was heard, and asks it for a word if that was long ago.
func (l *leases) heard(list []core.Lease) {
	up := l.up()
	if up == nil || len(list) == 0 {
		return
	}
	ago, ok := up.Heard()
	if !ok {
		return
	}
	boot, err := lease.Uptime()
	if err == nil {
		ago = l.slept.real(time.Now(), boot, ago)
		err = l.contact.Write(ago)
	}
	if err != nil {
		l.log.Error("keep the moment of the last contact", "err", err)
	}
	for _, x := range list {
		if ago > x.Stop/2 {
			up.Ask()
			return
		}
	}
}

// slept corrects spans of a clock that stands still while the machine sleeps.
type slept struct {
	mono   time.Time     // at the last look
	boot   time.Duration // the same moment by the clock that goes on
	woke   time.Time     // the last look after a sleep
	asleep time.Duration
}

// real gives how long ago something was, by the clock that goes on.
func (s *slept) real(now time.Time, boot, ago time.Duration) time.Duration {
	if gap := boot - s.boot - now.Sub(s.mono); !s.mono.IsZero() && gap > contactEvery/2 {
		s.woke, s.asleep = now, gap
	}
	s.mono, s.boot = now, boot
	if now.Add(-ago).Before(s.woke) {
		return ago + s.asleep
	}
	return ago
}

// ensure starts the guard again if it has died, and reports whether there is one.
func (l *leases) ensure(ctx context.Context) bool {
	return l.holder == nil || l.holder.Ensure(ctx) == nil
}

// hold gives the guard a list, in place of the one before. Without one the guard ends.
func (l *leases) hold(ctx context.Context, list []core.Lease) {
	if l.holder == nil {
		return
	}
	out := make([]lease.Lease, 0, len(list))
	for _, x := range list {
		out = append(out, guarded(x))
	}
	err := l.holder.Set(ctx, out)
	if err != nil && ctx.Err() == nil {
		l.log.Error("what must not run for long without the cluster is not guarded, and not started", "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	clear(l.held)
	if err == nil {
		for _, x := range list {
			l.held[x.ID] = true
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func guarded(x core.Lease) lease.Lease {
	out := lease.Lease{Instance: x.ID, Token: x.Fence, Stop: x.Stop, Kill: x.Kill, Ending: x.Ending, Signal: int(syscall.SIGTERM)}
	var h runtime.Handle
	if x.Main != "" && json.Unmarshal([]byte(x.Main), &h) == nil {
		out.Main = h.PID
	}
	if n, err := parseSignal(x.Signal); x.Signal != "" && err == nil {
		out.Signal = int(n)
	}
	return out
}

func (l *leases) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err != nil
}

// await returns when an instance is guarded, at once if it need not be. The error says that it must not start.
func (l *leases) await(ctx context.Context, assigned *spec.Assignment) error {
	if _, ok := assigned.Spec.OnDisconnect.StopAfter(); !ok || l.holder == nil {
		return nil
	}
	for {
		l.mu.Lock()
		held, err, changed := l.held[assigned.ID], l.err, l.changed
		l.mu.Unlock()
		switch {
		case held:
			if l.over(assigned) != nil {
				return errLeaseOver
			}
			return nil
		case err != nil:
			return fmt.Errorf("nothing would end it should this agent hang, as onDisconnect: stopAfter asks for: %w", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// over gives the word for the core that an instance was ended in the agent's place, or nil.
func (l *leases) over(a *spec.Assignment) *core.LeaseOver {
	if l.holder == nil {
		return nil
	}
	if e, ok := l.holder.Ended(a.ID); ok && e.Token == a.Fence {
		return &core.LeaseOver{ID: e.Instance, Fence: e.Token, Alone: e.Alone}
	}
	return nil
}

// ended gives the word for the core on everything that was ended in the agent's place.
func (l *leases) ended() (list []core.LeaseOver) {
	if l.holder == nil {
		return nil
	}
	for _, e := range l.holder.AllEnded() {
		list = append(list, core.LeaseOver{ID: e.Instance, Fence: e.Token, Alone: e.Alone})
	}
	return list
}

// tellOver has the core told, before it hears of the end of a container, if its instance was ended in the agent's place.
func (l *leases) tellOver(id skerry.InstanceID) {
	if l.holder == nil {
		return
	}
	if e, ok := l.holder.Ended(id); ok {
		l.post(core.LeaseOver{ID: e.Instance, Fence: e.Token, Alone: e.Alone})
	}
}
