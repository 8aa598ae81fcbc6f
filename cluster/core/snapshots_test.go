package core

import (
	"fmt"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// An organisation can neither fill the site's store with empty snapshots nor keep its workers busy with many at a time; others are not
// affected.
func TestSnapshotsOfOneOrganisation(t *testing.T) {
	s := newOverlayNetSite(t)
	s.join(1)
	claim := spec.VolumeClaim{Service: key("acme", "shop")}
	begin := func(n int, org string) error {
		return s.c.Step(s.now, BeginSnapshot{ID: spec.SnapshotID(fmt.Sprintf("%s%d", org, n)), Claim: claim, Import: true, Org: org}).Err
	}
	end := func(n int) {
		s.do(EndSnapshot{ID: spec.SnapshotID(fmt.Sprintf("acme%d", n)), Info: &spec.Snapshot{SHA256: strings.Repeat("0", 64)}})
	}
	for n := range maxTaking {
		if err := begin(n, "acme"); err != nil {
			t.Fatal(err)
		}
	}
	if e := skerry.AsError(begin(maxTaking, "acme")); e == nil || e.Code != skerry.CodeConflict || e.Hint == "" {
		t.Errorf("one more at a time: %v", e)
	}
	if err := begin(0, "other"); err != nil {
		t.Errorf("another organisation's: %v", err)
	}
	if e := skerry.AsError(s.c.Step(s.now, DeleteSnapshot{ID: "acme0"}).Err); e == nil || e.Code != skerry.CodeConflict || e.Hint == "" {
		t.Errorf("deleted while its worker is at it: %v", e)
	}
	for n := range maxTaking {
		end(n)
	}
	for n := maxTaking; n < maxSnapshots; n++ {
		if err := begin(n, "acme"); err != nil {
			t.Fatal(n, err)
		}
		end(n)
	}
	if e := skerry.AsError(begin(maxSnapshots, "acme")); e == nil || e.Code != skerry.CodeQuota || e.Hint == "" {
		t.Errorf("one more than it may have: %v", e)
	}
	if err := begin(1, "other"); err != nil {
		t.Errorf("another organisation's: %v", err)
	}
}

// An agent that is not Skerry's own gets no snapshots unless it says that it does them: it is neither chosen for one, nor asked by name.
func TestSnapshotsOfOtherAgents(t *testing.T) {
	s := newOverlayNetSite(t)
	s.join(1)
	begin := func(name string) *skerry.Error {
		return skerry.AsError(s.c.Step(s.now, BeginSnapshot{ID: spec.SnapshotID("one-" + name), Worker: name, Import: true, Org: "acme",
			Claim: spec.VolumeClaim{Service: key("acme", "shop")}}).Err)
	}
	for name, w := range s.c.workers {
		w.Facts.External = "kubernetes"
		if e := begin(name); e == nil || e.Code != skerry.CodeUnsupported || e.Hint == "" {
			t.Errorf("a snapshot on worker %s is answered with %v, expected unsupported", name, e)
		}
		if e := begin(""); e == nil || e.Code != skerry.CodeUnavailable {
			t.Errorf("a snapshot anywhere is answered with %v, expected that no worker takes one", e)
		}
		w.Facts.Runtimes = append(w.Facts.Runtimes, wire.RuntimeReport{Passed: true, Abilities: []string{"snapshots"}})
		if e := begin(name); e != nil {
			t.Errorf("a snapshot on a worker that does them is answered with %v, expected none", e)
		}
	}
}

// What is restored counts for its organisation, and has to fit on its worker: a file that is imported says what it likes of the sizes of its
// volumes, and one snapshot can be cloned again and again.
func TestRestoresAreBounded(t *testing.T) {
	s := newOverlayNetSite(t)
	worker := s.join(1)
	s.report(worker, wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Capacity: spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB, Storage: 100 * skerry.GiB}}})
	claim := spec.VolumeClaim{Service: key("acme", "shop")}
	imported := func(id spec.SnapshotID, sizes ...skerry.Bytes) {
		t.Helper()
		info := &spec.Snapshot{SHA256: strings.Repeat("0", 64), Size: 1000, How: spec.SnapshotImported}
		for n, size := range sizes {
			info.Volumes = append(info.Volumes, spec.SnapshotVolume{Name: fmt.Sprint("v", n), Size: size})
		}
		s.do(BeginSnapshot{ID: id, Claim: claim, Import: true, Org: "acme"})
		s.do(EndSnapshot{ID: id, Info: info})
	}
	to := func(n int) spec.VolumeClaim { return spec.VolumeClaim{Service: key("acme", "copy"), Ordinal: n} }
	begin := func(id spec.SnapshotID, n int) (RestorePlan, error) {
		fx := s.c.Step(s.now, BeginRestore{ID: id, To: to(n), Clone: true})
		s.keep(fx)
		plan, _ := fx.Result.(RestorePlan)
		return plan, fx.Err
	}
	refused := func(what string, code skerry.Code, err error) {
		t.Helper()
		if e := skerry.AsError(err); e == nil || e.Code != code || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	imported("giant", 1<<50, 1<<50)
	imported("ten", 10*skerry.GiB)
	imported("loose", 0)
	_, err := begin("giant", 0)
	refused("more than the worker has", skerry.CodeConflict, err)

	other := to(0)
	other.Service.App.Namespace = "other"
	refused("a namespace that is another's by now", skerry.CodeConflict, s.c.Step(s.now, BeginRestore{ID: "ten", To: other, Clone: true}).Err)

	s.do(apps.PutOrg{Org: apps.Org{Name: "acme", Quota: apps.Quota{Storage: 25 * skerry.GiB}}})
	var plans []RestorePlan
	for n := range 2 {
		plan, err := begin("ten", n)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	_, err = begin("ten", 2)
	refused("a third one at the same time", skerry.CodeQuota, err)
	for _, plan := range plans {
		s.do(EndRestore{RestorePlan: plan})
	}
	_, err = begin("ten", 2)
	refused("a third one", skerry.CodeQuota, err)
	plan, err := begin("loose", 2)
	if err != nil || plan.Most <= 0 || plan.Most >= 5*skerry.GiB {
		t.Fatalf("what has no size may take %s: %v", plan.Most, err)
	}
	s.do(EndRestore{RestorePlan: plan, Took: plan.Most})
	_, err = begin("loose", 3)
	refused("when all is used", skerry.CodeQuota, err)
	if used := s.c.Apps.Usage("acme", skerry.AppKey{}).Need.Storage; used != 25*skerry.GiB {
		t.Errorf("%s are counted", used)
	}
	if left := s.c.workers[worker].available().Storage; left != 80*skerry.GiB {
		t.Errorf("%s are left on the worker", left)
	}
	for n := range 3 {
		s.do(apps.DeleteVolume{Claim: to(n)})
	}
	if used := s.c.Apps.Usage("acme", skerry.AppKey{}).Need.Storage; used != 3000 {
		t.Errorf("%s are counted when they are deleted", used)
	}
	s.do(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	for n := range maxTaking {
		if _, err := begin("loose", n); err != nil {
			t.Fatal(err)
		}
	}
	_, err = begin("loose", maxTaking)
	refused("one more at a time", skerry.CodeConflict, err)
}

// What is on its way to a site takes room in the quota of its organisation until it is complete: several files at a time, restores of
// volumes without a size, and snapshots of such volumes have what the quota leaves together, not each of them.
func TestSnapshotsOnTheirWayCount(t *testing.T) {
	s := newOverlayNetSite(t)
	worker := s.join(1)
	has := spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB, Storage: 100 * skerry.GiB}
	s.report(worker, wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Capacity: has}})
	quota := func(most skerry.Bytes) {
		s.do(apps.PutOrg{Org: apps.Org{Name: "acme", Quota: apps.Quota{Storage: most}}})
	}
	used := func() skerry.Bytes { return s.c.Apps.Usage("acme", skerry.AppKey{}).Need.Storage }
	begin := func(id spec.SnapshotID, length skerry.Bytes) (SnapshotPlan, error) {
		claim := spec.VolumeClaim{Service: key("acme", "shop")}
		fx := s.c.Step(s.now, BeginSnapshot{ID: id, Claim: claim, Import: true, Org: "acme", Length: length})
		s.keep(fx)
		plan, _ := fx.Result.(SnapshotPlan)
		return plan, fx.Err
	}
	end := func(id spec.SnapshotID, size skerry.Bytes) {
		s.do(EndSnapshot{ID: id, Info: &spec.Snapshot{SHA256: strings.Repeat("0", 64), Size: size, How: spec.SnapshotImported,
			Volumes: []spec.SnapshotVolume{{Name: "data"}}}})
	}
	quotaError := func(what string, err error) {
		t.Helper()
		if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeQuota || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	quota(10 * skerry.GiB)
	for n := range 2 {
		if plan, err := begin(spec.SnapshotID(fmt.Sprint("four", n)), 4*skerry.GiB); err != nil || plan.Most != 4*skerry.GiB {
			t.Fatalf("a file of 4Gi may take %s: %v", plan.Most, err)
		}
	}
	_, err := begin("four2", 4*skerry.GiB)
	quotaError("a third file of 4Gi", err)
	if plan, err := begin("some", 0); err != nil || plan.Most != 2*skerry.GiB {
		t.Errorf("a file whose length nobody knows may take %s: %v", plan.Most, err)
	}
	_, err = begin("more", 1)
	quotaError("a byte more", err)
	s.do(EndSnapshot{ID: "four0", Err: "the client has gone"})
	end("four1", 3*skerry.GiB)
	end("some", skerry.GiB)
	if used() != 4*skerry.GiB {
		t.Errorf("%s are used", used())
	}

	// Restored at the same time, what has no size takes the 6Gi that are left once.
	restore := func(n int) (RestorePlan, error) {
		fx := s.c.Step(s.now, BeginRestore{ID: "some", To: spec.VolumeClaim{Service: key("acme", "copy"), Ordinal: n}, Clone: true})
		s.keep(fx)
		plan, _ := fx.Result.(RestorePlan)
		return plan, fx.Err
	}
	plan, err := restore(0)
	if err != nil || plan.Most != 6*skerry.GiB {
		t.Fatalf("it may take %s: %v", plan.Most, err)
	}
	_, err = restore(1)
	quotaError("a second one", err)
	s.do(EndRestore{RestorePlan: plan, Took: skerry.GiB})
	if used() != 5*skerry.GiB {
		t.Errorf("%s are used", used())
	}

	// Of two snapshots of volumes without a size, of which nobody knows what they take, the second that is complete has no room any more.
	for n := range 2 {
		claim := spec.VolumeClaim{Service: key("acme", "copy"), Ordinal: n}
		if n > 0 {
			plan, err := restore(n)
			if err != nil {
				t.Fatal(err)
			}
			s.do(EndRestore{RestorePlan: plan})
		}
		s.do(BeginSnapshot{ID: spec.SnapshotID(fmt.Sprint("loose", n)), Claim: claim})
	}
	end("loose0", 3*skerry.GiB)
	end("loose1", 3*skerry.GiB)
	if used() != 8*skerry.GiB || s.c.volumes.Snapshot("loose0") == nil || s.c.volumes.Snapshot("loose1") != nil {
		t.Errorf("%s are used, by %+v", used(), s.c.Snapshots())
	}

	// What volumes are being made of stays until they are there.
	if plan, err = restore(2); err != nil {
		t.Fatal(err)
	}
	if e := skerry.AsError(s.c.Step(s.now, DeleteSnapshot{ID: "some"}).Err); e == nil || e.Code != skerry.CodeConflict || e.Hint == "" {
		t.Errorf("deleted while it is cloned: %v", e)
	}
	s.do(EndRestore{RestorePlan: plan, Err: "no"})
	s.do(DeleteSnapshot{ID: "some"})

	// What was on a worker that is removed is used no more.
	s.keep(s.c.Step(s.now, ChildDown{Name: worker}))
	s.do(RemoveWorker{Name: worker})
	if used() != 0 || len(s.c.Snapshots()) != 0 {
		t.Errorf("%s are used without a worker, by %+v", used(), s.c.Snapshots())
	}
}

