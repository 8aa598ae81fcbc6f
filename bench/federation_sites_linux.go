package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// The process of the sites joins one cluster for each line "join NAME TOKEN" that it reads, answers "joined NAME", and "held N" to "count":
// how many instances its clusters have and have told of.
const (
	siteJoin, siteJoined = "join", "joined"
	siteCount, siteHeld  = "count", "held"
)

// siteReportEvery is how often a cluster of the default profile reports to its root at least.
const siteReportEvery = 10 * time.Second

// runSites is the clusters' end of many links to one root, in one process: identities, links, sets and reports by the code that a cluster
// has for them. What a cluster does at its site is left out: each takes what it is offered, and says after a moment that it runs.
func runSites(ctx context.Context, dir, root string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	fleet := &fleetOfSites{ctx: ctx, dir: dir, root: root, out: out, places: make(chan struct{}, 8), wg: &running}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch words := strings.Fields(lines.Text()); {
		case len(words) == 3 && words[0] == siteJoin:
			fleet.places <- struct{}{}
			running.Go(func() { fleet.join(words[1], words[2]) })
		case len(words) == 1 && words[0] == siteCount:
			fleet.say("%s %d", siteHeld, fleet.held())
		default:
			return fmt.Errorf("sites: cannot do %q", lines.Text())
		}
	}
	return lines.Err()
}

type fleetOfSites struct {
	ctx       context.Context
	dir, root string
	places    chan struct{} // that join at a time
	wg        *sync.WaitGroup

	mu    sync.Mutex
	out   io.Writer
	sites []*linkedSite
}

func (f *fleetOfSites) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.out, format+"\n", args...)
}

func (f *fleetOfSites) held() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sites {
		s.mu.Lock()
		n += s.up.Observed.Len()
		s.mu.Unlock()
	}
	return n
}

func (f *fleetOfSites) join(name, token string) {
	site, err := openLinkedSite(f.ctx, filepath.Join(f.dir, name), name, token, f.root)
	<-f.places
	if err != nil {
		f.say("%s: %v", name, err)
		return
	}
	f.mu.Lock()
	f.sites = append(f.sites, site)
	at := len(f.sites)
	f.mu.Unlock()
	f.say("%s %s", siteJoined, name)
	f.wg.Go(func() { site.keep(f.ctx, siteReportEvery*time.Duration(at%100)/100) })
	site.link.Run(f.ctx)
}

// linkedSite is one cluster as its root sees it.
type linkedSite struct {
	link *tier.Up

	mu    sync.Mutex // of all that follows
	up    *members.Parent
	codec *wire.Codec
	free  []uplink.Member // what is left of its workers
	seq   uint64
}

func openLinkedSite(ctx context.Context, dir, name, token, root string) (*linkedSite, error) {
	st, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		return nil, err
	}
	own, err := auth.OpenAuthority(ctx, auth.AuthorityConfig{Site: name, Tier: wire.TierCluster, Store: st})
	if err != nil {
		return nil, err
	}
	member, err := auth.Enter(ctx, auth.Entry{Dialing: auth.Dialing{Addrs: []string{root}, Machine: name, Boot: name, Site: own},
		Dir: dir, Token: token, Tier: wire.TierCluster, Name: name, Version: "bench"})
	if err != nil {
		return nil, err
	}
	site := &linkedSite{up: members.NewParent(skerry.Incarnation(name), reconcile.Options{}), codec: wire.New(), free: siteWorkers()}
	site.link, err = tier.NewUp(tier.UpConfig{Member: member, Addrs: func() []string { return []string{root} }, Boot: name, Machine: name,
		Version: "bench", Site: own, Log: slog.New(slog.DiscardHandler),
		Sets: func() []wire.SetAck {
			site.mu.Lock()
			defer site.mu.Unlock()
			return site.up.Hello()
		},
		Up: func(w *wire.Welcome) {
			site.change(func() []wire.Message { site.up.Up(time.Now(), w); return []wire.Message{site.reportLocked()} })
		},
		Frame: site.frame,
		Down:  func(time.Duration) { site.change(func() []wire.Message { site.up.Down(time.Now()); return nil }) },
	})
	return site, err
}

