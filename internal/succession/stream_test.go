package succession

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// TestLongCopy: a successor with a copy of another history, which happens to end at the leader's revision, acknowledges nothing until the
// whole copy is here, however long that takes, and is not silent meanwhile.
func TestLongCopy(t *testing.T) {
	leader := openLeadership(t)
	if _, err := leader.opt.Store.Commit(t.Context(), []store.Op{{Key: "k", Value: []byte("leader")}}); err != nil {
		t.Fatal(err)
	}
	var dump bytes.Buffer
	if err := store.Dump(t.Context(), leader.opt.Store, &dump); err != nil {
		t.Fatal(err)
	}
	last, err := store.Revision(t.Context(), leader.opt.Store)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		o := openLeadership(t)
		if _, err := o.opt.Store.Commit(t.Context(), []store.Op{{Key: "k", Value: []byte("astray")}}); err != nil {
			t.Fatal(err)
		}
		b, err := o.books(t.Context())
		if err != nil || b.Revision != last {
			t.Fatal(b, err)
		}
		o.core = lease.New(lease.Options{Me: wire.LeaseCandidate{Name: "b"}, TTL: DefaultTTL, Patience: patience})
		here, there := net.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- o.takeIn(t.Context(), here, "", bufio.NewReader(patient{here}), &wire.Followed{Term: 1, Holder: "a", Whole: true}, b)
		}()
		acks := make(chan int64, 100)
		go func() {
			defer close(acks)
			for {
				var a [8]byte
				there.SetReadDeadline(time.Now().Add(silence))
				if _, err := io.ReadFull(there, a[:]); err != nil {
					return
				}
				acks <- int64(binary.BigEndian.Uint64(a[:]))
			}
		}()
		put := func(kind byte, data []byte) {
			t.Helper()
			if err := writeItem(there, kind, data); err != nil {
				t.Fatal(err)
			}
		}
		alive := binary.AppendUvarint(nil, uint64(last))
		for range 20 {
			put(itemAlive, alive)
			time.Sleep(silence / 5)
		}
		half := dump.Len() / 2
		put(itemPart, dump.Bytes()[:half])
		for range 20 {
			put(itemAlive, alive)
			time.Sleep(silence / 5)
		}
		for range len(acks) {
			if a, ok := <-acks; !ok || a != 0 {
				t.Fatalf("it acknowledged revision %d, and goes on: %v", a, ok)
			}
		}
		put(itemPart, dump.Bytes()[half:])
		put(itemEnd, nil)
		for a := range acks {
			if a == last {
				break
			}
		}
		there.Close()
		<-ended
		if r, err := o.opt.Store.Get(t.Context(), "k"); err != nil || string(r.Value) != "leader" {
			t.Errorf("%q %v", r.Value, err)
		}
	})
}

// TestStreamAgain: a successor that connects again while its older connection has not ended yet is still given the store when that ends.
func TestStreamAgain(t *testing.T) {
	o, ctx := openLeadership(t), t.Context()
	id := wire.PeerIdentity{Tier: wire.TierSuccessor, Name: "b", Site: "harbour", Key: "key", Expires: time.Now().Add(time.Hour)}
	e, err := json.Marshal(auth.Enrolled{Tier: id.Tier, Name: id.Name, Key: id.Key, Expires: id.Expires})
	if err != nil {
		t.Fatal(err)
	}
	open := func() *auth.Authority {
		a, err := auth.OpenAuthority(ctx, auth.AuthorityConfig{Site: id.Site, Tier: wire.TierCluster, Store: o.opt.Store})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	open() // makes its CA
	if _, err := o.opt.Store.Commit(ctx, []store.Op{{Key: "auth/enrolled/successor/b", Value: e}}); err != nil {
		t.Fatal(err)
	}
	a := open()
	o.member = &auth.Member{}
	if err := o.alone(ctx); err != nil {
		t.Fatal(err)
	}
	o.Serves(a, nil, func(string, wire.Message) {})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	connect := func() (ended chan error, r *bufio.Reader) {
		t.Helper()
		there, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		there.SetDeadline(time.Now().Add(time.Minute))
		here, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ended = make(chan error, 1)
		ctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(ctx, func() { here.Close() })
		t.Cleanup(func() { cancel(); there.Close(); stop() })
		go func() {
			defer here.Close()
			ended <- o.lead(ctx, cancel, here, frame.NewCodec(), id, &wire.Follow{Addr: ":7444"})
		}()
		r = bufio.NewReader(there)
		if m, _, err := frame.NewReader(r, frame.NewCodec(), frame.MaxGreeting).Next(); err != nil {
			t.Fatal(err)
		} else if f, ok := m.(*wire.Followed); !ok || !f.Whole {
			t.Fatalf("%+v", m)
		}
		return ended, r
	}
	first, _ := connect()
	second, r := connect()
	select {
	case <-first:
	case <-time.After(time.Minute):
		t.Fatal("the older connection does not end")
	}
	if kind, _, err := readItem(r); err != nil || kind != itemPart {
		t.Error(kind, err)
	}
	o.mu.Lock()
	following := o.core.Following("b")
	o.mu.Unlock()
	if !following {
		t.Error("the end of the older connection ended the newer one's following")
	}
	select {
	case err := <-second:
		t.Error("the newer one ended:", err)
	default:
	}
}

// TestJoinedAndEnded: a candidate whose store is empty stands by, and begins no site of its own.
func TestJoinedAndEnded(t *testing.T) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	o, err := Open(t.Context(), Options{Dir: t.TempDir(), Store: st, Link: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	o.member = &auth.Member{}
	b, err := o.books(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if copied, err := o.copied(b); err != nil || !copied || !Copied(o.opt.Dir) {
		t.Errorf("%v %v, and after another start: %v", copied, err, Copied(o.opt.Dir))
	}
}

// TestExtendOwnHistory: nothing of another candidate's history goes into the store of a machine that leads, or that began a later term and
// stands by again.
func TestExtendOwnHistory(t *testing.T) {
	o, ctx := openLeadership(t), t.Context()
	o.member = &auth.Member{}
	change := func() (int64, error) {
		t.Error("the store was changed")
		return 0, nil
	}
	if err := o.alone(ctx); err != nil {
		t.Fatal(err)
	}
	term := o.Term()
	if _, err := o.extend(ctx, term, change); err == nil {
		t.Error("while it leads")
	}
	o.with(ctx, func(c *lease.Candidate, _ time.Time) { c.Resign("a test") })
	if _, err := o.extend(ctx, term-1, change); err == nil {
		t.Error("from an earlier term")
	}
}