// A worker says of a snapshot what it likes: what is stored of that has bounds.
func TestImplausibleSnapshots(t *testing.T) {
	s := newOverlayNetSite(t)
	s.join(1)
	sum := strings.Repeat("0", 64)
	for what, info := range map[string]spec.Snapshot{
		"less than nothing":    {SHA256: sum, Size: -1},
		"too much":             {SHA256: sum, Size: spec.MaxAmount + 1},
		"a volume of less":     {SHA256: sum, Volumes: []spec.SnapshotVolume{{Name: "data", Size: -1}}},
		"a volume of a path":   {SHA256: sum, Volumes: []spec.SnapshotVolume{{Name: "../x"}}},
		"a story":              {SHA256: sum, How: strings.Repeat("x", 1<<20)},
		"no sum":               {},
		"more volumes than 64": {SHA256: sum, Volumes: make([]spec.SnapshotVolume, 65)},
	} {
		s.do(BeginSnapshot{ID: "one", Claim: spec.VolumeClaim{Service: key("acme", "shop")}, Import: true, Org: "acme"})
		s.do(EndSnapshot{ID: "one", Info: &info})
		if list := s.c.Snapshots(); len(list) != 0 {
			t.Errorf("%s: %+v", what, list)
		}
	}
}

// Volumes that are kept for themselves are in the directory that a restored snapshot replaces, and do not go with it unasked.
func TestRestoreSparesKeptVolumes(t *testing.T) {
	s := newOverlayNetSite(t)
	worker := s.join(1)
	disk := spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB, Storage: 100 * skerry.GiB}
	s.report(worker, wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Capacity: disk}})
	claim := spec.VolumeClaim{Service: key("acme", "shop")}
	for _, name := range []string{"data", "base"} { // it was renamed
		s.c.volumes.Place(claim, worker, volumes.Want{Org: "acme", Names: []string{name}})
		s.c.volumes.Ran(claim, worker)
		id := spec.SnapshotID("of-" + name)
		s.do(BeginSnapshot{ID: id, Claim: claim, Import: true, Org: "acme"})
		s.do(EndSnapshot{ID: id, Info: &spec.Snapshot{SHA256: strings.Repeat("0", 64), Size: 1000, How: spec.SnapshotImported,
			Volumes: []spec.SnapshotVolume{{Name: name, Size: skerry.GiB}}}})
	}
	begin := func(id spec.SnapshotID) error {
		fx := s.c.Step(s.now, BeginRestore{ID: id, To: claim})
		s.keep(fx)
		return fx.Err
	}
	if e := skerry.AsError(begin("of-base")); e == nil || e.Code != skerry.CodeConflict || !strings.Contains(e.Hint, "/0:data") {
		t.Errorf("a kept volume would be lost: %v", e)
	}
	if err := begin("of-data"); err != nil {
		t.Errorf("a snapshot of the kept volume itself: %v", err)
	}
}

