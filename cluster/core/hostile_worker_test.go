package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// liar is a site with a worker that says what a test has it say.
type liar struct {
	t   *testing.T
	c   *Core
	now time.Time
	seq uint64
	// largest is the longest record so far, events what was told.
	largest int
	events  []wire.Event
}

func newLiar(t *testing.T) *liar {
	now := time.Unix(1_700_000_000, 0)
	return &liar{t: t, c: textSite(t, now, ""), now: now, seq: 1}
}

func (l *liar) keep(fx wire.Effects) wire.Effects {
	for _, w := range fx.Writes {
		l.largest = max(l.largest, len(w.Value))
	}
	l.events = append(l.events, fx.Events...)
	return fx
}

func (l *liar) report(r wire.WorkerReport) {
	l.seq++
	r.Seq = l.seq
	l.keep(l.c.Step(l.now, ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}}))
}

// say has the worker report items in one change.
func (l *liar) say(items map[string][]byte) (took time.Duration) {
	l.t.Helper()
	src := reconcile.NewSource("observed", "x/", "life", reconcile.Options{})
	for key, value := range items {
		if _, err := src.Put(key, value); err != nil {
			l.t.Fatal(err)
		}
	}
	src.Connect(l.now, wire.SetAck{Set: "observed"})
	begin := time.Now()
	for msgs := src.Next(l.now); len(msgs) > 0; msgs = src.Next(l.now) {
		for _, m := range msgs {
			for _, s := range l.keep(l.c.Step(l.now, ChildFrame{Name: "w", Msg: m})).Sends {
				if ack, ok := s.Msg.(*wire.SetAck); ok {
					src.Handle(l.now, ack)
				}
			}
		}
	}
	return time.Since(begin)
}

// A worker that says in very many words why it takes nothing, or what it is, does not make its site write a record that no store takes: the
// words come into the reasons of others' instances, and such a write would end every commit of the site's.
func TestReasonsOfAWorkerAreShort(t *testing.T) {
	long := strings.Repeat("\x01", 300<<10)
	for what, say := range map[string]func(l *liar){
		"why it takes nothing": func(l *liar) { l.report(wire.WorkerReport{Refusing: long}) },
		"its architecture": func(l *liar) {
			l.report(wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: long[:150<<10], Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}},
				Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}}})
		},
		"its taints": func(l *liar) {
			l.report(wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Taints: []string{long[:150<<10]},
				Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}}, Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}}})
		},
		"everything": func(l *liar) {
			l.report(wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Labels: map[string]string{"a": long}, Devices: []string{long}}})
		},
	} {
		l := newLiar(t)
		say(l)
		one := 1
		s := spec.ServiceSpec{Name: "web", Replicas: &one}
		s.Image = "web:1"
		l.keep(l.c.Step(l.now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
			Metadata: spec.Metadata{Name: "shop"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}}))
		for range 10 {
			l.now = l.now.Add(time.Minute)
			l.keep(l.c.Tick(l.now))
		}
		if l.largest > store.MaxValue/3 {
			t.Errorf("%s: a record of %d bytes", what, l.largest)
		}
	}
}

// Nor does a worker that tells what comes to services, or how far these are, of which nobody has heard fill the report of its site: one
// that is too large for a frame is not sent, and the root does not hear of the site any more.
func TestReportOfASiteFitsAFrame(t *testing.T) {
	l := newLiar(t)
	a, _ := l.c.onlyAssignment(t)
	var use []wire.IngressUse
	for n := range wire.MaxIngressUses {
		use = append(use, wire.IngressUse{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "none", Name: strings.Repeat("x", 200)},
			Service: fmt.Sprint("s", n)}, Requests: 1})
	}
	links := map[string]float64{}
	for n := range 2_000 {
		links[strings.Repeat("y", 300)+fmt.Sprint(n)] = 1
	}
	l.report(wire.WorkerReport{Ingress: use})
	l.c.places[a.ID].Origin = "root"
	l.report(wire.WorkerReport{Instances: map[skerry.InstanceID]wire.QoS{a.ID: {CPU: 5, Links: links}}})
	r := l.c.Aggregate()
	if n := len(wire.New().Marshal(&r)); n > frame.MaxFrame/4 {
		t.Errorf("the report has %d bytes: %d services by ingresses, %d links", n, len(r.Arrivals), len(r.Services[0].QoS.Links))
	}
	l.report(wire.WorkerReport{Ingress: use, Instances: map[skerry.InstanceID]wire.QoS{a.ID: {CPU: 5, Links: links}}})
	r = l.c.Aggregate()
	if n := len(wire.New().Marshal(&r)); n > frame.MaxFrame/4 {
		t.Errorf("with both the report has %d bytes", n)
	}
}

// A worker that says it keeps very many things of an earlier life, and runs very many instances that its site does not know, holds it up
// for no longer than that takes to read, and does not fill its events.
func TestStrangersOfAWorker(t *testing.T) {
	l := newLiar(t)
	const many = 20_000
	items, held := map[string][]byte{}, []wire.HeldItem{}
	for n := range many {
		id := skerry.InstanceID(fmt.Sprintf("ghost-c%08d", n))
		items[wire.AssignmentKey(id)] = wire.New().Marshal(&wire.Observation{ID: id, State: skerry.Running})
		held = append(held, wire.HeldItem{Key: wire.AssignmentKey(id), Incarnation: "before"})
	}
	kv := map[string][]byte{}
	for _, h := range held {
		kv[h.Key] = h.Value
	}
	digest := reconcile.DigestOf(kv)
	d := l.c.Children.Get("w").Desired
	l.keep(l.c.Step(l.now, ChildFrame{Name: "w", Msg: &wire.SetAck{Set: "desired", Incarnation: d.Incarnation(), Gen: d.Gen(),
		Digest: d.Digest(), Orphans: many, OrphanDigest: digest}}))
	l.keep(l.c.Step(l.now, ChildFrame{Name: "w", Msg: &wire.SetHeld{Set: "desired", Digest: digest, Items: held, Last: true}}))
	if orphans, _ := d.Orphans(); len(orphans) < many {
		t.Fatalf("it is heard of %d that it keeps, want %d", len(orphans), many)
	}
	if took := l.say(items); took > 10*time.Second {
		t.Errorf("its site took %s to hear of %d instances", took, many)
	}
	told := 0
	for _, e := range l.events {
		if e.Reason == "UnknownInstance" {
			told++
		}
	}
	if told == 0 || told > namedMost {
		t.Errorf("%d events tell of unknown instances, want some and at most %d", told, namedMost)
	}
}

// Only the worker that an instance moves to is given its state: asking for it ends the instance where it runs.
func TestStateIsForWhoItMovesTo(t *testing.T) {
	l := newLiar(t)
	a, _ := l.c.onlyAssignment(t)
	p := l.c.places[a.ID]
	l.c.succeed(p, &successor{Worker: "x", Checkpoint: true, Recipient: "age1"})
	if at, err := l.c.Checkpoint(a.ID, "w"); err == nil {
		t.Errorf("worker w is led to %q for a state that is to go to worker x", at)
	}
	if at, err := l.c.Checkpoint(a.ID, "x"); err != nil || at != "w" {
		t.Errorf("worker x is led to %q (%v), want worker w", at, err)
	}
}