// siteWorkers are ten machines with room for some hundred instances each.
func siteWorkers() (out []uplink.Member) {
	facts := &wire.WorkerFacts{Arch: "amd64", OS: "linux", Runtimes: []wire.RuntimeReport{{Name: spec.RuntimeOCI, Passed: true}},
		Features: spec.AgentFeatures()}
	room := spec.Resources{CPU: 64_000, Memory: 256 * skerry.GiB, Storage: skerry.Bytes(1) << 40}
	for range 10 {
		out = append(out, uplink.Member{Facts: facts, Class: uplink.ClassKey(facts), Available: room})
	}
	return out
}

// change changes a site and sends what follows from that, before the messages that change gives.
func (s *linkedSite) change(change func() []wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	replies := change()
	var fx wire.Effects
	s.up.Flush(time.Now(), &fx, replies)
	for _, m := range fx.Sends {
		s.link.Send(m.Msg.(wire.Message))
	}
}

// frame takes what the root wants: first that each new instance has its place, then that it runs.
func (s *linkedSite) frame(msg wire.Message) {
	var fresh []*spec.Assignment
	s.change(func() []wire.Message {
		changed, deleted, replies := s.up.Frame(time.Now(), msg)
		for _, key := range deleted {
			s.up.Observed.Delete(key)
		}
		for _, key := range changed {
			value, orphaned, has := s.up.Desired.Get(key)
			var as spec.Assignment
			if !strings.HasPrefix(key, "inst/") || !has || orphaned || s.codec.Unmarshal(value, &as) != nil {
				continue
			}
			if s.runsOnLocked(&as) {
				continue
			}
			fresh = append(fresh, &as)
			s.tellLocked(&as, skerry.WorkerScheduled)
		}
		return replies
	})
	if len(fresh) == 0 {
		return
	}
	s.change(func() []wire.Message {
		for _, as := range fresh {
			s.tellLocked(as, skerry.Running)
		}
		return nil
	})
}

// runsOnLocked reports whether an instance runs already as an assignment wants it. It tells of a new generation alone, as a cluster does:
// nothing of it starts again.
func (s *linkedSite) runsOnLocked(as *spec.Assignment) bool {
	key := wire.AssignmentKey(as.ID)
	value, _ := s.up.Observed.Get(key)
	var o wire.Observation
	if value == nil || s.codec.Unmarshal(value, &o) != nil || o.State != skerry.Running || o.Revision != as.Revision ||
		o.Restart != as.Restart || o.Fence != as.Fence {
		return false
	}
	o.Gen = as.Gen
	_, _ = s.up.Observed.Put(key, s.codec.Marshal(&o))
	return true
}

func (s *linkedSite) tellLocked(as *spec.Assignment, state skerry.State) {
	o := wire.Observation{ID: as.ID, Gen: as.Gen, Fence: as.Fence, State: state, Restart: as.Restart, Revision: as.Revision}
	if state == skerry.Running {
		o.Phase, o.Ready, o.Runtime, o.StartedAt = skerry.PhaseRunning, true, spec.RuntimeOCI, time.Now()
	}
	_, _ = s.up.Observed.Put(wire.AssignmentKey(as.ID), s.codec.Marshal(&o)) // it fits: it has no texts
}

// keep reports, and sends again what was lost.
func (s *linkedSite) keep(ctx context.Context, after time.Duration) {
	for wait := after; ; wait = siteReportEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		s.change(func() []wire.Message { return []wire.Message{s.reportLocked()} })
	}
}

func (s *linkedSite) reportLocked() wire.Message {
	r := uplink.Fold(s.free)
	s.seq++
	r.Seq, r.Instances = s.seq, s.up.Observed.Len()
	return &wire.Report{Kind: wire.ReportCluster, Payload: s.codec.Marshal(&r)}
}
