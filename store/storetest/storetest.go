// Package storetest holds the suite that every store.Store passes. Tests import it, and nobody else.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/store"
)

// watchdog ends a test that hangs; no test asserts a time.
const watchdog = time.Minute

// Run runs the suite. open gives an empty store; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *env)
	}{
		{"Get", testGet},
		{"List", testList},
		{"Prefixes", testPrefixes},
		{"Expect", testExpect},
		{"Atomic", testAtomic},
		{"Delete", testDelete},
		{"EmptyCommit", testEmptyCommit},
		{"Limits", testLimits},
		{"LargeValues", testLargeValues},
		{"Revisions", testRevisions},
		{"WatchOrder", testWatchOrder},
		{"WatchFromPast", testWatchFromPast},
		{"WatchWhole", testWatchWhole},
		{"WatchPrefix", testWatchPrefix},
		{"WatchEnds", testWatchEnds},
		{"WatchFuture", testWatchFuture},
		{"WatchUsesStore", testWatchUsesStore},
		{"Compact", testCompact},
		{"CompactLive", testCompactLive},
		{"Concurrent", testConcurrent},
		{"ConcurrentSameKey", testConcurrentSameKey},
		{"Cancel", testCancel},
		{"Close", testClose},
		{"CloseWaits", testCloseWaits},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			ctx, cancel := context.WithTimeout(context.Background(), watchdog)
			defer cancel()
			e := &env{ctx: ctx, s: open(t)}
			c.test(t, e)
			if err := e.s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			noLeak(t, before)
		})
	}
}

// RunDurable runs what only a store that outlives its process passes. open gives the same store each time.
func RunDurable(t *testing.T, open func(t *testing.T) store.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	defer cancel()
	e := &env{ctx: ctx, s: open(t)}
	first := e.put(t, "a", "1")
	e.put(t, "b", "2")
	last := e.commit(t, store.Op{Key: "b", Delete: true}, store.Op{Key: "c", Value: []byte("3")})
	if err := e.s.Close(); err != nil {
		t.Fatal(err)
	}
	e.s = open(t)
	defer e.s.Close()
	rs, rev, err := e.s.List(ctx, "")
	if err != nil || rev != last {
		t.Fatalf("after re-opening: revision %d, want %d (%v)", rev, last, err)
	}
	want(t, rs, "a=1", "c=3")
	if rs[0].Revision != first || rs[1].Revision != last {
		t.Errorf("revisions changed over re-opening: %+v", rs)
	}
	evs := e.watchN(t, "", first, 3)
	if got := eventText(evs); got != "b=2 -b c=3" {
		t.Errorf("history after re-opening: %s", got)
	}
	if next := e.put(t, "d", "4"); next <= last {
		t.Errorf("revision %d after re-opening is not above %d", next, last)
	}
}

type env struct {
	ctx context.Context
	s   store.Store
}

func (e *env) commit(t *testing.T, ops ...store.Op) int64 {
	t.Helper()
	rev, err := e.s.Commit(e.ctx, ops)
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return rev
}

func (e *env) put(t *testing.T, key, value string) int64 {
	t.Helper()
	return e.commit(t, store.Op{Key: key, Value: []byte(value)})
}

func (e *env) list(t *testing.T, prefix string) []store.Record {
	t.Helper()
	rs, _, err := e.s.List(e.ctx, prefix)
	if err != nil {
		t.Fatalf("List %q: %v", prefix, err)
	}
	return rs
}

