package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// auditLog numbers records and knows which are kept.
type auditLog struct {
	mu          sync.Mutex
	first, last uint64 // kept; last == 0: none
	head        string // hash of the last one
	// writing is held by those whose record is on its way: they may come in any order.
	writing sync.RWMutex
	// failed are records that could not be stored, with the hash of the one before each, until others came after them.
	failed map[uint64]string
	pruned time.Time
	steady journal.Steady
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

// Audit keeps a record. A store that takes no writes loses it; the log has it then.
func (p *People) Audit(ctx context.Context, r AuditRecord) {
	p.audit.writing.RLock()
	err := p.keepAudit(ctx, &r)
	p.audit.writing.RUnlock()
	if errors.Is(err, store.ErrConflict) { // while leaders change there are two for a moment, and the other one has written that number
		p.audit.writing.Lock()
		for range 8 {
			if err = p.audit.reload(ctx, p); err == nil {
				err = p.keepAudit(ctx, &r)
			}
			if !errors.Is(err, store.ErrConflict) {
				break
			}
		}
		p.audit.writing.Unlock()
	}
	if err != nil {
		p.cfg.Log.Error("audit record was not kept", "seq", r.Seq, "user", r.User, "addr", r.Address, "operation", r.Operation,
			"object", r.Object, "result", r.Result, "err", err)
	}
}

// reload reads the records that another leader has written. Nobody writes meanwhile.
func (a *auditLog) reload(ctx context.Context, p *People) error {
	recs, _, err := p.cfg.Store.List(ctx, p.cfg.Prefix+recAudit)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.first, a.last, a.head, a.failed = 0, 0, "", nil
	for _, rec := range recs {
		a.found(strings.TrimPrefix(rec.Key, p.cfg.Prefix+recAudit), rec.Value)
	}
	return nil
}

// keepAudit gives a record its number, and stores it.
func (p *People) keepAudit(ctx context.Context, r *AuditRecord) error {
	a, l := &p.audit, p.cfg.Audit
	if l.Records <= 0 {
		l.Records = 10_000
	}
	if l.Age <= 0 {
		l.Age = 90 * 24 * time.Hour
	}
	now := p.cfg.Now()
	if r.At.IsZero() {
		r.At = now
	}
	a.mu.Lock()
	if a.first == 0 {
		a.first = 1
	}
	r.Seq, r.Prev = a.last+1, a.head
	op, err := p.op(auditKey(r.Seq), r.stored())
	op.Expect = new(int64) // nobody has that number
	if err == nil {
		a.last, a.head = r.Seq, auditHash(op.Value)
	}
	var drop []uint64
	for a.last-a.first >= uint64(l.Records) && len(drop) < 64 {
		drop = append(drop, a.first)
		a.first++
	}
	prune := a.steady.Enough(now) && now.Sub(a.pruned) > pruneEvery
	if prune {
		a.pruned = now
	}
	oldest := a.first
	a.mu.Unlock()
	for _, n := range drop { // somebody may have made many to be rid of some
		if rec, err := p.cfg.Store.Get(ctx, p.cfg.Prefix+auditKey(n)); err == nil {
			p.cfg.Log.Info("audit record was dropped for newer ones", "record", string(rec.Value))
		}
	}
	for prune && oldest < r.Seq && len(drop) < 1024 {
		rec, err := p.cfg.Store.Get(ctx, p.cfg.Prefix+auditKey(oldest))
		var old AuditRecord
		if err == nil && readAudit(rec.Value, &old) == nil && now.Sub(old.At) <= l.Age {
			break
		}
		drop = append(drop, oldest)
		oldest++
	}
	if prune {
		a.mu.Lock()
		a.first = max(a.first, oldest) // others may have dropped more meanwhile
		a.mu.Unlock()
	}
	if err == nil {
		ops := []store.Op{op}
		for _, n := range drop {
			ops = append(ops, store.Op{Key: p.cfg.Prefix + auditKey(n), Delete: true})
		}
		_, err = p.cfg.Store.Commit(ctx, ops)
	}
	if err != nil && a.there(ctx, p, op) { // only the answer was lost
		err = nil
	}
	if err != nil {
		a.mu.Lock()
		if len(drop) > 0 { // they are still there
			a.first = min(a.first, drop[0])
		}
		a.mu.Unlock()
	}
	return err
}

// thereTime bounds the question whether a record is there that was not said to be.
const thereTime = 5 * time.Second

// there reports whether a record is there although its commit failed. If it surely is not, the next one takes its place, and so it is with
// those before it that failed at the same time: a gap would look as if somebody had removed them.
func (a *auditLog) there(ctx context.Context, p *People, op store.Op) bool {
	if op.Value == nil {
		return false // it has taken no number
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), thereTime)
	defer cancel()
	rec, err := p.cfg.Store.Get(ctx, op.Key)
	if err == nil {
		return bytes.Equal(rec.Value, op.Value)
	}
	if !errors.Is(err, store.ErrNotFound) {
		return false // nobody knows
	}
	var r AuditRecord
	if readAudit(op.Value, &r) != nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		a.failed = map[uint64]string{}
	}
	a.failed[r.Seq] = r.Prev
	for {
		prev, ok := a.failed[a.last]
		if !ok {
			break
		}
		delete(a.failed, a.last)
		a.last, a.head = a.last-1, prev
	}
	maps.DeleteFunc(a.failed, func(n uint64, _ string) bool { return n+maxFailed < a.last })
	return false
}

// maxFailed is far more than how many records are on their way at a time.
const maxFailed = 10_000

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
