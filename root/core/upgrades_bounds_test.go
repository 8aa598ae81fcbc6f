package core

import (
	"strings"
	"testing"

	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// A site that goes back and forth between upgraded and not has the root write nothing.
func TestFlappingSiteWritesNothing(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true}, Digest: agentImage})
	order, writes := r.upgrade().Sites[0].Seq, 0
	for n := range 100 {
		fx := r.step(ChildFrame{Name: "a", Msg: &wire.Report{Kind: wire.ReportCluster,
			Payload: granting(&wire.SiteUpgrade{Seq: order, Workers: 2, Upgraded: 1 + n%2})}})
		for _, w := range fx.Writes {
			if strings.HasPrefix(w.Key, prefixUpgrade) {
				writes++
			}
		}
	}
	if writes > 2 {
		t.Errorf("100 reports of one site had the upgrade written %d times", writes)
	}
}
