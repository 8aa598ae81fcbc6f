package tier

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/link"
	"skerry.dev/skerry/view"
)

// TestWaitsForStandbysInStep: whoever waits for copies of an image goes on when the standbys in step have it, and not before, or when its
// patience ends. Then the one that was late is not in step any more.
func TestWaitsForStandbysInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStandbys()
		b := &standby{link: &link.Duplex{}, whole: map[digest.Digest]bool{}}
		s.list["second"] = b
		s.hear(b, have{Anew: true})
		var got *view.ImageCopies
		wait := func(image digest.Digest) {
			got = nil
			go func() {
				c := s.Wait(t.Context(), image)
				got = &c
			}()
			synctest.Wait()
		}
		wait("first")
		if got != nil {
			t.Fatalf("copies before the standby has the image: got %+v, want to wait", *got)
		}
		s.hear(b, have{Whole: []digest.Digest{"first"}})
		synctest.Wait()
		if got == nil || *got != (view.ImageCopies{Have: 1, Of: 1}) {
			t.Fatalf("copies when it has: got %+v, want 1 of 1", got)
		}
		wait("second")
		time.Sleep(standbyPatience)
		synctest.Wait()
		if got == nil || *got != (view.ImageCopies{Of: 1}) {
			t.Fatalf("copies when patience ends: got %+v, want 0 of 1", got)
		}
		if wait("third"); got == nil {
			t.Error("copies at one that was late: got to wait, want none to be waited for")
		}
	})
}
