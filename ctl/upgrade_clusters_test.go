package ctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/view"
)

// TestDoneWithFailures: an upgrade that left clusters behind is no success, though they were allowed to fail.
func TestDoneWithFailures(t *testing.T) {
	for _, row := range []struct {
		stage view.UpgradeStage
		want  string // of the error; empty: none
	}{{view.StageDone, ""}, {view.StageSkipped, ""}, {view.StageFailed, "not of all clusters: 1 cluster upgraded"}} {
		upgrade := view.Upgrade{State: view.UpgradeDone, Why: "1 cluster upgraded, 1 failed of 1 that may",
			Sites: []view.UpgradeCluster{{Cluster: "harbour", Stage: view.StageDone}, {Cluster: "hill", Stage: row.stage}}}
		upgrade.Name = "v2"
		var out bytes.Buffer
		err := followUpgrade(t.Context(), nil, &out, &upgrade, time.Minute)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("with a cluster that is %s: got %v, want %q", row.stage, err, row.want)
		}
	}
}
