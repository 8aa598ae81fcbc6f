package moves

import (
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func all(string) bool { return true }

func TestReleases(t *testing.T) {
	r := NewReleases()
	on := r.Add("w")
	shop := skerry.AppKey{Namespace: "default", Name: "shop"}
	web := skerry.ServiceKey{App: shop, Service: "web"}
	at := Place{"w", "web-1"}
	first := r.Begin(at, Releasing{Need: spec.Resources{CPU: 500}, Service: web})
	if first == nil || !on.Has("web-1") || !slices.Contains(slices.Collect(r.Workers(shop)), "w") {
		t.Fatalf("%v is not on its way out: %+v", at, on)
	}
	if r.Begin(at, Releasing{Service: web}) != nil {
		t.Error("what it holds was written again when it was told again")
	}
	if r.Begin(Place{"gone", "web-1"}, Releasing{Service: web}) != nil {
		t.Error("something ends on a worker that is not there")
	}
	if faults := r.Audit(all); len(faults) > 0 {
		t.Error(faults)
	}

	later := NewReleases()
	again := later.Add("w")
	if err := later.Load(first.Key, first.Value); err != nil {
		t.Fatal(err)
	}
	if err := later.Load(Prefix+"w/other-1", first.Value); err != nil {
		t.Fatal(err)
	}
	var fx wire.Effects
	taken := later.Start(func(p Place) bool { return p.ID == "web-1" }, &fx)
	if !slices.Equal(taken, []Place{at}) || again["web-1"].Need.CPU != 500 {
		t.Errorf("after a start %v are taken, and %+v is on its way out", taken, again)
	}
	if len(fx.Writes) != 1 || fx.Writes[0].Key != Prefix+"w/other-1" || fx.Writes[0].Value != nil {
		t.Errorf("the record of what is there again is not deleted: %+v", fx.Writes)
	}
	if h, w := later.End(at); w == nil || w.Key != first.Key || w.Value != nil || h.Service != web || len(later.of) > 0 {
		t.Errorf("it has ended: %+v with %+v, and these are left: %v", h, w, later.of)
	}
	if _, w := later.End(at); w != nil {
		t.Error("it ended twice")
	}
	if faults := later.Audit(all); len(faults) > 0 {
		t.Error(faults)
	}
}

func TestDrainLooks(t *testing.T) {
	d, now := NewDrains(), time.Unix(1e9, 0)
	w := d.Begin("w", &Drain{Since: now, Parallel: 1})
	l := d.Look("w")
	l.Stays("data-1", "its data")
	if l.Waits(now, "web-1") {
		t.Error("it waits before it was tried")
	}
	l.Tries("web-1", "no room", now.Add(time.Second))
	if news, n := l.End(everyone, false); news || n != 2 {
		t.Errorf("one could leave, and it is told as done: %v, %d stay", news, n)
	}
	if why, tries, ok := w.Stay("web-1"); why != "no room" || !tries || !ok || !d.Due().Equal(now.Add(time.Second)) {
		t.Errorf("it stays: %v, because %q, and is tried again: %v, at %s", ok, why, tries, d.Due())
	}
	d.Start()
	l = d.Look("w")
	l.Stays("data-1", "its data")
	if !l.Waits(now, "web-1") || !d.Due().Equal(now.Add(time.Second)) {
		t.Errorf("it is tried before its time; the next look is at %s", d.Due())
	}
	now = now.Add(time.Second)
	if l.Waits(now, "web-1") {
		t.Error("it is not tried when it is time")
	}
	l.Leaves("web-1", now.Add(time.Minute))
	if news, n := l.End(func(id skerry.InstanceID) bool { return id == "data-1" }, true); !news || n != 1 {
		t.Errorf("all that can has left, and that is told: %v, %d stay", news, n)
	}
	if news, _ := d.Look("w").End(everyone, true); news {
		t.Error("it is told twice")
	}
	if faults := d.Audit(func(string) *Drain { return w }); len(faults) > 0 {
		t.Error(faults)
	}
	if d.End("w"); !d.None() {
		t.Error("it is still drained")
	}
}

func everyone(skerry.InstanceID) bool { return true }

func TestBalance(t *testing.T) {
	b, now := NewBalance(false), time.Unix(1e9, 0)
	if look, _ := b.Begin(now); look || !b.Due().IsZero() {
		t.Error("it looks, and nobody asked")
	}
	if !b.Ask(now, 3) || b.Ask(now, 2) {
		t.Error("it is asked once")
	}
	if look, asked := b.Begin(now); !look || !asked || !b.Due().Equal(now.Add(passEvery)) {
		t.Errorf("asked, it looks: %v, %v, and again at %s", look, asked, b.Due())
	}
	b.Moved("a")
	end := b.Rehearse()
	if b.Passed("a") {
		t.Error("a rehearsal knows what was moved")
	}
	if end(); !b.Passed("a") {
		t.Error("a rehearsal forgot what was moved")
	}
	for range busyLooks {
		if b.Busy("w") {
			t.Error("it is busy too early")
		}
		b.Count([]string{"w"})
	}
	if b.Count([]string{"w"}); !b.Busy("w") {
		t.Error("it is not busy")
	}
	if b.Count(nil); b.Busy("w") {
		t.Error("it is still busy")
	}
	if !b.Late(now.Add(longestPass)) || b.Late(now) {
		t.Error("a pass ends at the wrong time")
	}
	if told, left := b.EndPass(now); told != 3 || left != 2 {
		t.Errorf("of %d moves that somebody was told of, %d were not begun; want 2 of 3", told, left)
	}
	if b.Late(now.Add(longestPass)) || !b.Due().IsZero() {
		t.Errorf("a pass that has ended goes on, next at %s", b.Due())
	}
	ids := make([]skerry.InstanceID, maxLooked+2)
	for i := range ids {
		ids[i] = skerry.InstanceID(time.Unix(int64(i), 0).UTC().Format("150405"))
	}
	looks := func() (first skerry.InstanceID, n int) {
		b.Best(ids, func(id skerry.InstanceID, look func() bool) {
			if n == 0 {
				first = id
			}
			if look() {
				n++
			}
		})
		return first, n
	}
	if first, n := looks(); first != ids[0] || n != maxLooked {
		t.Errorf("the first look begins at %s and looks at %d", first, n)
	}
	if first, _ := looks(); first != ids[maxLooked] {
		t.Errorf("the second look begins at %s, want %s", first, ids[maxLooked])
	}
}
