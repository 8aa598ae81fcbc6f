package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ErrDeposed says that this process no longer leads, or never did: another one may write.
var ErrDeposed = errors.New("another process leads")

// Electorate is the ability of a store that several processes can open at a time to have one of them lead. Stores that only
// one process can open have no need of it.
type Electorate interface {
	// Lead waits until this process leads. who names it for people. From then on every commit of this store succeeds only
	// while it does, and is ErrDeposed afterwards.
	Lead(ctx context.Context, who string) (*Leadership, error)
}

// leaseTTL is how long a leader that fell silent is waited for, in seconds. etcd takes 2 and more with its usual settings.
const leaseTTL = 3

// leaderCommitTime bounds a leader's commit; whether one that takes longer was done is not known.
const leaderCommitTime = 3 * time.Second

// leaderKey is the record that the leader holds, below the store's prefix. It goes with its lease.
const leaderKey = "meta/leader"

// Leadership ends when the process falls silent for leaseTTL, or resigns.
type Leadership struct {
	etcd  *etcd
	lease int64
	rev   int64 // at which the record was made

	mu     sync.Mutex
	mod    int64 // of the record's last change, which every commit must find
	unsure bool  // a commit was sent of which it is not known whether it was, or will be, done

	once sync.Once
	done chan struct{}
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Done is closed when the leadership has ended; commits fail from then on.
func (l *Leadership) Done() <-chan struct{} { return l.done }

func (l *Leadership) end() { l.once.Do(func() { close(l.done) }) }

// Resign ends the leadership at once, so that another process need not wait.
func (l *Leadership) Resign(ctx context.Context) error {
	l.end()
	l.stop()
	l.wg.Wait()
	return l.etcd.revoke(ctx, l.lease)
}

// int64s is a number that the gateway writes as text.
type int64s int64

func (n int64s) MarshalJSON() ([]byte, error) { return json.Marshal(strconv.FormatInt(int64(n), 10)) }

func (n *int64s) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := strconv.ParseInt(s, 10, 64)
	*n = int64s(v)
	return err
}

type etcdLease struct {
	ID  int64s `json:"ID"`
	TTL int64s `json:"TTL,omitempty"`
}

func (e *etcd) revoke(ctx context.Context, lease int64) error {
	return e.cli.call(ctx, "/v3/lease/revoke", false, etcdLease{ID: int64s(lease)}, &struct{}{})
}

// Lead implements Electorate: the leader is who made leaderKey, under a lease that must be kept alive.
func (e *etcd) Lead(ctx context.Context, who string) (*Leadership, error) {
	ctx, leave, err := e.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for {
		l, err := e.campaign(ctx, who)
		if l != nil {
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, e.error(ctx, "wait for leadership", ctx.Err())
		}
		var f *etcdFailure
		if errors.As(err, &f) && f.Code != codeUnavailable && f.Code != 0 {
			return nil, e.error(ctx, "wait for leadership", err)
		}
		e.awaitVacancy(ctx)
	}
}

// campaign tries once; without an error nil means that another process leads.
func (e *etcd) campaign(ctx context.Context, who string) (*Leadership, error) {
	key := []byte(e.prefix + leaderKey)
	var at etcdRangeResult
	if err := e.cli.call(ctx, "/v3/kv/range", false, etcdRange{Key: key}, &at); err != nil || len(at.KVs) > 0 {
		return nil, err
	}
	var lease etcdLease
	sent := time.Now()
	if err := e.cli.call(ctx, "/v3/lease/grant", true, etcdLease{TTL: leaseTTL}, &lease); err != nil {
		return nil, err
	}
	txn := etcdTxn{Compare: []etcdCompare{{Target: "CREATE", Result: "EQUAL", Key: key}},
		Success: []etcdOp{{Put: &etcdPut{Key: key, Value: []byte(who), Lease: int64s(lease.ID)}}}}
	var res etcdTxnResult
	err := e.cli.call(ctx, "/v3/kv/txn", true, txn, &res)
	if err != nil || !res.Succeeded {
		// An error may mean that it was done: with the lease the record goes, too.
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return nil, errors.Join(err, e.revoke(gone, int64(lease.ID)))
	}
	l := &Leadership{etcd: e, lease: int64(lease.ID), rev: res.Header.Revision, mod: res.Header.Revision, done: make(chan struct{})}
	var keep context.Context
	keep, l.stop = context.WithCancel(e.ctx)
	e.lead.Store(l)
	l.wg.Go(func() { l.keep(keep, sent) })
	return l, nil
}

