package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// closeGrace is how long Close waits for running calls before it cuts them off.
const closeGrace = 5 * time.Second

// etcdPage is how many records one request asks for.
const etcdPage = 1000

// etcd is a Store in an etcd cluster, under a prefix. The servers must be started with --max-txn-ops=4096 and
// --max-request-bytes=10485760, or commits near the limits of this package are refused.
//
// Revisions are etcd's own and count for the whole server, so they have gaps when others use it too.
type etcd struct {
	cli    *clientv3.Client
	prefix string
	keep   int64

	ctx       context.Context // ends at Close, and with it every watch
	cancel    context.CancelFunc
	calls     context.Context // ends closeGrace later, if calls still run
	cutCalls  context.CancelFunc
	running   sync.RWMutex // held for reading by calls, for writing by Close
	closed    bool         // guarded by running
	commits   atomic.Int64
	compacter sync.WaitGroup
	busy      atomic.Bool // a compaction runs
}

func openEtcd(ctx context.Context, u *url.URL, o Options) (*etcd, error) {
	cfg := clientv3.Config{
		DialTimeout:          o.Timeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxCallSendMsgSize:   16 << 20,
		TLS:                  o.TLS,
		Logger:               zap.NewNop(),
		Context:              context.WithoutCancel(ctx),
	}
	scheme := "http"
	if u.Scheme == "etcds" || o.TLS != nil {
		scheme = "https"
	}
	for _, h := range strings.Split(u.Host, ",") {
		cfg.Endpoints = append(cfg.Endpoints, scheme+"://"+h)
	}
	if u.User != nil {
		cfg.Username = u.User.Username()
		cfg.Password, _ = u.User.Password()
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("store at etcd %s: %w", u.Host, err)
	}
	e := &etcd{cli: cli, keep: o.KeepRevisions}
	if p := strings.Trim(u.Path, "/"); p != "" {
		e.prefix = "/" + p + "/"
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.calls, e.cutCalls = context.WithCancel(context.WithoutCancel(ctx))
	first, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if _, err := cli.Get(first, e.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
		e.cancel()
		e.cutCalls()
		cli.Close()
		return nil, fmt.Errorf("store at etcd %s: no answer that helps within %v; check that a majority of its members runs and that address and credentials are right: %w", u.Host, o.Timeout, etcdError(err))
	}
	return e, nil
}

// enter begins a call; the context it gives ends with the store, after a grace.
func (e *etcd) enter(ctx context.Context) (context.Context, func(), error) {
	e.running.RLock()
	if e.closed {
		e.running.RUnlock()
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.calls, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil); e.running.RUnlock() }, nil
}

