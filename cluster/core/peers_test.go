package core

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// peersSite is a core with workers that measure round trips.
type peersSite struct {
	t   testing.TB
	c   *Core
	now time.Time
	kv  map[string][]byte
}

func newPeersSite(t testing.TB) *peersSite {
	s := &peersSite{t: t, now: time.Unix(1e9, 0), kv: map[string][]byte{}}
	s.start()
	return s
}

func (s *peersSite) start() {
	s.c = New(Options{Name: "harbour", Incarnation: "a", Secret: [32]byte{1}})
	for k, v := range s.kv {
		if err := s.c.Load(k, v); err != nil {
			s.t.Fatal(err)
		}
	}
	s.keep(s.c.Start(s.now))
}

// keep stores what a step writes, and has a small site audited.
func (s *peersSite) keep(fx wire.Effects) {
	s.t.Helper()
	if len(s.c.workers) < 50 {
		for _, fault := range s.c.Audit() {
			s.t.Error(fault)
		}
	}
	for _, w := range fx.Writes {
		if w.Value == nil {
			delete(s.kv, w.Key)
		} else {
			s.kv[w.Key] = w.Value
		}
	}
}

func (s *peersSite) wait(d time.Duration) {
	s.now = s.now.Add(d)
	s.keep(s.c.Tick(s.now))
}

// join connects a worker that can be reached at an address, or not.
func (s *peersSite) join(name, probe string) {
	s.keep(s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: name}}))
	s.report(name, wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Probe: probe}})
}

func (s *peersSite) report(name string, r wire.WorkerReport) {
	s.keep(s.c.Step(s.now, ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}}))
}

