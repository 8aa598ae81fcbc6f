package core

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Volumes that are wanted again while they are being removed are in the book, and no contradiction (step asks for the audit): the removal goes
// on, and an instance that asks for them afterwards gets new ones.
func TestVolumesAreWantedWhileTheyAreRemoved(t *testing.T) {
	for what, failure := range map[string]string{"it succeeds": "", "it fails": "busy"} {
		t.Run(what, func(t *testing.T) {
			d := newDevice(t)
			other := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
			claim := spec.VolumeClaim{Service: other.Service}
			other.ID, other.Service.Service = "other", "other"
			want := func(wanted bool) (acts []any) {
				t.Helper()
				if !wanted {
					d.src.Delete(claim.Key())
				} else if _, err := d.src.Put(claim.Key(), wire.New().Marshal(&claim)); err != nil {
					t.Fatal(err)
				}
				other.Gen++
				return d.wants(other)
			}
			want(true)
			if !has[RemoveVolumes](want(false)) {
				t.Fatal("they are not removed")
			}
			want(true)
			d.step(VolumesRemoved{Claim: claim, Err: failure})
			if v := d.c.volumes.claims[claim]; v == nil || v.Gone {
				t.Errorf("wanted again, and in the book: %+v", v)
			}
		})
	}
}

// A removal that is due while an instance is there waits for its end, and has the core woken no more: a time that has passed would have it
// woken again and again.
func TestRemovalThatIsDueWakesOnce(t *testing.T) {
	d := newDevice(t)
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	claim := spec.VolumeClaim{Service: a.Service}
	if _, err := d.src.Put(claim.Key(), wire.New().Marshal(&claim)); err != nil {
		t.Fatal(err)
	}
	other := a
	other.ID, other.Service.Service = "other", "other"
	d.wants(other)
	d.src.Delete(claim.Key())
	other.Gen++
	d.wants(other)
	d.step(VolumesRemoved{Claim: claim, Err: "busy"})
	d.wants(a)
	d.now = d.now.Add(removeAgain)
	d.keep(d.c.Tick(d.now))
	if next := d.c.NextWake(); !next.IsZero() && !next.After(d.now) {
		t.Errorf("woken at %s, it is to be woken again at %s", d.now, next)
	}
}