// Where the answer to a restore is lost, the volume may have been restored: that is said, and not that it was not.
func TestRestoreWithoutAnAnswer(t *testing.T) {
	s := newOverlayNetSite(t)
	worker := s.join(1)
	disk := spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB, Storage: 100 * skerry.GiB}
	s.report(worker, wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Capacity: disk}})
	claim := spec.VolumeClaim{Service: key("acme", "shop")}
	s.c.volumes.Place(claim, worker, volumes.Want{Org: "acme", Names: []string{"data"}})
	s.c.volumes.Ran(claim, worker)
	s.do(BeginSnapshot{ID: "one", Claim: claim, Import: true, Org: "acme"})
	s.do(EndSnapshot{ID: "one", Info: &spec.Snapshot{SHA256: strings.Repeat("0", 64), Size: 1000, How: spec.SnapshotImported,
		Volumes: []spec.SnapshotVolume{{Name: "data", Size: skerry.GiB}}}})
	said := func(to spec.VolumeClaim, clone bool) string {
		fx := s.c.Step(s.now, BeginRestore{ID: "one", To: to, Clone: clone})
		s.keep(fx)
		plan, ok := fx.Result.(RestorePlan)
		if !ok {
			t.Fatalf("restore to %s: %v", to, fx.Err)
		}
		fx = s.c.Step(s.now, EndRestore{RestorePlan: plan, Lost: true, Err: "it broke off"})
		s.keep(fx)
		text := ""
		for _, e := range fx.Events {
			text += e.Reason + ": " + e.Text
		}
		if s.c.volumes.Busy(to) {
			t.Errorf("volume %s is still being restored", to)
		}
		return text
	}
	if text := said(claim, false); !strings.Contains(text, "RestoreUnknown") || strings.Contains(text, "is not restored") {
		t.Errorf("where the volume is: %q, want that nobody knows", text)
	}
	other := spec.VolumeClaim{Service: key("acme", "copy")}
	if text := said(other, true); !strings.Contains(text, "VolumeNotRestored") { // what is there then counts for nobody
		t.Errorf("a new volume: %q, want that there is none", text)
	}
}
