package succession

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// review takes successors that have joined into account, and workers that come and go.
func (o *Leadership) review(ctx context.Context) error {
	o.mu.Lock()
	authority, addr, core := o.auth, o.addr, o.core
	o.mu.Unlock()
	if authority == nil {
		return nil
	}
	var workers, successors []string
	for _, e := range authority.List() {
		switch e.Tier {
		case wire.TierWorker:
			workers = append(workers, e.Name)
		case wire.TierSuccessor:
			successors = append(successors, e.Name)
		}
	}
	if core == nil {
		if len(successors) == 0 {
			return nil
		}
		if err := o.takeCandidate(ctx, authority, addr, successors); err != nil {
			return fmt.Errorf("a seat for this machine among the successors: %w", err)
		}
		return o.alone(ctx)
	}
	books, err := o.books(ctx)
	if err != nil {
		return err
	}
	if err := o.saveCandidates(ctx); err != nil {
		return err
	}
	var next []string
	o.with(ctx, func(c *lease.Candidate, _ time.Time) {
		c.SetOrder(books.Order)
		var want []string
		for _, w := range workers {
			if o.linked[w] || slices.Contains(books.Voters, w) {
				want = append(want, w)
			}
		}
		var ok bool
		if next, ok = c.Council(want); ok {
			c.Counts(next, math.MaxInt64)
		} else {
			next = nil
		}
	})
	if next == nil {
		return nil
	}
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	rev, err := o.opt.Store.Commit(ctx, []store.Op{{Key: keyVoters, Value: value}})
	o.with(ctx, func(c *lease.Candidate, _ time.Time) {
		if err != nil {
			c.Resign("its store takes no writes")
			return
		}
		c.Counted(rev)
		c.Committed(rev)
	})
	return err
}

// saveCandidates writes down where the candidates listen, for those who will look for the one that leads.
func (o *Leadership) saveCandidates(ctx context.Context) error {
	o.mu.Lock()
	if o.core.State() != lease.Leading {
		o.mu.Unlock()
		return nil
	}
	candidates := []wire.LeaseCandidate{o.candidate()}
	for name, l := range o.lags {
		candidates = append(candidates, wire.LeaseCandidate{Name: name, Addr: l.addr})
	}
	o.mu.Unlock()
	slices.SortFunc(candidates, func(a, b wire.LeaseCandidate) int { return strings.Compare(a.Name, b.Name) })
	value, err := json.Marshal(candidates)
	if err != nil {
		return err
	}
	rec, err := o.opt.Store.Get(ctx, keyCandidates)
	if err == nil && bytes.Equal(rec.Value, value) {
		return nil
	}
	rev, err := o.opt.Store.Commit(ctx, []store.Op{{Key: keyCandidates, Value: value}})
	if err == nil {
		o.with(ctx, func(c *lease.Candidate, _ time.Time) { c.Committed(rev) })
	}
	return err
}

// takeCandidate gives the machine that leads an identity among the successors, for the day on which it comes back as one.
func (o *Leadership) takeCandidate(ctx context.Context, authority *auth.Authority, addr *net.TCPAddr, taken []string) error {
	if o.member != nil {
		return nil
	}
	host, err := os.Hostname()
	if err != nil || skerry.CheckName(host) != nil {
		host = "first"
	}
	name := host
	for i := 2; slices.Contains(taken, name); i++ {
		name = fmt.Sprintf("%s-%d", host, i)
	}
	token, _, err := authority.CreateToken(ctx, auth.TokenOptions{Tier: wire.TierSuccessor, Name: name, TTL: time.Minute, By: "cluster"})
	if err != nil {
		return err
	}
	to := *addr
	if to.IP.IsUnspecified() {
		to.IP = net.IPv4(127, 0, 0, 1)
		if addr.IP.To4() == nil && addr.IP.Equal(net.IPv6unspecified) {
			to.IP = net.IPv6loopback
		}
	}
	m, err := auth.Enter(ctx, auth.Entry{Dialing: auth.Dialing{Addrs: []string{to.String()}, Machine: o.opt.Machine, Boot: o.opt.Boot,
		Timeout: 5 * time.Second},
		Dir: filepath.Join(o.opt.Dir, candidateDir), Token: token, Tier: wire.TierSuccessor, Name: name, Version: o.opt.Version})
	if err != nil {
		return err
	}
	o.member = m
	return nil
}