// told gives what a worker is to measure to.
func (s *peersSite) told(name string) *wire.Peers {
	v, ok := s.c.Children.Get(name).Desired.Get(wire.PeersKey)
	if !ok {
		return nil
	}
	p := new(wire.Peers)
	if err := wire.New().Unmarshal(v, p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

func TestPeersAreGivenToThoseWhoMeasure(t *testing.T) {
	s := newPeersSite(t)
	s.join("old", "")
	s.wait(network.ReviewLater)
	if s.told("old") != nil {
		t.Error("a site in which nobody measures has peers")
	}
	s.join("a", "192.0.2.1:7001")
	s.wait(network.ReviewLater)
	if p := s.told("a"); p == nil || len(p.List) != 0 || len(p.Key) != 32 {
		t.Errorf("a worker alone: %+v", p)
	}
	s.join("b", "192.0.2.2:7002")
	s.join("behind-nat", "")
	s.join("liar", "0.0.0.0:1")
	s.join("nonsense", "somewhere")
	s.wait(network.ReviewLater)
	for name, want := range map[string][]string{"a": {"192.0.2.2:7002"}, "b": {"192.0.2.1:7001"}, "behind-nat": {"192.0.2.1:7001", "192.0.2.2:7002"}} {
		if p := s.told(name); p == nil || !slices.Equal(p.List, want) || !bytes.Equal(p.Key, s.told("a").Key) {
			t.Errorf("%s: %+v, want %v", name, p, want)
		}
	}
}

func TestKeyChangesWhenAWorkerIsRemoved(t *testing.T) {
	s := newPeersSite(t)
	for i := range 3 {
		s.join(fmt.Sprint("w", i), fmt.Sprintf("192.0.2.%d:7000", i+1))
	}
	s.wait(network.ReviewLater)
	before := s.told("w0")
	s.start() // another life keeps the key, and what workers were told
	for i := range 3 {
		s.join(fmt.Sprint("w", i), fmt.Sprintf("192.0.2.%d:7000", i+1))
	}
	s.wait(network.ReviewLater)
	if p := s.told("w0"); p == nil || p.KeyID != before.KeyID || !bytes.Equal(p.Key, before.Key) {
		t.Errorf("after a restart: %+v, before %+v", p, before)
	}
	s.keep(s.c.Step(s.now, ChildDown{Name: "w2"}))
	s.wait(10 * time.Second)
	s.wait(network.ReviewLater)
	if p := s.told("w0"); p.KeyID != before.KeyID || len(p.List) != 1 {
		t.Errorf("after a worker was lost: %+v", p)
	}
	fx := s.c.Step(s.now, RemoveWorker{Name: "w2"})
	if s.keep(fx); fx.Err != nil {
		t.Fatal(fx.Err)
	}
	s.wait(network.ReviewLater)
	if p := s.told("w0"); p.KeyID == before.KeyID || bytes.Equal(p.Key, before.Key) || !bytes.Equal(p.Key, s.told("w1").Key) {
		t.Errorf("the key that the removed worker knows is still used: %+v", p)
	}
}

func TestNetworkOfASite(t *testing.T) {
	s := newPeersSite(t)
	at := func(x float64) wire.WorkerReport {
		return wire.WorkerReport{Coordinate: &spec.Coordinate{Vec: [3]float64{x, 3, 0}, Height: 1, Error: 0.12}}
	}
	if r := s.c.Aggregate(); r.Network != nil {
		t.Errorf("%+v", r.Network)
	}
	for i, x := range []float64{10, 32, 60} {
		name := fmt.Sprint("w", i)
		s.join(name, "")
		s.report(name, at(x))
		r := s.c.Aggregate()
		if r.Network == nil {
			t.Fatal("no place in the network")
		}
		exact := i == 2
		if got := r.Network.Vec[1] == 3; got != exact {
			t.Errorf("%d workers: %+v", i+1, r.Network)
		}
		for j := range i + 1 {
			if w := s.c.workers[fmt.Sprint("w", j)].report.Coordinate; r.Network.RTT(*w) > r.NetworkMs {
				t.Errorf("%d workers: one is %v ms away, told are %v", i+1, r.Network.RTT(*w), r.NetworkMs)
			}
		}
	}
	bad := at(0)
	bad.Coordinate.Vec[0] = 1e300
	s.report("w0", bad)
	if r := s.c.Aggregate(); !r.Network.Valid() || r.NetworkMs > 100 {
		t.Errorf("%+v %v", r.Network, r.NetworkMs)
	}
}

// Workers that turn together in their space take the users with them.
func TestUsersShiftWithTheWorkers(t *testing.T) {
	s := newPeersSite(t)
	put := func(turn bool) {
		for name, v := range map[string][3]float64{"w0": {0, 0, 0}, "w1": {50, 0, 0}, "w2": {0, 50, 0}, "w3": {0, 0, 50}, "w4": {30, 30, 10}} {
			if turn {
				v = [3]float64{-v[1] + 60, v[0], v[2]}
			}
			s.report(name, wire.WorkerReport{Coordinate: &spec.Coordinate{Vec: v, Height: 1, Error: 0.1}})
		}
	}
	for i := range 5 {
		s.join(fmt.Sprint("w", i), "")
	}
	put(false)
	user := spec.Coordinate{Vec: [3]float64{10, 20, 5}, Height: 1}
	rtt := map[string]float64{}
	for name, w := range s.c.workers {
		rtt[name] = w.report.Coordinate.RTT(user)
	}
	p := &placement{}
	limit := spec.Duration(time.Second)
	p.Set(s.now, &spec.Placement{Users: []spec.User{{MaxLatency: &limit}}}, []map[string]float64{rtt}, "", s.c.workers.where)
	near := func() float64 { return p.Users[0].Coordinate.RTT(*s.c.workers["w0"].report.Coordinate) }
	want := near()
	put(true)
	if got := near(); got < want+5 {
		t.Fatalf("the turn makes no difference: %v, %v", got, want)
	}
	p.Shift(s.c.workers.where)
	if got := near(); got > want+1 || got < want-1 {
		t.Errorf("the user is %v ms from w0 after the turn, %v before", got, want)
	}
}
