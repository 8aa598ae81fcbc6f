package tier

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
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

// TestRevokedStandbyIsNone: one that may not stand by any more, and asks for nothing, neither counts nor is waited for.
func TestRevokedStandbyIsNone(t *testing.T) {
	s := NewStandbys()
	s.Patience = 24 * time.Hour // it would not end
	here, there := net.Pipe()
	var revoked atomic.Bool
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(t.Context(), there, "second", func() error {
			if revoked.Load() {
				return errors.New("it was revoked")
			}
			return nil
		})
	}()
	d, err := link.NewDuplex(here, true, standbyKeepAlive, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := (&Standby{}).tell(t.Context(), d, have{Anew: true}); err != nil {
		t.Fatal(err)
	}
	revoked.Store(true)
	if c := s.Wait(t.Context(), "image"); c != (view.ImageCopies{}) {
		t.Errorf("copies when the only standby is revoked: got %+v, want no standby", c)
	}
	if err := <-served; err == nil {
		t.Error("its connection: got no error, want why it was closed")
	}
	if list := s.List(); len(list) != 0 {
		t.Errorf("standbys: got %+v, want none", list)
	}
}