// watchN gives the first n events after from.
func (e *env) watchN(t *testing.T, prefix string, from int64, n int) []store.Event {
	t.Helper()
	var evs []store.Event
	enough := errors.New("enough")
	err := e.s.Watch(e.ctx, prefix, from, func(es []store.Event) error {
		evs = append(evs, es...)
		if len(evs) >= n {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("Watch: %v, after %d of %d events", err, len(evs), n)
	}
	return evs
}

func want(t *testing.T, rs []store.Record, pairs ...string) {
	t.Helper()
	var got []string
	for _, r := range rs {
		got = append(got, r.Key+"="+string(r.Value))
	}
	if strings.Join(got, " ") != strings.Join(pairs, " ") {
		t.Errorf("records %q, want %q", got, pairs)
	}
}

func eventText(evs []store.Event) string {
	var out []string
	for _, e := range evs {
		if e.Deleted {
			out = append(out, "-"+e.Key+string(e.Value))
		} else {
			out = append(out, e.Key+"="+string(e.Value))
		}
	}
	return strings.Join(out, " ")
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func expect(rev int64) *int64 { return &rev }

func testGet(t *testing.T, e *env) {
	_, err := e.s.Get(e.ctx, "app/a")
	is(t, err, store.ErrNotFound)
	_, err = e.s.Get(e.ctx, "")
	is(t, err, store.ErrNotFound)
	rev := e.put(t, "app/a", "one")
	r, err := e.s.Get(e.ctx, "app/a")
	if err != nil || r.Key != "app/a" || string(r.Value) != "one" || r.Revision != rev {
		t.Errorf("got %+v, %v", r, err)
	}
	rev = e.put(t, "app/a", "")
	if r, err = e.s.Get(e.ctx, "app/a"); err != nil || len(r.Value) != 0 || r.Revision != rev {
		t.Errorf("empty value: got %+v, %v", r, err)
	}
	_, err = e.s.Get(e.ctx, "app/")
	is(t, err, store.ErrNotFound)
}

func testList(t *testing.T, e *env) {
	rs, rev0, err := e.s.List(e.ctx, "")
	if err != nil || len(rs) != 0 {
		t.Fatalf("a new store lists %v, %v", rs, err)
	}
	for _, k := range []string{"b/2", "a/1", "b/10", "b/1", "c"} {
		e.put(t, k, k)
	}
	last := e.put(t, "c", "C")
	rs, rev, err := e.s.List(e.ctx, "b/")
	if err != nil || rev != last || rev <= rev0 {
		t.Errorf("revision %d, want %d (%v)", rev, last, err)
	}
	want(t, rs, "b/1=b/1", "b/10=b/10", "b/2=b/2")
	want(t, e.list(t, ""), "a/1=a/1", "b/1=b/1", "b/10=b/10", "b/2=b/2", "c=C")
}

func testPrefixes(t *testing.T, e *env) {
	keys := []string{"a", "a/", "a/b", "a/b/c", "a/bc", "a0", "a\x7f", "aé", "a\U0010ffff", "a\U0010ffffz", "b", "%", "_", "a%", "A"}
	for _, k := range keys {
		e.put(t, k, "v")
	}
	for _, prefix := range append(keys, "", "a/b/", "z", "é", "\U0010ffff", "\xff", "a\xff", "a\xf4") {
		n := 0
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				n++
			}
		}
		rs := e.list(t, prefix)
		if len(rs) != n {
			t.Errorf("prefix %q lists %d records, want %d: %v", prefix, len(rs), n, rs)
		}
		for i, r := range rs {
			if !strings.HasPrefix(r.Key, prefix) || i > 0 && r.Key <= rs[i-1].Key {
				t.Errorf("prefix %q: %q is out of place", prefix, r.Key)
			}
		}
	}
}

func testExpect(t *testing.T, e *env) {
	rev := e.commit(t, store.Op{Key: "a", Value: []byte("1"), Expect: expect(0)})
	_, err := e.s.Commit(e.ctx, []store.Op{{Key: "a", Value: []byte("x"), Expect: expect(0)}})
	is(t, err, store.ErrConflict)
	if err != nil && !strings.Contains(err.Error(), "a") {
		t.Errorf("the error does not name the key: %v", err)
	}
	_, err = e.s.Commit(e.ctx, []store.Op{{Key: "a", Value: []byte("x"), Expect: expect(rev + 1)}})
	is(t, err, store.ErrConflict)
	_, err = e.s.Commit(e.ctx, []store.Op{{Key: "none", Value: []byte("x"), Expect: expect(rev)}})
	is(t, err, store.ErrConflict)
	rev2 := e.commit(t, store.Op{Key: "a", Value: []byte("2"), Expect: expect(rev)})
	_, err = e.s.Commit(e.ctx, []store.Op{{Key: "a", Delete: true, Expect: expect(rev)}})
	is(t, err, store.ErrConflict)
	e.commit(t, store.Op{Key: "a", Delete: true, Expect: expect(rev2)})
	e.commit(t, store.Op{Key: "a", Value: []byte("3"), Expect: expect(0)})
	want(t, e.list(t, ""), "a=3")
}

func testAtomic(t *testing.T, e *env) {
	rev := e.put(t, "b", "old")
	_, err := e.s.Commit(e.ctx, []store.Op{
		{Key: "a", Value: []byte("new")}, {Key: "b", Delete: true}, {Key: "c", Value: []byte("new"), Expect: expect(rev)}})
	is(t, err, store.ErrConflict)
	want(t, e.list(t, ""), "b=old")
	got := e.commit(t, store.Op{Key: "a", Value: []byte("new")}, store.Op{Key: "b", Delete: true}, store.Op{Key: "c", Value: []byte("new")})
	rs := e.list(t, "")
	want(t, rs, "a=new", "c=new")
	for _, r := range rs {
		if r.Revision != got {
			t.Errorf("%s has revision %d, its commit %d", r.Key, r.Revision, got)
		}
	}
}

func testDelete(t *testing.T, e *env) {
	rev := e.put(t, "a", "1")
	if same := e.commit(t, store.Op{Key: "none", Delete: true}); same != rev {
		t.Errorf("deleting nothing moved the revision from %d to %d", rev, same)
	}
	e.commit(t, store.Op{Key: "none", Delete: true, Expect: expect(0)})
	gone := e.commit(t, store.Op{Key: "a", Delete: true}, store.Op{Key: "none", Delete: true})
	if gone <= rev {
		t.Errorf("a deletion has revision %d, after %d", gone, rev)
	}
	_, err := e.s.Get(e.ctx, "a")
	is(t, err, store.ErrNotFound)
	if got := eventText(e.watchN(t, "", rev, 1)); got != "-a" {
		t.Errorf("events %q", got)
	}
}

func testEmptyCommit(t *testing.T, e *env) {
	rev := e.put(t, "a", "1")
	if same := e.commit(t); same != rev {
		t.Errorf("an empty commit gives %d, want %d", same, rev)
	}
}

func testLimits(t *testing.T, e *env) {
	for name, c := range map[string]struct {
		ops  []store.Op
		want error
	}{
		"empty key":     {[]store.Op{{}}, store.ErrInvalid},
		"leading slash": {[]store.Op{{Key: "/a"}}, store.ErrInvalid},
		"NUL":           {[]store.Op{{Key: "a\x00b"}}, store.ErrInvalid},
		"not UTF-8":     {[]store.Op{{Key: "a\xff"}}, store.ErrInvalid},
		"twice":         {[]store.Op{{Key: "a"}, {Key: "a", Delete: true}}, store.ErrInvalid},
		"long key":      {[]store.Op{{Key: strings.Repeat("k", store.MaxKey+1)}}, store.ErrTooLarge},
		"large value":   {[]store.Op{{Key: "a", Value: make([]byte, store.MaxValue+1)}}, store.ErrTooLarge},
		"many":          {make([]store.Op, store.MaxOps+1), store.ErrTooLarge},
	} {
		_, err := e.s.Commit(e.ctx, c.ops)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	var ops []store.Op
	for i := range store.MaxCommit/store.MaxValue + 1 {
		ops = append(ops, store.Op{Key: fmt.Sprint(i), Value: make([]byte, store.MaxValue)})
	}
	_, err := e.s.Commit(e.ctx, ops)
	is(t, err, store.ErrTooLarge)
	want(t, e.list(t, ""))

	ops = nil
	for i := range store.MaxOps {
		ops = append(ops, store.Op{Key: fmt.Sprintf("k%05d", i), Value: []byte("v"), Expect: expect(0)})
	}
	rev := e.commit(t, ops...)
	if rs := e.list(t, "k"); len(rs) != store.MaxOps {
		t.Errorf("%d records of %d", len(rs), store.MaxOps)
	}
	if evs := e.watchN(t, "", rev-1, store.MaxOps); len(evs) != store.MaxOps {
		t.Errorf("%d events of %d", len(evs), store.MaxOps)
	}
	e.put(t, strings.Repeat("k", store.MaxKey), "v")
}

func testLargeValues(t *testing.T, e *env) {
	before := e.put(t, "small", "v")
	var ops []store.Op
	for i := range 7 {
		v := bytes.Repeat([]byte{byte(i), 0, 0xff}, store.MaxValue/3)
		ops = append(ops, store.Op{Key: fmt.Sprint("large/", i), Value: v})
	}
	e.commit(t, ops...)
	for i, ev := range e.watchN(t, "large/", before, len(ops)) {
		if !bytes.Equal(ev.Value, ops[i].Value) {
			t.Errorf("event %d carries another value", i)
		}
	}
	for i, r := range e.list(t, "large/") {
		if !bytes.Equal(r.Value, ops[i].Value) {
			t.Errorf("record %d has another value", i)
		}
	}
}

func testRevisions(t *testing.T, e *env) {
	last := int64(0)
	for i := range 50 {
		rev := e.put(t, fmt.Sprint(i%7), fmt.Sprint(i))
		if rev <= last {
			t.Fatalf("revision %d after %d", rev, last)
		}
		last = rev
		if _, at, err := e.s.List(e.ctx, "none"); err != nil || at != rev {
			t.Fatalf("List says revision %d after a commit at %d (%v)", at, rev, err)
		}
	}
}

func testConcurrent(t *testing.T, e *env) {
	const writers, each = 16, 25
	_, start, err := e.s.List(e.ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	acked := map[string]int64{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				k1, k2 := fmt.Sprintf("w%d/%d/a", w, i), fmt.Sprintf("w%d/%d/b", w, i)
				ops := []store.Op{{Key: k1, Value: []byte("v"), Expect: expect(0)}, {Key: k2, Value: []byte("v")}}
				if i%5 == 4 { // a conflict amid others harms none
					bad := append(ops, store.Op{Key: fmt.Sprintf("w%d/0/a", w), Expect: expect(0)})
					if _, err := e.s.Commit(e.ctx, bad); !errors.Is(err, store.ErrConflict) {
						t.Errorf("%s: %v, want a conflict", k1, err)
					}
				}
				rev, err := e.s.Commit(e.ctx, ops)
				if err != nil {
					t.Errorf("%s: %v", k1, err)
					return
				}
				mu.Lock()
				acked[k1], acked[k2] = rev, rev
				mu.Unlock()
				if r, err := e.s.Get(e.ctx, k2); err != nil || r.Revision != rev {
					t.Errorf("own write %s not seen: %+v, %v", k2, r, err)
				}
			}
		})
	}
	evs := e.watchN(t, "", start, writers*each*2)
	wg.Wait()
	if len(evs) != len(acked) {
		t.Errorf("%d events for %d writes", len(evs), len(acked))
	}
	for i := range evs {
		if evs[i].Revision != acked[evs[i].Key] {
			t.Errorf("%s: event at %d, acknowledged at %d", evs[i].Key, evs[i].Revision, acked[evs[i].Key])
		}
		if i > 0 && evs[i].Revision < evs[i-1].Revision {
			t.Errorf("revision %d came after %d", evs[i].Revision, evs[i-1].Revision)
		}
	}
	perRev := map[int64]int{}
	for _, ev := range evs {
		perRev[ev.Revision]++
	}
	for rev, n := range perRev {
		if n != 2 {
			t.Errorf("revision %d has %d writes, each commit had 2", rev, n)
		}
	}
}

