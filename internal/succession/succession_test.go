package succession

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

func openLeadership(t *testing.T) *Leadership {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	if _, err := tier.OpenLife(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	o, err := Open(t.Context(), Options{Dir: t.TempDir(), Store: st, Link: "0.0.0.0:7444"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestPosition finds where a copy ends within the history: in the present term, in an earlier one, beyond its end, or in one that
// never was.
func TestPosition(t *testing.T) {
	o, ctx := openLeadership(t), t.Context()
	put := func(n int) {
		t.Helper()
		for range n {
			if _, err := o.opt.Store.Commit(ctx, []store.Op{{Key: "k", Value: []byte("v")}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var ends []int64 // the last revision of the terms 1, 2, 4
	for _, term := range []uint64{2, 4, 5} {
		put(5)
		rev, err := store.Revision(ctx, o.opt.Store)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, rev)
		if _, err := o.beginTerm(ctx, term); err != nil {
			t.Fatal(err)
		}
	}
	put(5)
	last, _ := store.Revision(ctx, o.opt.Store)
	for _, c := range []struct {
		what           string
		term           uint64
		revision       int64
		common         int64
		orphan, follow bool
	}{
		{"nothing", 0, 0, 0, false, false},
		{"all", 5, last, last, false, true},
		{"of this reign, behind", 5, last - 2, last - 2, false, true},
		{"of this reign, ahead", 5, last + 3, last, true, false},
		{"of an earlier one, to its end", 4, ends[2], ends[2], false, true},
		{"of an earlier one, beyond its end", 4, ends[2] + 1, ends[2], true, false},
		{"of the one before, beyond its end", 2, ends[1] + 9, ends[1], true, false},
		{"of one that nobody held here", 3, ends[1] + 1, ends[1], true, false},
	} {
		common, orphan, follow, err := o.position(ctx, &wire.Follow{LeaseTerm: c.term, Revision: c.revision})
		if err != nil || common != c.common || orphan != c.orphan || follow != c.follow {
			t.Errorf("%s: up to %d, orphan %v, goes on %v, %v", c.what, common, orphan, follow, err)
		}
	}
}

// TestSetAside writes what only this machine has into a file, and names it.
func TestSetAside(t *testing.T) {
	o, ctx := openLeadership(t), t.Context()
	common, _ := store.Revision(ctx, o.opt.Store)
	if _, err := o.opt.Store.Commit(ctx, []store.Op{{Key: "app/x", Value: []byte(`{"a":1}`)}, {Key: "raw", Value: []byte{1, 2}}}); err != nil {
		t.Fatal(err)
	}
	last, err := o.opt.Store.Commit(ctx, []store.Op{{Key: "raw", Delete: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.setAside(ctx, common, last, 3); err != nil {
		t.Fatal(err)
	}
	note := readNote(o.opt.Dir)
	if len(note.Aside) != 1 {
		t.Fatalf("%+v", note)
	}
	path := filepath.Join(o.opt.Dir, note.Aside[0])
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"key":"app/x","value":{"a":1}`, `"key":"raw","bytes":"AQI="`, `"key":"raw","deleted":true`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestNotLeading: a store whose process does not lead refuses writes with a reason, before anything is written, and reads on.
func TestNotLeading(t *testing.T) {
	o, ctx := openLeadership(t), t.Context()
	s := o.Store()
	if _, err := s.Commit(ctx, []store.Op{{Key: "a", Value: []byte("1")}}); err != nil {
		t.Fatal("a site without successors:", err)
	}
	o.core = lease.New(lease.Options{Me: wire.LeaseCandidate{Name: "a"}, TTL: time.Second, Patience: time.Second})
	_, err := s.Commit(ctx, []store.Op{{Key: "a", Value: []byte("2")}})
	var e *skerry.Error
	if !errors.Is(err, store.ErrDeposed) || !errors.As(err, &e) || e.Code != skerry.CodeUnavailable || e.Hint == "" {
		t.Errorf("%v", err)
	}
	if r, err := s.Get(ctx, "a"); err != nil || string(r.Value) != "1" {
		t.Errorf("%q %v", r.Value, err)
	}
	lost, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := o.Lost(lost); !errors.Is(err, store.ErrDeposed) {
		t.Errorf("lost: %v", err)
	}
}

// TestVoter: a promise outlives the worker, and what cannot be written down is not promised.
func TestVoter(t *testing.T) {
	dir := t.TempDir()
	b, err := OpenVoter(dir, &auth.Member{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := b.Lease(&wire.Lease{Term: 4, Holder: "a", At: ":7444", Seq: 1, InSync: []wire.LeaseCandidate{{Name: "b", Addr: "192.0.2.2:7444"}}, TTL: 1000}, "192.0.2.1:7444")
	if p.Term != 4 || p.Seq != 1 {
		t.Fatalf("%+v", p)
	}
	if b, err = OpenVoter(dir, &auth.Member{}, nil); err != nil || b.Term() != 4 {
		t.Fatal(b, err)
	}
	if s := b.Candidates(); len(s) != 2 || s[0] != "192.0.2.1:7444" || s[1] != "192.0.2.2:7444" {
		t.Errorf("seats %v", s)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if p := b.Lease(&wire.Lease{Term: 5, Holder: "b", Seq: 1, TTL: 1000}, "192.0.2.2:7444"); p.Term != 0 {
		t.Errorf("promised without a disk: %+v", p)
	}
}

// TestVoteUnwritten: a vote that could not be written down is told to nobody, also not with the next offer.
func TestVoteUnwritten(t *testing.T) {
	dir := t.TempDir()
	b, err := OpenVoter(dir, &auth.Member{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Lease(&wire.Lease{Term: 4, Holder: "a", Seq: 1, InSync: []wire.LeaseCandidate{{Name: "b"}}, TTL: 1}, "192.0.2.1:7444")
	time.Sleep(2 * time.Millisecond) // the promise
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if v, err := b.ask(&wire.Ask{Term: 5, Candidate: "b"}); err == nil {
		t.Errorf("voted without a disk: %+v", v)
	}
	if v, err := b.vote(); err == nil {
		t.Errorf("told what is not written: %+v", v)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if v, err := b.vote(); err != nil || v.Term != 5 || v.Holder != "b" {
		t.Errorf("%+v %v", v, err)
	}
	if b, err = OpenVoter(dir, &auth.Member{}, nil); err != nil || b.Term() != 5 {
		t.Error("it was told before it was written:", b.Term(), err)
	}
}

// FuzzItems reads what goes to a successor: no panic, nothing longer than allowed, and what was read is written back the same.
func FuzzItems(f *testing.F) {
	var all bytes.Buffer
	for kind, data := range map[byte]string{itemChanges: "changes", itemAlive: "\x07", itemPart: "part", itemEnd: "", itemKey: "key"} {
		if err := writeItem(&all, kind, []byte(data)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(all.Bytes())
	f.Add([]byte{itemPart, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			kind, data, err := readItem(r)
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := writeItem(&again, kind, data); err != nil || len(data) > len(b) {
				t.Fatal(err, len(data))
			}
			if k, d, err := readItem(bufio.NewReader(&again)); err != nil || k != kind || !bytes.Equal(d, data) {
				t.Fatal(k, d, err)
			}
		}
	})
}

// TestFirstSuccessorIsSeen: a leader without successors does nothing until one enrols, and becomes a candidate itself then.
func TestFirstSuccessorIsSeen(t *testing.T) {
	s := newSite(t)
	if err := s.auth.Revoke(t.Context(), wire.TierSuccessor, "heir", "ada", "the site has none"); err != nil {
		t.Fatal(err)
	}
	o := openLeadership(t)
	to, err := net.ResolveTCPAddr("tcp", s.joins)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- o.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	o.Serves(s.auth, to, func(string, wire.Message) {})
	s.enter(wire.TierWorker, "w1")
	s.enter(wire.TierSuccessor, "second")
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		o.mu.Lock()
		core, changed := o.core, o.changed
		o.mu.Unlock()
		if core != nil {
			break
		}
		select {
		case <-changed:
		case <-within.Done():
			t.Fatal("nobody looked at who enrolled")
		}
	}
}
