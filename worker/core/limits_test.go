package core

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// An instance that runs gets another policy without being restarted.
func TestEgressChanges(t *testing.T) {
	f := skerry.Fence{RootEpoch: 5, ClusterTerm: 5, Sequence: 5}
	d := newDevice(t)
	a := assignment(f)
	i := d.runs(a)
	a.Gen, a.Egress = 2, &spec.Egress{}
	acts := d.wants(a)
	if len(acts) != 1 || acts[0].(SetEgress).Egress.String() != "nothing" || i.Phase != skerry.PhaseRunning {
		t.Errorf("%+v in %s", acts, i.Phase)
	}
	if acts := d.wants(a); len(acts) != 0 {
		t.Errorf("told again it does %+v", acts)
	}
	d.start() // another life knows it
	if got := d.c.ledger.insts[a.ID].A.Egress; got == nil {
		t.Error("the policy is forgotten")
	}
}
