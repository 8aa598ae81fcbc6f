package succession

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// site is a cluster's store with its authority, which lets members join, and a candidate that stands by with a copy of it.
type site struct {
	t         *testing.T
	store     store.Store
	auth      *auth.Authority
	joins     string // where members join
	replica   *Leadership
	candidate string // where the in-sync replica listens
}

func newSite(t *testing.T) *site {
	ctx := t.Context()
	s := &site{t: t}
	var err error
	if s.store, err = store.Open(ctx, "memory:", store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.store.Close() })
	if _, err := tier.OpenLife(ctx, s.store); err != nil {
		t.Fatal(err)
	}
	if s.auth, err = auth.OpenAuthority(ctx, auth.AuthorityConfig{Site: "harbour", Tier: wire.TierCluster, Store: s.store}); err != nil {
		t.Fatal(err)
	}
	srv, err := link.NewServer(link.ServerConfig{TLS: s.auth.ServerTLS(), Identify: s.auth.Identify, Handler: refuser{}, Join: s.auth.ServeJoin,
		Log:     slog.New(slog.DiscardHandler),
		Admit:   func(context.Context, wire.PeerIdentity, *wire.Hello) error { return errors.New("it lets members join") },
		Welcome: func(*link.Peer) (*wire.Welcome, error) { return nil, errors.New("it lets members join") }})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.joins = ln.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(ln) })
	t.Cleanup(func() { srv.Close(); wg.Wait() })

	member := s.enter(wire.TierSuccessor, "heir")
	s.replica = openLeadership(t)
	s.replica.opt.Link, s.replica.member = "127.0.0.1:0", member
	s.copy()
	b, err := s.replica.books(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.replica.core = lease.New(lease.Options{Me: wire.LeaseCandidate{Name: "heir"}, TTL: DefaultTTL, Patience: patience})
	s.replica.core.SetBooks(b)
	var serving sync.WaitGroup
	standing := s.replica.listen(ctx, &serving)
	if standing == nil {
		t.Fatal("it does not listen")
	}
	s.candidate = s.replica.addr.String()
	t.Cleanup(func() { standing.Close(); serving.Wait() })
	return s
}

func (s *site) enter(role wire.Tier, name string) *auth.Member {
	s.t.Helper()
	token, _, err := s.auth.CreateToken(s.t.Context(), auth.TokenOptions{Tier: role})
	if err != nil {
		s.t.Fatal(err)
	}
	to := auth.Dialing{Addrs: []string{s.joins}, Machine: "m-" + name, Boot: "b"}
	m, err := auth.Enter(s.t.Context(), auth.Entry{Dialing: to, Dir: s.t.TempDir(), Token: token, Tier: role, Name: name})
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// copy gives the candidate that stands by the store as it is now.
func (s *site) copy() {
	s.t.Helper()
	var dump bytes.Buffer
	if err := store.Dump(s.t.Context(), s.store, &dump); err != nil {
		s.t.Fatal(err)
	}
	if _, err := store.Adopt(s.t.Context(), s.replica.opt.Store, bytes.NewReader(dump.Bytes())); err != nil {
		s.t.Fatal(err)
	}
}

// say connects to a candidate as a member and says something. It gives the answer, or nil when the candidate ends the connection.
func (s *site) say(m *auth.Member, addr string, msg wire.Message) wire.Message {
	s.t.Helper()
	cfg, err := m.TLS()
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.NextProtos = []string{link.ProtoCandidate}
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return nil
	}
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	if err := frame.Write(conn, frame.NewCodec(), msg); err != nil {
		return nil
	}
	answer, _, err := frame.NewReader(conn, frame.NewCodec(), frame.MaxGreeting).Next()
	if err != nil {
		return nil
	}
	return answer
}

// offer is what a worker says that heard from the cluster last that the in-sync replica has everything, and is free.
func offer() *wire.Vote {
	return &wire.Vote{Term: 1, Holder: "first", LeaseTerm: 1, LeaseHolder: "first", InSync: []wire.LeaseCandidate{{Name: "heir"}}}
}

