package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/journal"
)

// AuditLimits bound what is kept of the audit log. Zero means the default.
type AuditLimits struct {
	Records int           // default 10,000
	Age     time.Duration // default 90 days
}

// AuditRecord says who did what.
type AuditRecord struct {
	Seq       uint64    `json:"seq"`
	At        time.Time `json:"at"`
	User      string    `json:"user,omitempty"`
	Token     string    `json:"token,omitempty" doc:"Name of the access token used."`
	Address   string    `json:"address"`
	Operation string    `json:"operation"`
	Object    string    `json:"object,omitempty"`
	Detail    string    `json:"detail,omitempty" doc:"Details, such as the command of an exec or the port of a forward, truncated to 1 KiB."`
	Result    string    `json:"result" doc:"ok, or the error code."`
	Request   string    `json:"request,omitempty" doc:"Request ID, as in the server's log."`
	Prev      string    `json:"prev,omitempty" doc:"SHA-256 of the previous record as stored, in hexadecimal."`
}

// auditPrev stands in a stored record between its Request and Prev. A field of its own would keep older programs from opening the store
// (wire.Lost), though they lose nothing: nobody writes a record again. Request ids have no space.
const auditPrev = " prev:"

// stored gives a record as it is kept.
func (r AuditRecord) stored() AuditRecord {
	if r.Prev != "" {
		r.Request, r.Prev = r.Request+auditPrev+r.Prev, ""
	}
	return r
}

// readAudit reads a record as it is kept, in this form or with a field prev.
func readAudit(value []byte, r *AuditRecord) error {
	err := json.Unmarshal(value, r)
	if request, prev, ok := strings.Cut(r.Request, auditPrev); ok && r.Prev == "" {
		r.Request, r.Prev = request, prev
	}
	return err
}

// auditLog numbers records and knows which are kept. One batch of records after the other is written, each with one commit: it is chained
// to what is there, or nothing of it is kept.
//
//	Audit ─► waiting ─ whoever has the turn takes all ─► keepAudit ─► done
//	                                                       └─ conflict: another leader wrote ─► reload, and once more
type auditLog struct {
	mu      sync.Mutex
	waiting []*auditEntry // to be written; mu guards it

	turn chan struct{} // holds one while somebody writes; the rest is for who has put it there

	first, last uint64 // kept; last == 0: none
	head        string // hash of the last one
	pruned      time.Time
	steady      journal.Steady
}

// auditEntry is a record that is to be written.
type auditEntry struct {
	record AuditRecord
	done   chan struct{} // closed when that has ended, as err says
	err    error
}

// found takes a stored record; they come in the order of their keys.
func (a *auditLog) found(key string, value []byte) {
	n, err := strconv.ParseUint(key, 10, 64)
	if err != nil {
		return
	}
	if a.first == 0 {
		a.first = n
	}
	a.last, a.head = n, auditHash(value)
}

func auditKey(n uint64) string { return fmt.Sprintf("%s%020d", recAudit, n) }

// pruneEvery is how often records are looked at for their age.
const pruneEvery = time.Hour

// auditBatch is how many records are written in one commit, and auditDrop how many old ones go with them; what is left goes with the next.
const (
	auditBatch = 32
	auditDrop  = 64
)

// Audit keeps a record. A store that takes no writes loses it; the log has it then.
func (p *People) Audit(ctx context.Context, r AuditRecord) {
	if r.At.IsZero() {
		r.At = p.cfg.Now()
	}
	a, entry := &p.audit, &auditEntry{record: r, done: make(chan struct{})}
	a.mu.Lock()
	a.waiting = append(a.waiting, entry)
	a.mu.Unlock()
	for written := false; !written; {
		select {
		case <-entry.done:
			written = true
		case a.turn <- struct{}{}:
			a.mu.Lock()
			batch := slices.Clone(a.waiting[:min(len(a.waiting), auditBatch)])
			a.waiting = slices.Delete(a.waiting, 0, len(batch))
			a.mu.Unlock()
			p.keepAudit(ctx, batch)
			<-a.turn
		case <-ctx.Done():
			if a.leave(entry) {
				entry.err = ctx.Err()
			} else {
				<-entry.done
			}
			written = true
		}
	}
	if r := &entry.record; entry.err != nil {
		p.cfg.Log.Error("audit record was not kept", "seq", r.Seq, "user", r.User, "addr", r.Address, "operation", r.Operation,
			"object", r.Object, "result", r.Result, "err", entry.err)
	}
}

// leave takes back a record that nobody is writing, and reports whether there was one.
func (a *auditLog) leave(entry *auditEntry) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.Index(a.waiting, entry)
	if at >= 0 {
		a.waiting = slices.Delete(a.waiting, at, at+1)
	}
	return at >= 0
}

