package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/store"
)

// chained makes people who have written five audit records, and what is stored of them.
func chained(t *testing.T) (*People, store.Store) {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	p := auditor(t, st, AuditLimits{})
	for i := range 5 {
		p.Audit(t.Context(), AuditRecord{User: "ada", Operation: "apply-app", Object: fmt.Sprint(i), Result: "ok"})
	}
	return p, st
}

func auditor(t *testing.T, st store.Store, l AuditLimits) *People {
	t.Helper()
	p, err := OpenPeople(t.Context(), PeopleConfig{Site: "root", Prefix: peopleRecords, Store: st, Argon2: quick(), Audit: l})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func verified(t *testing.T, p *People, since string) AuditReport {
	t.Helper()
	var mark *AuditMark
	if since != "" {
		m, err := ParseAuditMark(since)
		if err != nil {
			t.Fatal(err)
		}
		mark = &m
	}
	r, err := p.VerifyAudit(t.Context(), mark)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAuditChain(t *testing.T) {
	p, st := chained(t)
	r := verified(t, p, "")
	if len(r.Faults) > 0 || r.Records != 5 || r.First != 1 || r.Chained != 2 || !strings.HasPrefix(r.Head, "5:") {
		t.Fatalf("%+v", r)
	}
	p = auditor(t, st, AuditLimits{}) // as after a restart
	p.Audit(t.Context(), AuditRecord{User: "bob", Operation: "login", Result: "ok"})
	if after := verified(t, p, r.Head); len(after.Faults) > 0 || after.Records != 6 {
		t.Fatalf("%+v", after)
	}
	p = auditor(t, st, AuditLimits{Records: 3})
	p.Audit(t.Context(), AuditRecord{User: "bob", Operation: "login", Result: "ok"})
	if after := verified(t, p, r.Head); len(after.Faults) > 0 || after.Records != 3 || after.First != 5 {
		t.Fatalf("%+v", after)
	}
	p.Audit(t.Context(), AuditRecord{User: "bob", Operation: "login", Result: "ok"})
	if after := verified(t, p, r.Head); len(after.Faults) != 1 || !strings.Contains(after.Faults[0], "no longer kept") {
		t.Fatalf("%+v", after)
	}
}

// Two leaders write to one store, as for a moment while they change: each record has a number of its own, none is lost, and the chain
// holds.
func TestAuditOfTwoLeaders(t *testing.T) {
	one, st := chained(t)
	other := auditor(t, st, AuditLimits{})
	for i := range 4 {
		one.Audit(t.Context(), AuditRecord{User: "ada", Operation: "login", Object: fmt.Sprint("one ", i), Result: "ok"})
		other.Audit(t.Context(), AuditRecord{User: "ada", Operation: "login", Object: fmt.Sprint("other ", i), Result: "ok"})
	}
	if r := verified(t, one, ""); len(r.Faults) > 0 || r.Records != 13 {
		t.Errorf("want 13 records and no faults, got %+v", r)
	}
	var wg sync.WaitGroup
	for i, p := range []*People{one, other} {
		wg.Go(func() {
			for n := range 20 {
				p.Audit(t.Context(), AuditRecord{User: "ada", Operation: "login", Object: fmt.Sprint(i, n), Result: "ok"})
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	list, err := one.AuditRecords(t.Context(), 0, nil)
	for _, r := range list {
		seen[r.Object] = true
	}
	if r := verified(t, one, ""); err != nil || len(r.Faults) > 0 || r.Records != 53 || len(seen) != 53 {
		t.Errorf("%d different ones: %+v, %v", len(seen), r, err)
	}
}

// Records that come at once are chained, too, and nobody who looks meanwhile sees a gap.
func TestAuditChainOfMany(t *testing.T) {
	p, _ := chained(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				p.Audit(t.Context(), AuditRecord{User: "ada", Operation: "apply-app", Result: "ok"})
			}
		})
	}
	for range 50 {
		if r := verified(t, p, ""); len(r.Faults) > 0 {
			t.Errorf("%+v", r)
		}
	}
	wg.Wait()
	if r := verified(t, p, ""); len(r.Faults) > 0 || r.Records != 405 {
		t.Errorf("%+v", r)
	}
}

// Whoever can write the store is found out.
func TestAuditTampered(t *testing.T) {
	key := func(n uint64) string { return peopleRecords + auditKey(n) }
	edit := func(n uint64, old, new string) func(context.Context, store.Store) []store.Op {
		return func(ctx context.Context, st store.Store) []store.Op {
			rec, _ := st.Get(ctx, key(n))
			return []store.Op{{Key: key(n), Value: []byte(strings.Replace(string(rec.Value), old, new, 1))}}
		}
	}
	remove := func(list ...uint64) func(context.Context, store.Store) []store.Op {
		return func(context.Context, store.Store) (ops []store.Op) {
			for _, n := range list {
				ops = append(ops, store.Op{Key: key(n), Delete: true})
			}
			return ops
		}
	}
	for name, c := range map[string]struct {
		ops    func(context.Context, store.Store) []store.Op
		marked bool // whether it takes an earlier mark to see it
		want   string
	}{
		"another user":             {edit(3, `"ada"`, `"eve"`), false, "record 3 or 4 was changed"},
		"another user in the last": {edit(5, `"ada"`, `"eve"`), true, "record 5 is not the one of the mark"},
		"one is gone":              {remove(3), false, "records 3 to 3 are missing"},
		"the newest are gone":      {remove(4, 5), true, "records 4 to 5 are missing"},
		"all are gone":             {remove(1, 2, 3, 4, 5), true, "records 1 to 5 are missing"},
		"one is no record":         {edit(2, `{`, `[`), false, "cannot be read"},
		"one in another's place": {func(ctx context.Context, st store.Store) []store.Op {
			rec, _ := st.Get(ctx, key(2))
			return []store.Op{{Key: key(4), Value: rec.Value}}
		}, false, "record 2 was put into the place of 4"},
		"no longer chained": {func(ctx context.Context, st store.Store) (ops []store.Op) {
			for n := uint64(1); n <= 5; n++ {
				rec, _ := st.Get(ctx, key(n))
				before, _, _ := strings.Cut(string(rec.Value), auditPrev)
				ops = append(ops, store.Op{Key: key(n), Value: []byte(strings.TrimSuffix(before, "\"}") + "\"}")})
			}
			return ops
		}, true, "record 5 is not the one of the mark"},
	} {
		t.Run(name, func(t *testing.T) {
			p, st := chained(t)
			mark := verified(t, p, "").Head
			if _, err := st.Commit(t.Context(), c.ops(t.Context(), st)); err != nil {
				t.Fatal(err)
			}
			if r := verified(t, p, mark); !strings.Contains(strings.Join(r.Faults, "; "), c.want) {
				t.Errorf("%q, want %q", r.Faults, c.want)
			}
			if r := verified(t, p, ""); c.marked != (len(r.Faults) == 0) {
				t.Errorf("without a mark: %+v", r)
			}
		})
	}
}

// failing is a store that takes no writes for a while.
type failing struct {
	store.Store
	fail bool
}

func (s *failing) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	if s.fail {
		return 0, errors.New("the disk is full")
	}
	return s.Store.Commit(ctx, ops)
}

// What could not be stored leaves no gap, and what was to be dropped with it goes with the next.
func TestAuditChainOverAFullDisk(t *testing.T) {
	_, st := chained(t)
	full := &failing{Store: st}
	p := auditor(t, full, AuditLimits{Records: 5})
	for _, fail := range []bool{false, true, true, false, true, false} {
		full.fail = fail
		p.Audit(t.Context(), AuditRecord{User: "ada", Operation: "apply-app", Result: "ok"})
	}
	if r := verified(t, p, ""); len(r.Faults) > 0 || r.Records != 5 || r.First != 4 {
		t.Errorf("%+v", r)
	}
}

// Requests whose records fail at the same time leave no gap either.
func TestAuditChainOverAFullDiskOfMany(t *testing.T) {
	_, st := chained(t)
	held := &holding{Store: st, at: make(chan chan error)}
	p := auditor(t, held, AuditLimits{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { p.Audit(t.Context(), AuditRecord{User: "ada", Operation: "apply-app", Result: "ok"}) })
	}
	ended := make(chan bool)
	go func() {
		wg.Wait()
		close(ended)
	}()
	for failing := true; failing; {
		select {
		case end := <-held.at:
			end <- errors.New("the disk is full")
		case <-ended:
			failing = false
		}
	}
	held.at = nil
	p.Audit(t.Context(), AuditRecord{User: "ada", Operation: "apply-app", Result: "ok"})
	if r := verified(t, p, ""); len(r.Faults) > 0 || r.Records != 6 || !strings.HasPrefix(r.Head, "6:") {
		t.Errorf("%+v", r)
	}
}

// TestAuditOfALeaderThatGoes: two requests have records on their way to the store of a leader that is one no longer, when the next leader
// writes one. Each has a number of its own, none is lost, and the chain holds.
func TestAuditOfALeaderThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, st := chained(t)
		late := &delaying{Store: st, first: make(chan struct{})}
		gone := auditor(t, late, AuditLimits{})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				gone.Audit(t.Context(), AuditRecord{User: "ada", Operation: "login", Object: fmt.Sprint("gone ", i), Result: "ok"})
			})
			synctest.Wait()
		}
		next.Audit(t.Context(), AuditRecord{User: "bob", Operation: "login", Object: "next", Result: "ok"})
		close(late.first)
		wg.Wait()
		seen := map[string]bool{}
		list, err := next.AuditRecords(t.Context(), 0, nil)
		for _, r := range list {
			seen[r.Object] = true
		}
		if r := verified(t, next, ""); err != nil || len(r.Faults) > 0 || r.Records != 9 || len(seen) != 9 {
			t.Errorf("%d different ones: %+v, %v", len(seen), r, err)
		}
	})
}