func testConcurrentSameKey(t *testing.T, e *env) {
	e.put(t, "n", "")
	var wg sync.WaitGroup
	const writers, each = 8, 10
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				r, err := e.s.Get(e.ctx, "n")
				if err != nil {
					t.Error(err)
					return
				}
				_, err = e.s.Commit(e.ctx, []store.Op{{Key: "n", Value: append(bytes.Clone(r.Value), 'x'), Expect: &r.Revision}})
				if err == nil {
					done++
				} else if !errors.Is(err, store.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if r, err := e.s.Get(e.ctx, "n"); err != nil || len(r.Value) != writers*each {
		t.Errorf("%d increments survived of %d (%v)", len(r.Value), writers*each, err)
	}
}

func testCancel(t *testing.T, e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.s.Commit(ctx, []store.Op{{Key: "a", Value: []byte("v")}})
	is(t, err, context.Canceled)
	_, _, err = e.s.List(ctx, "")
	is(t, err, context.Canceled)
	_, err = e.s.Get(ctx, "a")
	is(t, err, context.Canceled)
	is(t, e.s.Watch(ctx, "", 0, func([]store.Event) error { return nil }), context.Canceled)
	want(t, e.list(t, ""))
}

func testClose(t *testing.T, e *env) {
	rev := e.put(t, "a", "1")
	ended := make(chan error, 1)
	go func() {
		ended <- e.s.Watch(e.ctx, "", rev, func([]store.Event) error { return nil })
	}()
	for range 2 {
		if err := e.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	is(t, <-ended, store.ErrClosed)
	_, err := e.s.Get(e.ctx, "a")
	is(t, err, store.ErrClosed)
	_, _, err = e.s.List(e.ctx, "")
	is(t, err, store.ErrClosed)
	_, err = e.s.Commit(e.ctx, []store.Op{{Key: "a"}})
	is(t, err, store.ErrClosed)
	is(t, e.s.Watch(e.ctx, "", rev, func([]store.Event) error { return nil }), store.ErrClosed)
}

func testCloseWaits(t *testing.T, e *env) {
	var wg sync.WaitGroup
	begun := make(chan struct{}, 8)
	for i := range 8 {
		wg.Go(func() {
			begun <- struct{}{}
			if _, err := e.s.Commit(e.ctx, []store.Op{{Key: fmt.Sprint(i), Value: []byte("v")}}); err != nil {
				is(t, err, store.ErrClosed)
			}
		})
	}
	for range 8 {
		<-begun
	}
	if err := e.s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// noLeak waits until the goroutines of a closed store have gone.
func noLeak(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(watchdog)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("goroutines left behind:\n%s", buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
}
