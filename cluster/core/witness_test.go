package core

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/wire"
)

// Whoever exchanges packets with a suspect is asked first, and is told its number in the overlay: it may have a way to it where the
// suspect's address leads nowhere.
func TestWitnessesOfTheOverlay(t *testing.T) {
	s := newOverlayNetSite(t)
	for n := range 8 {
		s.join(n)
	}
	for name := range s.c.workers {
		other := "w3"
		if name == other {
			other = "w6"
		}
		s.c.paths = network.NewPaths()
		s.c.paths.Route(other, skerry.ServiceKey{}, []string{name})
		var fx wire.Effects
		w := s.c.workers[name]
		s.c.guard.suspect(s.now, w, &fx)
		if len(fx.Actions) != 3 {
			t.Fatalf("%s: %d are asked", name, len(fx.Actions))
		}
		for i, a := range fx.Actions {
			ask := a.(AskWitness)
			if ask.Suspect != name || ask.Peer != w.Peer || ask.Peer == 0 || ask.Target != "" || (ask.Witness == other) != (i == 0) {
				t.Errorf("%s, %d: %+v", name, i, ask)
			}
		}
	}
}
