package succession

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// voterFile holds what a worker has promised. It is written before the promise is sent.
const voterFile = "ballot.json"

// Voter keeps a worker's vote, and offer it to the candidates of its site when the cluster is out of touch.
type Voter struct {
	path   string
	member *auth.Member
	log    *slog.Logger

	mu    sync.Mutex
	voter *lease.Voter
	dead  error // the ballot cannot be written: nothing is promised any more
}

// OpenVoter reads what a worker has promised, from its data directory.
func OpenVoter(dir string, m *auth.Member, log *slog.Logger) (*Voter, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Voter{path: filepath.Join(dir, voterFile), member: m, log: log}
	var kept lease.VoterState
	data, err := os.ReadFile(b.path)
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("what this worker has promised: %w", err)
	}
	b.voter = lease.NewVoter(kept, time.Now(), DefaultTTL)
	return b, nil
}

// keptLocked reports whether what the voter says is on the disk, after it has written what is not: nothing else may be told.
func (b *Voter) keptLocked(changed bool) bool {
	if !changed && b.dead == nil {
		return true
	}
	data, err := json.Marshal(b.voter.VoterState)
	if err == nil {
		err = files.Replace(b.path, data, 0o600)
	}
	if b.dead = err; err != nil {
		b.log.Error("write down what is promised to the cluster", "err", err)
	}
	return err == nil
}

// Term is the highest one that the worker has promised itself for.
func (b *Voter) Term() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.voter.Term
}

// Lease answers a lease that came from an address, HOST:PORT.
func (b *Voter) Lease(l *wire.Lease, from string) *wire.Promise {
	l.At = complete(l.At, from)
	b.mu.Lock()
	defer b.mu.Unlock()
	p, save := b.voter.Lease(time.Now(), l)
	if !b.keptLocked(save) {
		return &wire.Promise{} // of no term: nobody counts on it
	}
	return p
}

// vote tells what the worker has written down.
func (b *Voter) vote() (*wire.Vote, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.keptLocked(false) {
		return nil, b.dead
	}
	return b.voter.Vote(time.Now()), nil
}

// ask answers a candidate that asks for the vote.
func (b *Voter) ask(a *wire.Ask) (*wire.Vote, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	answer, save := b.voter.Ask(time.Now(), a)
	if !b.keptLocked(save) {
		return nil, b.dead
	}
	return answer, nil
}

// complete gives an address without a host that of another.
func complete(addr, from string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" {
		return addr
	}
	if host, _, err = net.SplitHostPort(from); err != nil {
		return addr
	}
	return net.JoinHostPort(host, port)
}

// Candidates lists where the cluster may be, with who led last first.
func (b *Voter) Candidates() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.voter.Candidates() {
		if host, _, err := net.SplitHostPort(s.Addr); err == nil && host != "" {
			out = append(out, s.Addr)
		}
	}
	return out
}

// offerEvery is how often the vote is offered, to candidates that could not be reached or have hung up.
const offerEvery = 250 * time.Millisecond

// Run offers the vote to all candidates whenever the cluster is out of touch, until ctx ends. lost, of capacity 1, says that it may be from
// now on: nothing ticks while it is not. chosen is called when one of them leads.
func (b *Voter) Run(ctx context.Context, connected func() bool, lost <-chan struct{}, chosen func()) {
	next := time.NewTimer(offerEvery) // a worker that has just started is not out of touch yet
	defer next.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	offering := map[string]bool{}
	ended := make(chan string, 2+lease.MaxInSync)
	for {
		select {
		case <-ctx.Done():
			return
		case addr := <-ended:
			delete(offering, addr)
		case <-lost:
			next.Reset(0)
		case <-next.C:
			if connected() {
				continue // until lost
			}
			next.Reset(offerEvery)
			for _, addr := range b.Candidates() {
				if offering[addr] {
					continue
				}
				offering[addr] = true
				wg.Go(func() {
					err := b.offer(ctx, addr, connected, chosen)
					b.log.Debug("vote", "addr", addr, "err", err)
					select {
					case ended <- addr:
					case <-ctx.Done():
					}
				})
			}
		}
	}
}

// offer tells a candidate the vote and answers it, for as long as the cluster is out of touch.
func (b *Voter) offer(ctx context.Context, addr string, connected func() bool, chosen func()) error {
	cfg, err := b.member.TLS()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dial, stop := context.WithTimeout(ctx, silence)
	defer stop()
	raw, err := (&net.Dialer{}).DialContext(dial, "tcp", addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	raw.SetDeadline(time.Now().Add(silence))
	cfg.NextProtos = []string{link.ProtoCandidate}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(dial); err != nil {
		return err
	}
	raw.SetDeadline(time.Time{})
	codec := frame.NewCodec()
	var writing sync.Mutex
	say := func(msg wire.Message) error {
		writing.Lock()
		defer writing.Unlock()
		raw.SetWriteDeadline(time.Now().Add(silence))
		return frame.Write(conn, codec, msg)
	}
	tell := func() error {
		v, err := b.vote()
		if err != nil {
			return err
		}
		return say(v)
	}
	if err := tell(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		t := time.NewTicker(500 * time.Millisecond)
		defer t.Stop()
		for !connected() {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if tell() != nil {
				break
			}
		}
		cancel()
	})
	// A candidate that leads takes workers on the link and ends this.
	promised := false
	defer func() {
		if promised {
			chosen()
		}
	}()
	in := frame.NewReader(conn, codec, frame.MaxGreeting)
	for {
		msg, _, err := in.Next()
		if err != nil {
			return err
		}
		switch m := msg.(type) {
		case *wire.Ask:
			answer, err := b.ask(m)
			if err != nil {
				return err
			}
			if err := say(answer); err != nil {
				return err
			}
		case *wire.Lease:
			p := b.Lease(m, addr)
			if err := say(p); err != nil {
				return err
			}
			promised = promised || p.Term == m.Term && p.Holder == m.Holder
		case *wire.Refuse:
			return m
		}
	}
}
