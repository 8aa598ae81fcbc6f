package tier

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// A standby that tells that it has everything before its connection is noted is waited for. One whose connection has ended is not, whatever
// is still on its way.
func TestStandbyTellsEarly(t *testing.T) {
	image := digest.FromString("image")
	for _, ended := range []bool{false, true} {
		s := NewStandbys()
		s.Patience = 10 * time.Millisecond
		one := &standby{whole: map[digest.Digest]bool{}, ended: ended}
		s.list["one"] = one
		if err := s.hear(one, have{Anew: true}); err != nil {
			t.Fatalf("hear a report: %v", err)
		}
		if one.inStep == ended {
			t.Errorf("the connection has ended: %v; waited for: %v", ended, one.inStep)
		}
		if c := s.Wait(t.Context(), image); c.Have != 0 || c.Of != 1 {
			t.Errorf("%d of %d have the image, want 0 of 1", c.Have, c.Of)
		}
	}
}
