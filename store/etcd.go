package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
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
	cli    *etcdClient
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
	busy      atomic.Bool                // a compaction runs
	lead      atomic.Pointer[Leadership] // nil: it need not lead
}

func openEtcd(ctx context.Context, at *url.URL, opt Options) (*etcd, error) {
	e := &etcd{cli: newEtcdClient(at, opt), keep: opt.KeepRevisions}
	if p := strings.Trim(at.Path, "/"); p != "" {
		e.prefix = "/" + p + "/"
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.calls, e.cutCalls = context.WithCancel(context.WithoutCancel(ctx))
	first, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()
	for {
		_, err := e.revision(first)
		if err == nil {
			return e, nil
		}
		var f *etcdFailure
		if errors.As(err, &f) && f.Code != codeUnavailable || pause(first, 50*time.Millisecond) != nil {
			e.cancel()
			e.cutCalls()
			e.cli.close()
			return nil, fmt.Errorf("store at etcd %s: no answer that helps within %v; check that a majority of its members runs and that address and credentials are right: %w", at.Host, opt.Timeout, etcdError(err))
		}
	}
}

// revision asks for the present one.
func (e *etcd) revision(ctx context.Context) (int64, error) {
	var res etcdRangeResult
	err := e.cli.call(ctx, "/v3/kv/range", false, etcdRange{Key: []byte(e.prefix + "x"), CountOnly: true}, &res)
	return res.Header.Revision, err
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
	if err := e.settle(ctx); err != nil {
		return Record{}, e.error(ctx, "read "+key, err)
	}
	if key == "" {
		return Record{}, fmt.Errorf("%q: %w", key, ErrNotFound)
	}
	var res etcdRangeResult
	if err := e.cli.call(ctx, "/v3/kv/range", false, etcdRange{Key: []byte(e.prefix + key)}, &res); err != nil {
		return Record{}, e.error(ctx, "read "+key, err)
	}
	if len(res.KVs) == 0 {
		return Record{}, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	return e.record(res.KVs[0]), nil
}

func (e *etcd) record(kv etcdKV) Record {
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

// bounds gives the range of a prefix in etcd's words: no key may be empty, and "\0" is no end.
func (e *etcd) bounds(prefix string) (from, end []byte) {
	from, end = []byte(e.prefix+prefix), []byte(prefixEnd(e.prefix+prefix))
	if len(from) == 0 {
		from = []byte{0}
	}
	if len(end) == 0 {
		end = []byte{0}
	}
	return from, end
}

// scan reads page after page at the revision of the first one.
func (e *etcd) scan(ctx context.Context, prefix string, begin func(int64) error, each func(Record) error) error {
	ctx, leave, err := e.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := e.settle(ctx); err != nil {
		return e.error(ctx, "list", err)
	}
	from, end := e.bounds(prefix)
	var rev int64
	for {
		var res etcdRangeResult
		if err := e.cli.call(ctx, "/v3/kv/range", false, etcdRange{Key: from, RangeEnd: end, Limit: etcdPage, Revision: rev}, &res); err != nil {
			return e.error(ctx, "list", err)
		}
		if rev == 0 {
			rev = res.Header.Revision
			if err := begin(rev); err != nil {
				return err
			}
		}
		for _, kv := range res.KVs {
			if err := each(e.record(kv)); err != nil {
				return err
			}
		}
		if !res.More || len(res.KVs) == 0 {
			return nil
		}
		from = append(res.KVs[len(res.KVs)-1].Key, 0)
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
	var txn etcdTxn
	leads, err := e.leads()
	if err != nil {
		return 0, err
	}
	if leads != nil {
		txn.Compare = append(txn.Compare, *leads)
		txn.Failure = append(txn.Failure, etcdOp{Range: &etcdRange{Key: leads.Key, KeysOnly: true}})
	}
	lead := e.lead.Load()
	for _, op := range ops {
		key := []byte(e.prefix + op.Key)
		if op.Expect != nil {
			txn.Compare = append(txn.Compare, etcdCompare{Target: "MOD", Result: "EQUAL", Key: key, ModRevision: int64s(*op.Expect)})
			txn.Failure = append(txn.Failure, etcdOp{Range: &etcdRange{Key: key, KeysOnly: true}})
		}
		if op.Delete {
			txn.Success = append(txn.Success, etcdOp{Delete: &etcdDelete{key}})
		} else {
			txn.Success = append(txn.Success, etcdOp{Put: &etcdPut{Key: key, Value: op.Value}})
		}
	}
	var res etcdTxnResult
	try := ctx
	if leads != nil {
		// What a member passed on to a leader of etcd that died is answered after seven seconds. A role begins anew sooner.
		var cancel context.CancelFunc
		try, cancel = context.WithTimeout(ctx, leaderCommitTime)
		defer cancel()
	}
	if err := e.cli.call(try, "/v3/kv/txn", true, txn, &res); err != nil {
		if leads != nil {
			lead.doubt(err)
		}
		return 0, e.error(ctx, "commit", err)
	}
	if !res.Succeeded {
		if leads != nil {
			kvs := res.Responses[0].Range.KVs
			if len(kvs) == 0 || kvs[0].CreateRevision != lead.rev {
				lead.end()
				return 0, fmt.Errorf("commit: %w", ErrDeposed)
			}
			if kvs[0].ModRevision != int64(leads.ModRevision) {
				err := errors.New("commit: overtaken by a read after a commit whose outcome was not known")
				lead.doubt(err) // or somebody else changed the record
				return 0, err
			}
			res.Responses = res.Responses[1:]
		}
		return 0, e.conflict(ops, res)
	}
	e.afterCommit(res.Header.Revision)
	return res.Header.Revision, nil
}

func (e *etcd) conflict(ops []Op, res etcdTxnResult) error {
	i := 0
	for _, op := range ops {
		if op.Expect == nil || i >= len(res.Responses) {
			continue
		}
		var have int64
		if kvs := res.Responses[i].Range.KVs; len(kvs) > 0 {
			have = kvs[0].ModRevision
		}
		i++
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
		_ = e.compact(e.ctx, rev-e.keep)
	})
}

func (e *etcd) compact(ctx context.Context, rev int64) error {
	in := struct {
		Revision int64 `json:"revision,string"`
	}{rev}
	return e.cli.call(ctx, "/v3/kv/compaction", false, in, &struct{}{})
}

func (e *etcd) Compact(ctx context.Context, revision int64) error {
	ctx, leave, err := e.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	now, err := e.revision(ctx)
	if err == nil {
		err = etcdError(e.compact(ctx, min(revision, now)))
	}
	if err != nil && !errors.Is(err, ErrCompacted) {
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
	now, err := e.revision(ctx)
	if err != nil {
		return e.error(ctx, "watch", err)
	}
	if from > now {
		return ErrCompacted
	}
	start, end := e.bounds(prefix)
	for {
		// What fn says ends the watch; what etcd or the wire says begins it anew, unless it is the last word.
		var last error
		err := e.cli.watch(ctx, etcdWatch{Key: start, RangeEnd: end, StartRevision: from + 1}, func(m etcdWatchResult) error {
			if m.CompactRevision > 0 {
				last = ErrCompacted
				return last
			}
			if m.Canceled {
				return errors.New(m.CancelReason)
			}
			var evs []Event
			for _, ev := range m.Events {
				r := e.record(ev.KV)
				deleted := ev.Type == "DELETE"
				if deleted {
					r.Value = nil
				}
				evs = append(evs, Event{Record: r, Deleted: deleted})
				from = max(from, r.Revision)
			}
			if len(evs) > 0 {
				last = fn(evs)
			}
			return last
		})
		if last != nil {
			return last
		}
		if ctx.Err() != nil {
			return e.error(ctx, "watch", err)
		}
		var f *etcdFailure
		if errors.As(err, &f) && f.Code != codeUnavailable && f.Code != 0 {
			return e.error(ctx, "watch", err)
		}
		if pause(ctx, 200*time.Millisecond) != nil {
			return e.error(ctx, "watch", ctx.Err())
		}
	}
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

// etcdError adds the error of this package that one of etcd's means. Their texts are part of its protocol.
func etcdError(err error) error {
	var f *etcdFailure
	if !errors.As(err, &f) {
		return err
	}
	switch text := f.Error(); {
	case strings.Contains(text, "database space exceeded"):
		return fmt.Errorf("%w: etcd's quota is used up; run etcdctl compact, defrag and alarm disarm, or raise --quota-backend-bytes: %w",
			ErrFull, err)
	case strings.Contains(text, "revision has been compacted"), strings.Contains(text, "is a future revision"):
		return fmt.Errorf("%w: %w", ErrCompacted, err)
	case strings.Contains(text, "request is too large"), strings.Contains(text, "too many operations"),
		strings.Contains(text, "larger than max"):
		return fmt.Errorf("%w: start etcd with --max-txn-ops=4096 --max-request-bytes=10485760: %w", ErrTooLarge, err)
	}
	return err
}

// Close ends watches at once and gives running calls a grace.
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
	e.cli.close()
	return nil
}
