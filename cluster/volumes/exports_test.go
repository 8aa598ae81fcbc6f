package volumes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// sender is a site with one volume, whose snapshots of a schedule are sent away.
type sender struct {
	*shed
	t   *testing.T
	v   spec.VolumeClaim
	now time.Time
}

func newSender(t *testing.T, far int) *sender {
	s := &sender{newShed(), t, replicaOf(t, "0"), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	s.routines[s.v] = Routine{Schedule: "@hourly", Keep: 7, To: "offsite", Far: far}
	s.run(t, s.v, "w1")
	s.claims.Due(s.now)
	return s
}

// taken has a snapshot of the schedule, whatever the clock says.
func (s *sender) taken(id spec.SnapshotID, at time.Time) {
	snap := spec.Snapshot{ID: id, At: at, State: spec.SnapshotReady, Scheduled: true, Org: "acme", Worker: "w1"}
	snap.SetClaim(s.v)
	s.claims.PutSnapshot(snap)
}

// next gives what is to be sent, if anything is.
func (s *sender) next() (e Export, ok bool) {
	due := s.claims.DueExports(s.now)
	if len(due) == 0 {
		return e, false
	}
	s.claims.Send(due[0].Snapshot.ID)
	return due[0], true
}

// sent says that it is there, and that what was too many is gone.
func (s *sender) sent(e Export, gone []Object, left string) {
	id := e.Snapshot.ID
	s.claims.Sent(&e.Snapshot, Object{ID: id, To: e.To, Key: string(id)}, "s3://b/"+string(id), gone, s.now, left)
}

func ids(list []Object) (out []string) {
	for _, o := range list {
		out = append(out, string(o.ID))
	}
	return out
}

// A volume of another organisation that has the name now deletes nothing that was sent of the one before.
func TestExportsOfAnEarlierOwner(t *testing.T) {
	s := newSender(t, 1)
	s.taken("a1", s.now)
	late, _ := s.next() // it is being sent
	s.end(s.v)
	s.settle(t)
	delete(s.owned, s.v)
	s.claims.all[s.v].Ran = false
	s.claims.Touch()
	s.settle(t)
	if s.claims.Known(s.v) {
		t.Fatal("the volume is still claimed")
	}
	s.replicas[s.v], s.at[s.v] = true, "w1"
	s.claims.Place(s.v, "w1", Want{Size: skerry.GiB, Org: "evil", Names: []string{"data"}})
	s.claims.Ran(s.v, "w1")
	s.settle(t)
	s.sent(late, nil, "")
	snap := spec.Snapshot{ID: "e1", At: s.now, State: spec.SnapshotReady, Scheduled: true, Org: "evil", Worker: "w1"}
	snap.SetClaim(s.v)
	s.claims.PutSnapshot(snap)
	e, ok := s.next()
	if !ok || e.Snapshot.ID != "e1" || len(e.Old) != 0 {
		t.Errorf("%v, %+v: nothing of acme's is to be deleted", ok, e)
	}
	s.claims.Unsent(&late.Snapshot, s.now, "acme's bucket is full")
	if r := s.claims.Routines()[s.v]; r.Export == nil || r.Export.Reason != "" {
		t.Errorf("%+v shows what became of acme's", r.Export)
	}
	s.sent(e, nil, "")
	s.claims.Place(s.v, "w1", Want{Org: "third"})
	s.settle(t)
	if r := s.claims.all[s.v].Routine; r == nil || len(r.Export.Objects) > 0 {
		t.Errorf("%+v has objects of another organisation", r)
	}
}

// A snapshot of a time to come, of a clock that was set since, keeps no later one from being sent, and takes no place of one.
func TestExportsAfterAClockWasSet(t *testing.T) {
	s := newSender(t, 1)
	s.taken("ahead", s.now.Add(30*24*time.Hour))
	e, ok := s.next()
	if !ok || e.Snapshot.ID != "ahead" {
		t.Fatalf("%v, %+v", ok, e)
	}
	s.sent(e, nil, "")
	for i := range 3 {
		s.now = s.now.Add(time.Hour)
		id := spec.SnapshotID(fmt.Sprint("s", i))
		s.taken(id, s.now)
		e, ok := s.next()
		if !ok || e.Snapshot.ID != id || len(e.Old) != 1 || e.Old[0].ID == id {
			t.Fatalf("%s: %v, %+v", id, ok, e)
		}
		s.sent(e, e.Old, "")
	}
	if o := s.claims.all[s.v].Routine.Export.Objects; !slices.Equal(ids(o), []string{"s2"}) {
		t.Errorf("%v are there", ids(o))
	}
}

// One that cannot be sent, as that of a machine that is away, holds up no other, and the oldest is deleted first all the same.
func TestExportsPastOneThatCannotBe(t *testing.T) {
	s := newSender(t, 3)
	start := s.now
	for i := range 3 {
		s.taken(spec.SnapshotID(fmt.Sprint("s", i)), start.Add(time.Duration(i)*time.Hour))
	}
	s.now = s.now.Add(4 * time.Hour)
	for range 20 {
		if e, ok := s.next(); ok && e.Snapshot.ID == "s0" {
			s.claims.Unsent(&e.Snapshot, s.now, "worker w1 is not connected")
		} else if ok {
			s.sent(e, e.Old, "")
		}
		s.now = s.now.Add(10 * time.Minute)
		s.claims.Due(s.now)
	}
	x := &s.claims.all[s.v].Routine.Export
	if !slices.Equal(ids(x.Objects), []string{"s1", "s2"}) || x.Reason == "" {
		t.Fatalf("%v are there, and it is said %q", ids(x.Objects), x.Reason)
	}
	s.now = s.now.Add(time.Hour)
	e, _ := s.next()
	s.sent(e, e.Old, "")
	s.taken("s3", s.now)
	if e, _ = s.next(); e.Snapshot.ID != "s3" || !slices.Equal(ids(e.Old), []string{"s0"}) {
		t.Errorf("%s is sent, and %v go", e.Snapshot.ID, ids(e.Old))
	}
}

// Old objects that a place does not let go are not remembered without end.
func TestExportsThatStay(t *testing.T) {
	s := newSender(t, 2)
	forgotten := 0
	for i := range 3 * mostLeft {
		s.now = s.now.Add(time.Hour)
		s.taken(spec.SnapshotID(fmt.Sprintf("s%04d", i)), s.now)
		e, ok := s.next()
		if !ok {
			t.Fatalf("%d is not sent", i)
		}
		o := Object{ID: e.Snapshot.ID, To: e.To, Key: string(e.Snapshot.ID)}
		forgotten += len(s.claims.Sent(&e.Snapshot, o, "s3://b/x", nil, s.now, "access is denied"))
		s.claims.DropSnapshot(e.Snapshot.ID)
	}
	o := s.claims.all[s.v].Routine.Export.Objects
	if len(o) != mostLeft+2 || forgotten != 3*mostLeft-len(o) || !strings.HasSuffix(ids(o)[len(o)-1], fmt.Sprint(3*mostLeft-1)) {
		t.Errorf("%d are remembered, %d forgotten, the newest is %s", len(o), forgotten, ids(o)[len(o)-1])
	}
}

// What is in a place that was named before is not counted as being in the one that is named now.
func TestExportsToAnotherPlace(t *testing.T) {
	s := newSender(t, 3)
	for i := range 2 {
		s.now = s.now.Add(time.Hour)
		s.taken(spec.SnapshotID(fmt.Sprint("s", i)), s.now)
		e, _ := s.next()
		s.sent(e, e.Old, "")
	}
	s.routines[s.v] = Routine{Schedule: "@hourly", Keep: 7, To: "elsewhere", Far: 3}
	s.claims.Touch()
	s.settle(t)
	if x := s.claims.Routines()[s.v].Export; x.Kept != 0 || x.To != "elsewhere" {
		t.Errorf("%d are in %s", x.Kept, x.To)
	}
}

// TestOneWorkerSendsOneAtATime: a worker that never ends what it sends does not keep others from sending theirs.
func TestOneWorkerSendsOneAtATime(t *testing.T) {
	s, at := newShed(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for number, worker := range []string{"w1", "w1", "w1", "w2"} {
		v := replica(number)
		s.routines[v] = Routine{Schedule: "@hourly", Keep: 7, To: "offsite", Far: 1}
		s.run(t, v, worker)
	}
	s.claims.Due(at)
	for number, worker := range []skerry.WorkerName{"w1", "w1", "w1", "w2"} {
		snap := spec.Snapshot{ID: spec.SnapshotID(fmt.Sprint("of-", number)), At: at.Add(time.Duration(number) * time.Second),
			State: spec.SnapshotReady, Scheduled: true, Org: "acme", Worker: worker}
		snap.SetClaim(replica(number))
		s.claims.PutSnapshot(snap)
	}
	due := func() (list []spec.SnapshotID) {
		for _, e := range s.claims.DueExports(at.Add(time.Minute)) {
			list = append(list, e.Snapshot.ID)
		}
		return list
	}
	if got := due(); !slices.Equal(got, []spec.SnapshotID{"of-0", "of-3"}) {
		t.Errorf("at first %v are due, want one of each worker", got)
	}
	s.claims.Send("of-0")
	if got := due(); !slices.Equal(got, []spec.SnapshotID{"of-3"}) {
		t.Errorf("while one worker sends %v are due, want that of the other one", got)
	}
	s.claims.Unsent(s.claims.Snapshot("of-0"), at.Add(time.Minute), "it takes too long")
	if got := due(); !slices.Equal(got, []spec.SnapshotID{"of-1", "of-3"}) {
		t.Errorf("after a failure %v are due, want the next one of that worker, too", got)
	}
}
