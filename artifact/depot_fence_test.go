//go:build linux

package artifact

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

func (m *machine) lead(incarnation string, term uint64) error {
	return LeadDepot(m.t.Context(), m.Store, Leader{incarnation, term})
}

// TestDeposedRegistry: a process that led before neither names an image after its successor has taken over, nor takes a name away, nor
// comes back. What the successor has acknowledged stays.
func TestDeposedRegistry(t *testing.T) {
	depot := newShelf()
	first := depot.again(t)
	if err := first.lead("a", 1); err != nil {
		t.Fatalf("the first leads: %v", err)
	}
	first.push(t, "team/app:1", 1000)
	second := depot.again(t)
	if err := second.lead("a", 2); err != nil {
		t.Fatalf("the second leads: %v", err)
	}
	want := second.push(t, "team/app:1", 2000)

	if _, err := pushImage(t, first.host, "team/app:1", 1, 3000); err == nil || !strings.Contains(err.Error(), "has taken over") {
		t.Errorf("a push to the first: %v, want a refusal that names the second", err)
	}
	if _, err := pushImage(t, first.host, "team/new:1", 1, 3000); err == nil {
		t.Error("a new name was given by the first, want a refusal")
	}
	if code, text := first.ask(http.MethodDelete, "team/app/manifests/1", nil); code != http.StatusServiceUnavailable {
		t.Errorf("a deletion by the first: got %d %s, want %d", code, text, http.StatusServiceUnavailable)
	}
	if err := SettleDepot(t.Context(), first.Store); err == nil {
		t.Error("the first wrote what it is in doubt about, want a refusal")
	}
	first.pass(48 * time.Hour)
	_, _ = first.Collect(t.Context(), Limits{Untagged: time.Hour}, map[digest.Digest]bool{}) // its outcome does not matter
	deposed := new(DeposedError)
	if err := first.lead("a", 1); !errors.As(err, &deposed) || deposed.By.Term != 2 {
		t.Errorf("the first would lead again: %v, want that it is deposed by term 2", err)
	}
	third := depot.again(t)
	third.wantPulled("team/app:1")
	if got, _ := third.Store.Lookup(imageref.Ref{Registry: depotRegistry, Repository: "team/app", Tag: "1"}); got != want {
		t.Errorf("the tag means %s, want %s of the second", got, want)
	}
	if list := objects(t, depot, depotNames+"team/new"); len(list) != 0 {
		t.Errorf("the first wrote %v, want nothing", list)
	}
	// A store that was restored has a lower term, and another incarnation.
	if err := third.lead("b", 1); err != nil {
		t.Errorf("a restored one leads: %v", err)
	}
	third.push(t, "team/app:2", 1000)
	if _, err := pushImage(t, second.host, "team/app:3", 1, 3000); err == nil {
		t.Error("the second named an image after the restored one, want a refusal")
	}
}

// TestTakenOverAfterLook: a process finds out what the bucket has, and then takes over. What its predecessor has named in between is known
// to it; and one that finds itself deposed names nothing, although it knows what there is.
func TestTakenOverAfterLook(t *testing.T) {
	depot := newShelf()
	first := depot.again(t)
	if err := first.lead("a", 1); err != nil {
		t.Fatalf("the first leads: %v", err)
	}
	second := depot.again(t)
	first.push(t, "team/app:1", 1000)
	if err := second.lead("a", 2); err != nil {
		t.Fatalf("the second leads: %v", err)
	}
	second.wantPulled("team/app:1")
	late := depot.again(t)
	deposed := new(DeposedError)
	if err := late.lead("a", 1); !errors.As(err, &deposed) {
		t.Errorf("one of an earlier term would lead: %v, want that it is deposed", err)
	}
	if _, err := pushImage(t, late.host, "team/app:1", 1, 3000); err == nil {
		t.Error("it named an image, want a refusal")
	}
	listed := 0
	depot.then(func(method, _ string) error {
		if method == "LIST" {
			listed++
		}
		return nil
	})
	if err := second.lead("a", 3); err != nil || listed > 0 {
		t.Errorf("the next life of the second: %v, and the bucket was listed %d times, want 0: nobody else has led", err, listed)
	}
}

// TestFullDepot: what would be more than a registry reads when it starts is refused. What is there can be pushed again.
func TestFullDepot(t *testing.T) {
	shelf := newShelf()
	m := shelf.again(t)
	image, err := pushImage(t, m.host, "team/app:1", 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	again := func(ref string) error {
		name, err := gname.ParseReference(m.host+"/"+ref, gname.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		return remote.Write(name, image)
	}
	kept := m.Store.depot
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "as many "+what) {
			t.Errorf("one more of %s: got %v, want it refused", what, err)
		}
		if err := again("team/app:1"); err != nil {
			t.Errorf("what is there, with no room for more %s: got %v, want it taken", what, err)
		}
	}
	kept.mostBlobs = len(kept.blobs)
	_, err = pushImage(t, m.host, "team/app:2", 1, 2000)
	refused("blobs", err)
	kept.mostNames = len(m.Store.names)
	refused("names", again("team/app:2"))
	shelf.again(t).wantPulled("team/app:1")
}
