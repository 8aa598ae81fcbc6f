//go:build linux

package artifact

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/internal/testenv"
)

const depotDir, depotURL = "SKERRY_TEST_DEPOT_DIR", "SKERRY_TEST_DEPOT_URL"

// TestDepotProcess is the process that TestDepotKilled kills: it pushes images under a few tags, and collects, until its end.
func TestDepotProcess(t *testing.T) {
	dir := os.Getenv(depotDir)
	if dir == "" {
		t.Skip(&testenv.Unsupported{What: "the process that TestDepotKilled kills", Why: "only that test starts it"})
	}
	server := &testenv.S3{URL: os.Getenv(depotURL), Region: "eu-test-1", Key: "tester", Secret: "not much of a secret"}
	var ahead atomic.Int64
	s, err := Open(dir, Options{Depot: bucket(t, server, server.URL, "images"), Local: depotRegistry,
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := LoadDepot(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	pushForEver(t, &Handler{Store: s, Registry: depotRegistry, Authorize: allow}, &ahead, 30*time.Hour)
}

// TestDepotKilled kills a registry that pushes and collects, again and again. A successor, with nothing on its disk, has whatever
// it said it had, whole, and nothing is left in the end that no name needs.
func TestDepotKilled(t *testing.T) {
	server := testenv.NewS3(t, "..")
	server.Bucket(t, "images")
	dir := filepath.Join(t.TempDir(), "images")
	for round := range 5 {
		pushed := killedAfter(t, "TestDepotProcess", 3+round, depotDir+"="+dir, depotURL+"="+server.URL)
		depot := bucket(t, server, server.URL, "images")
		next := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load()
		for tag := range pushed {
			next.wantPulled(tag)
		}
		next.pass(1000 * time.Hour)
		next.collect(t, Limits{})
		next.Store.mu.Lock()
		live, _, _ := next.Store.liveLocked(t.Context(), nil)
		next.Store.mu.Unlock()
		if left := objects(t, depot, depotBlobs); len(left) != len(live) {
			t.Errorf("round %d: %d blobs are kept, want the %d that are needed", round, len(left), len(live))
		}
	}
}

// TestDepotIsSlow: a push is acknowledged when the depot has it, and not before; meanwhile what is on the disk is served. A client
// that gives up ends its push.
func TestDepotIsSlow(t *testing.T) {
	server := testenv.NewS3(t, "..")
	server.Bucket(t, "images")
	pass := passing(server)
	front, url := startGate(t, pass)
	reg := startMachine(t, filepath.Join(t.TempDir(), "images"), bucket(t, server, url, "images"), 0).load()
	reg.push(t, "team/app:1", 5000)
	asked, open := make(chan struct{}, 10), make(chan struct{})
	front.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-open
		panic(http.ErrAbortHandler) // it is tried again
	}))
	answer := make(chan int, 1)
	go func() {
		code, _ := reg.pushBlob("team/app", "a slow one")
		answer <- code
	}()
	<-asked
	reg.wantPulled("team/app:1")
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+reg.host+"/v2/team/app/blobs/uploads/?digest="+
			digest.FromString("another").String(), strings.NewReader("another"))
		if err == nil {
			_, err = http.DefaultClient.Do(r)
		}
		given <- err
	}()
	<-asked
	cancel()
	if err := <-given; err == nil {
		t.Errorf("a push that was given up was acknowledged")
	}
	select {
	case code := <-answer:
		t.Errorf("the push was answered with %d before the depot had it", code)
	default:
	}
	front.set(pass)
	close(open)
	if code := <-answer; code != http.StatusCreated {
		t.Errorf("the push gives %d in the end, want %d", code, http.StatusCreated)
	}
}