// delaying is a store whose first commit waits.
type delaying struct {
	store.Store
	first chan struct{}
	once  sync.Once
}

func (s *delaying) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	wait := false
	s.once.Do(func() { wait = true })
	if wait {
		<-s.first
	}
	return s.Store.Commit(ctx, ops)
}

// A store whose answer was lost may have kept a record; the next one does not take its place.
func TestAuditChainWhoseAnswerIsLost(t *testing.T) {
	_, st := chained(t)
	lost := &losing{Store: st}
	p := auditor(t, lost, AuditLimits{})
	for i := range 6 {
		lost.lose = i%2 == 0
		p.Audit(t.Context(), AuditRecord{User: "eve", Operation: "apply-app", Object: fmt.Sprint("lost", i), Result: "ok"})
	}
	list, err := p.AuditRecords(t.Context(), 0, func(r *AuditRecord) bool { return r.User == "eve" })
	if err != nil || len(list) != 6 {
		t.Errorf("%d records are there, want 6, %v", len(list), err)
	}
	if r := verified(t, p, ""); len(r.Faults) > 0 || r.Records != 11 {
		t.Errorf("%+v", r)
	}
}

// holding is a store whose commits end as a test says.
type holding struct {
	store.Store
	at chan chan error
}

func (s *holding) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	if s.at == nil {
		return s.Store.Commit(ctx, ops)
	}
	end := make(chan error)
	s.at <- end
	return 0, <-end
}

