package cluster

import (
	"fmt"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// An organisation can neither fill the site's store with empty snapshots nor keep its workers busy with many at a time; others are not
// affected.
func TestSnapshotsOfOneOrganisation(t *testing.T) {
	s := newFabricSite(t)
	s.join(1)
	claim := skerry.VolumeClaim{Service: key("acme", "shop")}
	begin := func(n int, org string) error {
		return s.c.Step(s.now, BeginSnapshot{ID: skerry.SnapshotID(fmt.Sprintf("%s%d", org, n)), Claim: claim, Import: true, Org: org}).Err
	}
	end := func(n int) {
		s.do(EndSnapshot{ID: skerry.SnapshotID(fmt.Sprintf("acme%d", n)), Info: &skerry.Snapshot{SHA256: strings.Repeat("0", 64)}})
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
