package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"skerry.dev/skerry/store"
)

func testWatchOrder(t *testing.T, e *env) {
	_, start, err := e.s.List(e.ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		for i := range 100 {
			if _, err := e.s.Commit(e.ctx, []store.Op{{Key: fmt.Sprint(i % 3), Value: []byte(fmt.Sprint(i))}}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	evs := e.watchN(t, "", start, 100)
	<-ready
	for i, ev := range evs {
		if string(ev.Value) != fmt.Sprint(i) || ev.Key != fmt.Sprint(i%3) {
			t.Fatalf("event %d is %s=%s", i, ev.Key, ev.Value)
		}
	}
}

func testWatchFromPast(t *testing.T, e *env) {
	// More than what an implementation would keep in memory: the rest comes from its disk.
	var revs []int64
	value := make([]byte, 8<<10)
	for i := range 100 {
		copy(value, fmt.Sprintf("%03d", i))
		revs = append(revs, e.put(t, "k", string(value)))
	}
	for _, from := range []int{0, 1, 50, 98} {
		evs := e.watchN(t, "", revs[from], 99-from)
		for i, ev := range evs {
			if got := string(ev.Value[:3]); got != fmt.Sprintf("%03d", from+1+i) || ev.Revision != revs[from+1+i] {
				t.Fatalf("watch after %d: event %d is %s at %d", from, i, got, ev.Revision)
			}
		}
	}
}

func testWatchWhole(t *testing.T, e *env) {
	_, start, err := e.s.List(e.ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		var ops []store.Op
		for j := range 5 {
			ops = append(ops, store.Op{Key: fmt.Sprint(j), Value: []byte(fmt.Sprint(i))})
		}
		e.commit(t, ops...)
	}
	enough, total := errors.New("enough"), 0
	err = e.s.Watch(e.ctx, "", start, func(evs []store.Event) error {
		count := map[int64]int{}
		for _, ev := range evs {
			count[ev.Revision]++
		}
		for rev, n := range count {
			if n != 5 {
				t.Errorf("a call holds %d of the 5 writes at %d", n, rev)
			}
		}
		if total += len(evs); total >= 100 {
			return enough
		}
		return nil
	})
	is(t, err, enough)
}

func testWatchPrefix(t *testing.T, e *env) {
	rev := e.put(t, "x", "0")
	e.commit(t, store.Op{Key: "app/a", Value: []byte("1")}, store.Op{Key: "b", Value: []byte("2")})
	e.put(t, "application", "3")
	e.commit(t, store.Op{Key: "app/a", Delete: true})
	e.put(t, "app/z", "4")
	if got := eventText(e.watchN(t, "app/", rev, 3)); got != "app/a=1 -app/a app/z=4" {
		t.Errorf("events %q", got)
	}
}

func testWatchEnds(t *testing.T, e *env) {
	rev := e.put(t, "a", "1")
	ctx, cancel := context.WithCancel(e.ctx)
	err := e.s.Watch(ctx, "", rev-1, func([]store.Event) error { cancel(); return nil })
	is(t, err, context.Canceled)
	mine := errors.New("mine")
	is(t, e.s.Watch(e.ctx, "", rev-1, func([]store.Event) error { return mine }), mine)
}

func testWatchFuture(t *testing.T, e *env) {
	rev := e.put(t, "a", "1")
	is(t, e.s.Watch(e.ctx, "", rev+1000, func([]store.Event) error { return nil }), store.ErrCompacted)
}

func testWatchUsesStore(t *testing.T, e *env) {
	rev := e.put(t, "a", "1")
	enough := errors.New("enough")
	is(t, e.s.Watch(e.ctx, "a", rev-1, func(evs []store.Event) error {
		r, err := e.s.Get(e.ctx, "a")
		if err != nil {
			return err
		}
		if r.Revision > rev {
			return enough
		}
		_, err = e.s.Commit(e.ctx, []store.Op{{Key: "a", Value: []byte("2"), Expect: &r.Revision}})
		return err
	}), enough)
}

func testCompact(t *testing.T, e *env) {
	c, ok := e.s.(store.Compacter)
	if !ok {
		t.Fatal("the store is no Compacter")
	}
	var revs []int64
	for i := range 20 {
		revs = append(revs, e.put(t, "a", fmt.Sprint(i)))
	}
	if err := c.Compact(e.ctx, revs[10]); err != nil {
		t.Fatal(err)
	}
	is(t, e.s.Watch(e.ctx, "", revs[5], func([]store.Event) error { return nil }), store.ErrCompacted)
	if got := eventText(e.watchN(t, "", revs[10], 2)); got[:9] != "a=11 a=12" {
		t.Errorf("after the border: %q", got)
	}
	want(t, e.list(t, ""), "a=19")
	// Earlier than the border and later than everything are no errors.
	if err := c.Compact(e.ctx, revs[2]); err != nil {
		t.Error(err)
	}
	if err := c.Compact(e.ctx, revs[19]+1000); err != nil {
		t.Error(err)
	}
	next := e.put(t, "b", "1")
	if got := eventText(e.watchN(t, "", revs[19], 1)); got != "b=1" {
		t.Errorf("after compacting all: %q", got)
	}
	if next <= revs[19] {
		t.Errorf("revision %d after %d", next, revs[19])
	}
	want(t, e.list(t, ""), "a=19", "b=1")
}

func testCompactLive(t *testing.T, e *env) {
	c := e.s.(store.Compacter)
	rev := e.put(t, "a", "0")
	enough, n := errors.New("enough"), 0
	started, written := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(written)
		select {
		case <-started:
		case <-e.ctx.Done():
			return
		}
		for i := 1; i < 30; i++ {
			r, err := e.s.Commit(e.ctx, []store.Op{{Key: "a", Value: []byte(fmt.Sprint(i))}})
			if err == nil && i%10 == 0 {
				err = c.Compact(e.ctx, r-5)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	err := e.s.Watch(e.ctx, "", rev-1, func(evs []store.Event) error {
		if n == 0 {
			started <- struct{}{}
		}
		for _, ev := range evs {
			if string(ev.Value) != fmt.Sprint(n) {
				t.Errorf("event %d is %s", n, ev.Value)
			}
			n++
		}
		if n == 30 {
			return enough
		}
		return nil
	})
	<-written
	// A watcher that keeps up sees all; one that does not is told so. It never sees a hole.
	if !errors.Is(err, enough) && !errors.Is(err, store.ErrCompacted) {
		t.Error(err)
	}
}