// awaitVacancy waits for the end of another's leadership, or for a while.
func (e *etcd) awaitVacancy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	now, err := e.revision(ctx)
	if err == nil {
		vacant := errors.New("vacant")
		err = e.Watch(ctx, leaderKey, now, func(evs []Event) error {
			for _, ev := range evs {
				if ev.Deleted {
					return vacant
				}
			}
			return nil
		})
		if errors.Is(err, vacant) {
			return
		}
	}
	<-ctx.Done()
}

// keep renews the lease. Time counts from the sending of the last renewal that was answered: etcd counts from later.
func (l *Leadership) keep(ctx context.Context, renewed time.Time) {
	defer l.end()
	const ttl = leaseTTL * time.Second
	tick := time.NewTicker(ttl / 4)
	defer tick.Stop()
	over := time.NewTimer(time.Until(renewed.Add(ttl)))
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-tick.C:
		}
		sent := time.Now()
		try, cancel := context.WithDeadline(ctx, renewed.Add(ttl))
		var res struct {
			Result etcdLease    `json:"result"`
			Error  *etcdFailure `json:"error"`
		}
		once, stop := context.WithTimeout(try, ttl/4)
		err := l.etcd.cli.call(once, "/v3/lease/keepalive", false, etcdLease{ID: int64s(l.lease)}, &res)
		stop()
		cancel()
		switch {
		case err == nil && res.Error == nil && res.Result.TTL > 0:
			renewed = sent
			over.Reset(time.Until(renewed.Add(ttl)))
		case err == nil && res.Error == nil:
			return // etcd no longer knows the lease
		}
	}
}

// leads gives the comparison that a commit of a leader carries, and an error for one that no longer leads.
func (e *etcd) leads() (*etcdCompare, error) {
	l := e.lead.Load()
	if l == nil {
		return nil, nil
	}
	select {
	case <-l.done:
		return nil, fmt.Errorf("commit: %w", ErrDeposed)
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &etcdCompare{Target: "MOD", Result: "EQUAL", Key: l.key(), ModRevision: int64s(l.mod)}, nil
}

func (l *Leadership) key() []byte { return []byte(l.etcd.prefix + leaderKey) }

// doubt notes a commit that failed, unless etcd has surely refused it.
func (l *Leadership) doubt(err error) {
	var f *etcdFailure
	if errors.As(err, &f) && slices.Contains([]int{codeInvalid, codeExhausted, codeUnauthenticated}, f.Code) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure = true
}

// settle comes before a leader's reads. A commit that was given up may still be on its way to the members: done after the read, it would
// leave in the store what the reader does not know. The leader's record is changed first, and a commit that comes later does not find it
// as it expects.
func (e *etcd) settle(ctx context.Context) error {
	l := e.lead.Load()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unsure {
		select {
		case <-l.done:
			return nil // it writes nothing any more
		default:
		}
		err := l.renew(ctx)
		var f *etcdFailure
		switch {
		case err == nil:
			l.unsure = false
		case errors.As(err, &f) && f.Code == codeExhausted:
			return nil // nor is a late commit taken
		case errors.As(err, &f) && f.Code != codeUnavailable && f.Code != 0:
			return err
		case pause(ctx, 50*time.Millisecond) != nil:
			return err
		}
	}
	return nil
}

// renew changes the leader's record and notes the revision. A try of which the outcome is not known may be followed by another.
func (l *Leadership) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaderCommitTime)
	defer cancel()
	var at etcdRangeResult
	if err := l.etcd.cli.call(ctx, "/v3/kv/range", false, etcdRange{Key: l.key()}, &at); err != nil {
		return err
	}
	if len(at.KVs) == 0 || at.KVs[0].CreateRevision != l.rev {
		l.end()
		return nil
	}
	kv := at.KVs[0]
	var res etcdTxnResult
	err := l.etcd.cli.call(ctx, "/v3/kv/txn", true, etcdTxn{Compare: []etcdCompare{{Target: "MOD", Result: "EQUAL", Key: l.key(),
		ModRevision: int64s(kv.ModRevision)}}, Success: []etcdOp{{Put: &etcdPut{Key: l.key(), Value: kv.Value, Lease: int64s(l.lease)}}}}, &res)
	if err == nil && !res.Succeeded {
		err = errors.New("the leader's record was changed meanwhile")
	}
	if err == nil {
		l.mod = res.Header.Revision
	}
	return err
}