// losing is a store that keeps what it is given and says that it does not.
type losing struct {
	store.Store
	lose bool
}

func (s *losing) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	n, err := s.Store.Commit(ctx, ops)
	if s.lose && err == nil {
		return 0, context.DeadlineExceeded
	}
	return n, err
}

// overtaken is a store that another leader writes to just before each of the next commits.
type overtaken struct {
	store.Store
	times int
	other func()
}

func (s *overtaken) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	if s.times > 0 {
		s.times--
		s.other()
	}
	return s.Store.Commit(ctx, ops)
}

// TestAuditOvertaken: a leader that finds its number taken again and again tries on, and its record is kept.
func TestAuditOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, st := chained(t)
		slow := &overtaken{Store: st, times: 30, other: func() {
			other.Audit(t.Context(), AuditRecord{User: "bob", Operation: "login", Result: "ok"})
		}}
		auditor(t, slow, AuditLimits{}).Audit(t.Context(), AuditRecord{User: "eve", Operation: "login", Result: "ok"})
		if r := verified(t, other, ""); len(r.Faults) > 0 || r.Records != 36 {
			t.Errorf("want 36 records and no faults, got %+v", r)
		}
		slow.times = 1 << 30
		began := time.Now()
		auditor(t, slow, AuditLimits{}).Audit(t.Context(), AuditRecord{User: "eve", Operation: "logout", Result: "ok"})
		if took := time.Since(began); took < auditTime || took > auditTime+time.Second {
			t.Errorf("it tried for %s, want %s", took, auditTime)
		}
	})
}

func FuzzAuditMark(f *testing.F) {
	f.Add("7:" + strings.Repeat("0a", 32))
	f.Add("0:" + strings.Repeat("0a", 32))
	f.Add("7")
	f.Add("-1:zz")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseAuditMark(s)
		if err != nil {
			return
		}
		if again, err := ParseAuditMark(m.String()); err != nil || again != m {
			t.Errorf("%q is read as %v, and that as %v, %v", s, m, again, err)
		}
	})
}

// commitSizes notes how many operations each commit had.
type commitSizes struct {
	store.Store
	largest int
}

func (c *commitSizes) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	c.largest = max(c.largest, len(ops))
	return c.Store.Commit(ctx, ops)
}

// Hundreds of records that are too old go with those that come, a bounded number with each.
func TestOldAuditGoesInParts(t *testing.T) {
	inner, _ := store.Open(t.Context(), "memory:", store.Options{})
	defer inner.Close()
	st := &commitSizes{Store: inner}
	c := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	p, err := OpenPeople(t.Context(), PeopleConfig{Site: "root", Store: st, Argon2: quick(), Now: c.Now,
		Audit: AuditLimits{Records: 1000, Age: 24 * time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		p.Audit(t.Context(), AuditRecord{User: "ada"})
	}
	c.pass(25 * time.Hour)
	for range 300/auditDrop + 1 {
		p.Audit(t.Context(), AuditRecord{User: "eve"})
	}
	list, err := p.AuditRecords(t.Context(), 0, func(r *AuditRecord) bool { return r.User == "ada" })
	if err != nil || len(list) != 0 {
		t.Errorf("%d old ones are left, %v", len(list), err)
	}
	if st.largest > auditBatch+auditDrop {
		t.Errorf("a commit had %d operations", st.largest)
	}
}