// TestStandingCandidateKnowsVoters: a machine that stands by takes the votes of the workers that its copy of the store names now, and not
// of those that it named when the machine began to listen: workers that joined since decide, and who was revoked does not.
func TestStandingCandidateKnowsVoters(t *testing.T) {
	s := newSite(t)
	stolen := s.enter(wire.TierWorker, "w1")
	s.copy()
	fresh := s.enter(wire.TierWorker, "w2")
	if err := s.auth.Revoke(t.Context(), wire.TierWorker, "w1", "ada", "stolen"); err != nil {
		t.Fatal(err)
	}
	value, err := json.Marshal([]string{"w2"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Commit(t.Context(), []store.Op{{Key: keyVoters, Value: value}}); err != nil {
		t.Fatal(err)
	}
	s.copy()
	b, err := s.replica.books(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.replica.mu.Lock()
	s.replica.core.SetBooks(b)
	s.replica.mu.Unlock()
	if m, ok := s.say(stolen, s.candidate, offer()).(*wire.Refuse); !ok || m.Code != wire.RefuseRevoked {
		t.Errorf("the revoked worker is answered with %+v", m)
	}
	if m, ok := s.say(fresh, s.candidate, offer()).(*wire.Ask); !ok || m.Candidate != "heir" {
		t.Errorf("the worker that joined is answered with %+v", m)
	}
}

// TestOnlySuccessorsGetTheStore: a worker that asks a candidate for the store gets nothing of it, nor does one that says that it is a
// successor, from a candidate that leads.
func TestOnlySuccessorsGetTheStore(t *testing.T) {
	s := newSite(t)
	worker := s.enter(wire.TierWorker, "w1")
	s.copy()
	if err := s.replica.alone(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := s.replica.authorityOf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.replica.Serves(a, s.replica.addr, func(string, wire.Message) {})
	ask := &wire.Follow{Addr: ":7444", Keyed: true}
	if m := s.say(worker, s.candidate, ask); m != nil {
		t.Errorf("a worker that asks for the store is answered with %+v", m)
	}
	other := s.enter(wire.TierSuccessor, "other")
	s.copy()
	if a, err = s.replica.authorityOf(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.replica.Serves(a, s.replica.addr, func(string, wire.Message) {})
	if m, ok := s.say(other, s.candidate, ask).(*wire.Followed); !ok {
		t.Errorf("a successor is answered with %+v", m)
	}
}

// TestCandidatesAreOfTheCluster: neither a worker that offers its vote nor a candidate that looks for a leader hears anybody at a
// candidate's address whose certificate is not the cluster's: not another worker's, not another successor's.
func TestCandidatesAreOfTheCluster(t *testing.T) {
	s := newSite(t)
	victim := s.enter(wire.TierWorker, "w1")
	for _, impostor := range []*auth.Member{s.enter(wire.TierWorker, "w2"), s.enter(wire.TierSuccessor, "other")} {
		own, err := impostor.TLS()
		if err != nil {
			t.Fatal(err)
		}
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: own.Certificates, NextProtos: []string{link.ProtoCandidate},
			MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				frame.Write(conn, frame.NewCodec(), &wire.Lease{Term: 9, Holder: "impostor", Seq: 1, TTL: 1000})
				frame.Write(conn, frame.NewCodec(), &wire.Followed{Term: 9, Holder: "impostor", Whole: true})
			}
		}()
		b, err := OpenVoter(t.TempDir(), victim, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		chosen := func() { t.Error("the worker found a cluster") }
		if err := b.offer(ctx, ln.Addr().String(), func() bool { return false }, chosen); err == nil || b.Term() != 0 {
			t.Errorf("the worker promised itself for term %d: %v", b.Term(), err)
		}
		if err := s.replica.follow(ctx, ln.Addr().String()); err == nil || Copied(s.replica.opt.Dir) {
			t.Errorf("the seat follows: %v", err)
		}
	}
}