func (e *etcd) Get(ctx context.Context, key string) (Record, error) {
	ctx, leave, err := e.enter(ctx)
	if err != nil {
		return Record{}, err
	}
	defer leave()
	if key == "" {
		return Record{}, fmt.Errorf("%q: %w", key, ErrNotFound)
	}
	res, err := e.cli.Get(ctx, e.prefix+key)
	if err != nil {
		return Record{}, e.error(ctx, "read "+key, err)
	}
	if len(res.Kvs) == 0 {
		return Record{}, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	return e.record(res.Kvs[0]), nil
}

func (e *etcd) record(kv *mvccpb.KeyValue) Record {
	return Record{Key: string(kv.Key[len(e.prefix):]), Value: kv.Value, Revision: kv.ModRevision}
}

func (e *etcd) List(ctx context.Context, prefix string) (out []Record, rev int64, err error) {
	err = e.scan(ctx, prefix, func(r int64) error { rev = r; return nil }, func(r Record) error {
		out = append(out, r)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return out, rev, nil
}

func (e *etcd) snapshot(ctx context.Context, begin func(int64) error, each func(Record) error) error {
	return e.scan(ctx, "", begin, each)
}

// scan reads page after page at the revision of the first one.
func (e *etcd) scan(ctx context.Context, prefix string, begin func(int64) error, each func(Record) error) error {
	ctx, leave, err := e.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	from, end := e.prefix+prefix, prefixEnd(e.prefix+prefix)
	if from == "" {
		from = "\x00"
	}
	if end == "" {
		end = "\x00" // etcd's word for no end
	}
	var rev int64
	for {
		res, err := e.cli.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(etcdPage), clientv3.WithRev(rev))
		if err != nil {
			return e.error(ctx, "list", err)
		}
		if rev == 0 {
			rev = res.Header.Revision
			if err := begin(rev); err != nil {
				return err
			}
		}
		for _, kv := range res.Kvs {
			if err := each(e.record(kv)); err != nil {
				return err
			}
		}
		if !res.More {
			return nil
		}
		from = string(res.Kvs[len(res.Kvs)-1].Key) + "\x00"
	}
}

func (e *etcd) Commit(ctx context.Context, ops []Op) (int64, error) {
	if err := checkOps(ops); err != nil {
		return 0, err
	}
	ctx, leave, err := e.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	var conds []clientv3.Cmp
	var then, otherwise []clientv3.Op
	for _, op := range ops {
		key := e.prefix + op.Key
		if op.Expect != nil {
			conds = append(conds, clientv3.Compare(clientv3.ModRevision(key), "=", *op.Expect))
			otherwise = append(otherwise, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		}
		if op.Delete {
			then = append(then, clientv3.OpDelete(key))
		} else {
			then = append(then, clientv3.OpPut(key, string(op.Value)))
		}
	}
	res, err := e.cli.Txn(ctx).If(conds...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return 0, e.error(ctx, "commit", err)
	}
	if !res.Succeeded {
		return 0, e.conflict(ops, res.Responses)
	}
	e.afterCommit(res.Header.Revision)
	return res.Header.Revision, nil
}

func (e *etcd) conflict(ops []Op, found []*etcdserverpb.ResponseOp) error {
	for _, op := range ops {
		if op.Expect == nil {
			continue
		}
		var have int64
		if kvs := found[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
			have = kvs[0].ModRevision
		}
		found = found[1:]
		if have != *op.Expect {
			return conflict(op, have)
		}
	}
	return ErrConflict
}

// afterCommit compacts now and then, beside the commits.
func (e *etcd) afterCommit(rev int64) {
	if e.keep < 0 || e.commits.Add(1)%(e.keep/10+1) != 0 || rev <= e.keep || !e.busy.CompareAndSwap(false, true) {
		return
	}
	e.compacter.Go(func() {
		defer e.busy.Store(false)
		// Another writer may have been quicker; a failure is made good by the next one.
		_, _ = e.cli.Compact(e.ctx, rev-e.keep)
	})
}

func (e *etcd) Compact(ctx context.Context, revision int64) error {
	ctx, leave, err := e.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	res, err := e.cli.Get(ctx, e.prefix+"x", clientv3.WithCountOnly())
	if err != nil {
		return e.error(ctx, "compact", err)
	}
	_, err = e.cli.Compact(ctx, min(revision, res.Header.Revision))
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return e.error(ctx, "compact", err)
	}
	return nil
}

func (e *etcd) Watch(ctx context.Context, prefix string, from int64, fn func([]Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(ErrClosed) })()
	if e.ctx.Err() != nil {
		return ErrClosed
	}
	res, err := e.cli.Get(ctx, e.prefix+prefix+"x", clientv3.WithCountOnly())
	if err != nil {
		return e.error(ctx, "watch", err)
	}
	if from > res.Header.Revision {
		return ErrCompacted
	}
	for {
		if from, err = e.watchOnce(ctx, prefix, from, fn); err != nil {
			return err
		}
	}
}

// watchOnce watches until something ends it; without an error it is to be begun again after the revision it gives.
func (e *etcd) watchOnce(ctx context.Context, prefix string, from int64, fn func([]Event) error) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(from + 1)}
	// A member cut off from the others would be silent forever: better that it ends the watch.
	for res := range e.cli.Watch(clientv3.WithRequireLeader(ctx), e.prefix+prefix, opts...) {
		if res.CompactRevision > 0 {
			return from, ErrCompacted
		}
		if err := res.Err(); err != nil {
			if errors.Is(err, rpctypes.ErrNoLeader) {
				return from, pause(ctx, time.Second)
			}
			return from, e.error(ctx, "watch", err)
		}
		var evs []Event
		for _, ev := range res.Events {
			r := e.record(ev.Kv)
			if ev.Type == clientv3.EventTypeDelete {
				r.Value = nil
			}
			evs = append(evs, Event{Record: r, Deleted: ev.Type == clientv3.EventTypeDelete})
			from = max(from, r.Revision)
		}
		if len(evs) == 0 {
			continue
		}
		if err := fn(slices.Clip(evs)); err != nil {
			return from, err
		}
	}
	if ctx.Err() != nil {
		return from, e.error(ctx, "watch", ctx.Err())
	}
	return from, pause(ctx, 100*time.Millisecond)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *etcd) error(ctx context.Context, what string, err error) error {
	switch {
	case e.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%s: %w", what, etcdError(err))
}

func etcdError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: etcd's quota is used up; run etcdctl compact, defrag and alarm disarm, or raise --quota-backend-bytes: %w", ErrFull, err)
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: %w", ErrCompacted, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%w: start etcd with --max-txn-ops=4096 --max-request-bytes=10485760: %w", ErrTooLarge, err)
	}
	return err
}

func (e *etcd) Close() error {
	e.cancel()
	grace := time.AfterFunc(closeGrace, e.cutCalls)
	defer grace.Stop()
	defer e.cutCalls()
	e.running.Lock()
	defer e.running.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.compacter.Wait()
	if err := e.cli.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
