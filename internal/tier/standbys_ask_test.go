package tier

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/link"
)

// joinStandby connects a standby that serves something.
func joinStandby(t *testing.T, s *Standbys, name string, serves http.HandlerFunc) {
	t.Helper()
	here, there := net.Pipe()
	go s.Serve(t.Context(), there, name, func() error { return nil })
	d, err := link.NewDuplex(here, true, standbyKeepAlive, serves)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := (&Standby{}).tell(t.Context(), d, have{Anew: true}); err != nil {
		t.Fatal(err)
	}
}

// TestStandbyThatDoesNotAnswer: what one standby does not answer another one is asked for, soon, and first from then on.
func TestStandbyThatDoesNotAnswer(t *testing.T) {
	s := NewStandbys()
	s.Answers = 3 * time.Second
	over, asked := make(chan struct{}), make(chan struct{}, 10)
	joinStandby(t, s, "first", func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-over
	})
	defer close(over)
	joinStandby(t, s, "second", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "it") })
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://standby/v2/shop/web/blobs/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		res, err := s.RoundTrip(r)
		if err != nil {
			t.Fatalf("request: got %v, want no error", err)
		}
		res.Body.Close()
		if took := time.Since(begun); res.StatusCode != http.StatusOK || took > 20*time.Second {
			t.Errorf("request: got status %d after %v, want 200 soon", res.StatusCode, took)
		}
	}
	if n := len(asked); n != 1 {
		t.Errorf("requests to the one that does not answer: got %d, want 1", n)
	}
}

// TestStandbyTellsTooMuch: what a standby tells takes no more memory than as many images as a registry has.
func TestStandbyTellsTooMuch(t *testing.T) {
	s, b := NewStandbys(), &standby{whole: map[digest.Digest]bool{}}
	var refused error
	for n := range 6 {
		var told have
		for i := range 100_000 {
			told.Whole = append(told.Whole, digest.Digest(fmt.Sprintf("sha256:%064x", n*100_000+i)))
		}
		refused = s.hear(b, told)
	}
	if refused == nil || len(b.whole) > maxWhole {
		t.Errorf("images of a standby that tells of 600,000: got %d, %v, want a refusal", len(b.whole), refused)
	}
	if err := s.hear(b, have{Anew: true}); err != nil || len(b.whole) != 0 {
		t.Errorf("it begins anew: got %d, %v, want 0", len(b.whole), err)
	}
}

// TestStandbyAfterManyThatLeft: those that left keep none from coming, such as processes that have a new name whenever they start. The
// first of them is forgotten.
func TestStandbyAfterManyThatLeft(t *testing.T) {
	s := NewStandbys()
	for n := range maxStandbys {
		s.list[fmt.Sprint("left-", n)] = &standby{whole: map[digest.Digest]bool{}, heard: time.Now().Add(-time.Duration(n) * time.Minute)}
	}
	joinStandby(t, s, "one-more", http.NotFound)
	left := map[string]bool{}
	for _, v := range s.List() {
		left[v.Name] = true
	}
	first := fmt.Sprint("left-", maxStandbys-1)
	if len(left) != maxStandbys || !left["one-more"] || left[first] {
		t.Errorf("standbys: got %v, want one-more in the place of %s", left, first)
	}
}