// auditTime bounds how long a batch is written. It does not end with the request that writes it, because records of others are in it.
const auditTime = 10 * time.Second

// auditPause bounds how long a leader waits that has found its number taken.
const auditPause = 100 * time.Millisecond

// pause waits, and reports whether there is time left.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// keepAudit writes records. It is called by who has the turn.
func (p *People) keepAudit(ctx context.Context, batch []*auditEntry) {
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	err := p.commitAudit(ctx, batch)
	// While leaders change there are two for a moment, and the other one has written that number. It may be the faster one many times.
	for longest := time.Millisecond; errors.Is(err, store.ErrConflict) && pause(ctx, rand.N(longest)); longest = min(2*longest, auditPause) {
		if again := p.audit.reload(ctx, p); again != nil {
			err = errors.Join(err, again)
			break
		}
		err = p.commitAudit(ctx, batch)
	}
	for _, entry := range batch {
		entry.err = err
		close(entry.done)
	}
}

// reload reads the records that another leader has written.
func (a *auditLog) reload(ctx context.Context, p *People) error {
	recs, _, err := p.cfg.Store.List(ctx, p.cfg.Prefix+recAudit)
	if err != nil {
		return err
	}
	a.first, a.last, a.head = 0, 0, ""
	for _, rec := range recs {
		a.found(strings.TrimPrefix(rec.Key, p.cfg.Prefix+recAudit), rec.Value)
	}
	return nil
}

// commitAudit gives records their numbers and stores them, all or none.
func (p *People) commitAudit(ctx context.Context, batch []*auditEntry) error {
	a, limits := &p.audit, p.cfg.Audit
	if limits.Records <= 0 {
		limits.Records = 10_000
	}
	if limits.Age <= 0 {
		limits.Age = 90 * 24 * time.Hour
	}
	first, last, head, pruned := max(a.first, 1), a.last, a.head, a.pruned
	var ops []store.Op
	for _, entry := range batch {
		entry.record.Seq, entry.record.Prev = last+1, head
		op, err := p.op(auditKey(last+1), entry.record.stored())
		if err != nil {
			return err
		}
		op.Expect = new(int64) // nobody has that number
		ops, last, head = append(ops, op), last+1, auditHash(op.Value)
	}
	drop := func() {
		ops, first = append(ops, store.Op{Key: p.cfg.Prefix + auditKey(first), Delete: true}), first+1
	}
	for last-first >= uint64(limits.Records) && len(ops) < len(batch)+auditDrop { // somebody may have made many to be rid of some
		if rec, err := p.cfg.Store.Get(ctx, p.cfg.Prefix+auditKey(first)); err == nil {
			p.cfg.Log.Info("audit record was dropped for newer ones", "record", string(rec.Value))
		}
		drop()
	}
	if now := p.cfg.Now(); a.steady.Enough(now) && now.Sub(a.pruned) > pruneEvery {
		aged := func() bool {
			rec, err := p.cfg.Store.Get(ctx, p.cfg.Prefix+auditKey(first))
			var old AuditRecord
			return err != nil || readAudit(rec.Value, &old) != nil || now.Sub(old.At) > limits.Age
		}
		for first < last && len(ops) < len(batch)+auditDrop && aged() {
			drop()
		}
		if len(ops) < len(batch)+auditDrop {
			pruned = now
		}
	}
	if _, err := p.cfg.Store.Commit(ctx, ops); err != nil && !p.kept(ctx, ops[len(batch)-1]) {
		return err // if they are there nevertheless, the next batch finds its number taken
	}
	a.first, a.last, a.head, a.pruned = first, last, head, pruned
	return nil
}

// keptTime bounds the question whether a record is there that was not said to be.
const keptTime = 5 * time.Second

// kept reports whether a record is there although its commit failed: only the answer was lost.
func (p *People) kept(ctx context.Context, op store.Op) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keptTime)
	defer cancel()
	rec, err := p.cfg.Store.Get(ctx, op.Key)
	return err == nil && bytes.Equal(rec.Value, op.Value)
}

// AuditRecords gives the newest kept records that keep accepts, oldest first; at most limit.
func (p *People) AuditRecords(ctx context.Context, limit int, keep func(*AuditRecord) bool) ([]AuditRecord, error) {
	recs, _, err := p.cfg.Store.List(ctx, p.cfg.Prefix+recAudit)
	if err != nil {
		return nil, err
	}
	out := []AuditRecord{}
	for i := len(recs) - 1; i >= 0 && (limit <= 0 || len(out) < limit); i-- {
		var r AuditRecord
		if readAudit(recs[i].Value, &r) == nil && (keep == nil || keep(&r)) {
			out = append(out, r)
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}
