//go:build linux

package artifact

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// startLedger gives a process that leads, with nothing on its disk.
func startLedger(t *testing.T, names Depot, cache int64, others http.RoundTripper) *machine {
	t.Helper()
	return startRegistry(t, filepath.Join(t.TempDir(), "images"), Options{MaxCache: cache,
		Ledger: &Ledger{Names: names, Life: "one", Others: others}}).load()
}

// TestStandbysAreAskedLast: what comes from the tier above is asked for there, and not first at standbys, which do not have it and may not
// answer.
func TestStandbysAreAskedLast(t *testing.T) {
	root := startRegistry(t, filepath.Join(t.TempDir(), "images"), Options{})
	root.push(t, "shop/web:1", 1000)
	var asked atomic.Int64
	cluster := startLedger(t, newShelf(), 0, roundTripper(func(*http.Request) (*http.Response, error) {
		asked.Add(1)
		return nil, http.ErrHandlerTimeout
	}))
	cluster.UpstreamLocal = []*Source{{BaseURL: "http://" + root.host}}
	cluster.wantPulled("shop/web:1")
	if n := asked.Load(); n != 0 {
		t.Errorf("requests to standbys for an image of the tier above: got %d, want 0", n)
	}
}

// TestStandbysFillMoreThanTheCache: what a process that leads lacks of its own images comes from a standby, however little it may keep of
// other registries' images.
func TestStandbysFillMoreThanTheCache(t *testing.T) {
	names := newShelf()
	first := startLedger(t, names, 0, nil)
	first.push(t, "shop/web:1", 3<<20)
	held := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		q.Set("ns", depotRegistry)
		r.URL.RawQuery = q.Encode()
		Held(first.Store).ServeHTTP(w, r)
	}))
	second := startLedger(t, names, 1<<20, roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Host = held
		return http.DefaultTransport.RoundTrip(r)
	}))
	told := 0
	Complete(t.Context(), second.Store, Completion{Each: func(_ digest.Digest, err error) bool {
		told++
		if err != nil {
			t.Errorf("image: got %v, want no error", err)
		}
		return true
	}})
	if told != 1 {
		t.Errorf("images told of: got %d, want 1", told)
	}
}

// TestLedgerIsBounded: whoever may push does not fill the store of the role, in which everything else is as well.
func TestLedgerIsBounded(t *testing.T) {
	st := startLedger(t, newShelf(), 0, nil).Store
	repo := imageref.Ref{Registry: depotRegistry, Repository: "shop/web"}
	var layers []string
	for n := range 100 {
		sum := digest.FromString(fmt.Sprint(n))
		if err := st.proofs.note(repo, sum); err != nil {
			t.Fatal(err)
		}
		layers = append(layers, fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.nondistributable.v1.tar","urls":["http://x/"],`+
			`"size":1,"digest":"%s"}`, sum))
	}
	wide := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":`+
		`"application/vnd.oci.image.config.v1+json","size":2,"digest":"%s"},"layers":[%s]}`, digest.FromString("{}"), strings.Join(layers, ","))
	sum := digest.FromString(wide)
	if _, err := st.putBlob([]byte(wide), sum); err != nil {
		t.Fatal(err)
	}
	if err := publish(t.Context(), st, repo.Pinned(sum), name{Digest: sum, Pushed: true}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("name of an image with 100 layers that lie elsewhere: got %v, want %v", err, ErrTooLarge)
	}
	for n := range maxLedgerNames {
		st.names[fmt.Sprint("name", n)] = name{Digest: digest.FromString("one")}
	}
	one := imageref.Ref{Registry: depotRegistry, Repository: "shop/web", Tag: "1"}
	if err := publish(t.Context(), st, one, name{Digest: digest.FromString("one"), Pushed: true}); !errors.Is(err, ErrFull) {
		t.Errorf("one name more than %d: got %v, want %v", maxLedgerNames, err, ErrFull)
	}
}
