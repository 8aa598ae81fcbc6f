//go:build linux

package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// startLedger gives a process that leads, with nothing on its disk.
func startLedger(t *testing.T, names Depot, cache int64, others http.RoundTripper) *machine {
	t.Helper()
	return startRegistry(t, filepath.Join(t.TempDir(), "images"), Options{MaxCache: cache,
		Ledger: &Ledger{Names: names, Life: "one", Others: others}}).load()
}

// heldBy asks a process for what is on its disk.
func heldBy(t *testing.T, m *machine) http.RoundTripper {
	t.Helper()
	host := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		q.Set("ns", depotRegistry)
		r.URL.RawQuery = q.Encode()
		Held(m.Store).ServeHTTP(w, r)
	}))
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Host = host
		return http.DefaultTransport.RoundTrip(r)
	})
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
	second := startLedger(t, names, 1<<20, heldBy(t, first))
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

// TestSameImageOfAnotherRepository: a process that stood by and has an image on its disk serves it under each name that it was pushed to,
// from the moment on that it leads, although nobody had it look at a name that came last.
func TestSameImageOfAnotherRepository(t *testing.T) {
	names := newShelf()
	first := startLedger(t, names, 0, nil)
	img, err := pushImage(t, first.host, "shop/web:1", 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	others := &gone{to: heldBy(t, first)}
	second := startLedger(t, names, 0, others)
	Complete(t.Context(), second.Store, Completion{Each: func(_ digest.Digest, err error) bool {
		if err != nil {
			t.Errorf("copy the image: got %v, want no error", err)
		}
		return true
	}})
	copied, err := gname.ParseReference(first.host+"/shop/copy:1", gname.Insecure)
	if err == nil {
		err = remote.Write(copied, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := ReloadLedger(t.Context(), second.Store); err != nil {
		t.Fatal(err)
	}
	others.is.Store(true)
	second.wantPulled("shop/web:1")
	second.wantPulled("shop/copy:1")
}

// gone is a process that can be asked until it is gone.
type gone struct {
	to http.RoundTripper
	is atomic.Bool
}

func (g *gone) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.is.Load() {
		return nil, errors.New("it is gone")
	}
	return g.to.RoundTrip(r)
}

// TestNameWithoutContent: an image that is named, and that nobody has who can be asked, is not told to be unknown, to whom it would count
// as deleted. Whoever asks whether to push it is told to, and it is there again.
func TestNameWithoutContent(t *testing.T) {
	names := newShelf()
	nobody := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	first, second := startLedger(t, names, 0, nobody), (*machine)(nil)
	img, err := pushImage(t, first.host, "shop/web:1", 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	second = startLedger(t, names, 0, nobody)
	sum := sumOf(t, img)
	above := &Source{BaseURL: "http://" + second.host}
	// want asks the root, and sites that know nothing yet: they say that something does not exist only if the root does.
	want := func(path string, get int) {
		t.Helper()
		for _, method := range []string{http.MethodHead, http.MethodGet} {
			site, atSite := startRegistry(t, filepath.Join(t.TempDir(), "site"), Options{}), get
			if get == http.StatusServiceUnavailable {
				atSite = http.StatusBadGateway
			}
			site.UpstreamLocal = []*Source{above}
			if code, text := site.ask(method, path, nil); code != atSite {
				t.Errorf("%s of %s at a site: got %d %s, want %d", method, path, code, text, atSite)
			}
		}
		if code, text := second.ask(http.MethodGet, path, nil); code != get {
			t.Errorf("GET of %s: got %d %s, want %d", path, code, text, get)
		}
		if code, _ := second.ask(http.MethodHead, path, nil); code != http.StatusNotFound {
			t.Errorf("HEAD of %s: got %d, want %d", path, code, http.StatusNotFound)
		}
	}
	want("shop/web/manifests/1", http.StatusServiceUnavailable)
	want("shop/web/manifests/"+sum.String(), http.StatusServiceUnavailable)
	want("shop/web/manifests/2", http.StatusNotFound)
	want("other/manifests/"+sum.String(), http.StatusNotFound)
	if _, err := second.Store.Resolve(t.Context(), depotRegistry+"/shop/web:1", Platform{}); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("lookup here: got %v, want an error that does not say that it does not exist", err)
	}
	_, err = openStore(t, Options{}).Resolve(t.Context(), depotRegistry+"/shop/web:1", Platform{}, above)
	if err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("lookup at a site: got %v, want an error that does not say that it does not exist", err)
	}
	m, err := first.Store.readManifest(sum)
	if err == nil {
		_, err = second.Store.putBlob(m.raw, sum)
	}
	if err != nil {
		t.Fatal(err)
	}
	layer := m.image.Layers[0].Digest
	want("shop/web/blobs/"+layer.String(), http.StatusServiceUnavailable)
	want("other/blobs/"+layer.String(), http.StatusNotFound)
	if err := os.Remove(second.Store.blobPath(sum)); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(second.ref(t, "shop/web:1"), img); err != nil {
		t.Errorf("it is pushed again: got %v, want no error", err)
	}
	second.wantPulled("shop/web:1")
}

// TestPruneUntil: who must not wait for the end of it gets an end, and what is left goes the next time.
func TestPruneUntil(t *testing.T) {
	st := openStore(t, Options{})
	sum := digest.FromString("one")
	if _, err := st.putBlob([]byte("one"), sum); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	later := time.Now().Add(time.Hour)
	if _, err := PruneUntil(ended, st, later); !errors.Is(err, context.Canceled) {
		t.Errorf("it must end: got %v, want %v", err, context.Canceled)
	}
	if out, err := PruneUntil(t.Context(), st, later); err != nil || out.Blobs != 1 {
		t.Errorf("the next time: got %d blobs, %v, want 1", out.Blobs, err)
	}
	// Nor does it read what is needed, which may be many manifests.
	if err := st.putName(imageref.Ref{Registry: depotRegistry, Repository: "shop/web", Tag: "1"}, name{Digest: sum}); err != nil {
		t.Fatal(err)
	}
	if _, err := PruneUntil(ended, st, later); !errors.Is(err, context.Canceled) {
		t.Errorf("it must end, with nothing to remove: got %v, want %v", err, context.Canceled)
	}
}

// TestFullDiskOfAStandby: what is deleted at the one that leads goes from a standby's disk also when a list of the rest has no room.
func TestFullDiskOfAStandby(t *testing.T) {
	names := newShelf()
	first := startLedger(t, names, 0, nil)
	sum := first.push(t, "shop/web:1", 1<<20)
	disk := mountTmpfs(t, "3m")
	second, err := Open(filepath.Join(disk, "images"), Options{Local: depotRegistry,
		Ledger: &Ledger{Names: names, Life: "one", Others: heldBy(t, first), Follows: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := ReloadLedger(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	Complete(t.Context(), second, Completion{})
	if _, here := second.hasBlob(sum); !here {
		t.Fatalf("%s was not copied", sum)
	}
	if err := os.WriteFile(filepath.Join(disk, "other"), make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: got %v, want %v", err, syscall.ENOSPC)
	}
	if code, text := first.ask(http.MethodDelete, "shop/web/manifests/"+sum.String(), nil); code != http.StatusAccepted {
		t.Fatalf("delete: got %d %s, want %d", code, text, http.StatusAccepted)
	}
	if err := ReloadLedger(t.Context(), second); err != nil {
		t.Errorf("take the names over: got %v, want no error", err)
	}
	if _, here := second.hasBlob(sum); here {
		t.Errorf("%s is still on the full disk", sum)
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

// TestNamesOfOneOwner: an owner of images has as many names at most as are left for all others, and can go on with those that it has.
func TestNamesOfOneOwner(t *testing.T) {
	m := startLedger(t, newShelf(), 0, nil)
	m.Store.depot.mostNames, m.Store.depot.leastNames = 16, 4
	orgs := map[string]Share{"hostile": {Owner: "hostile", Namespaces: []string{"hostile", "hostile2"}}}
	orgs["hostile2"] = orgs["hostile"]
	m.Share = func(_ context.Context, namespace string) (Share, error) { return orgs[namespace], nil }
	push := func(name string) error {
		_, err := pushImage(t, m.host, name, 1, 1000)
		return err
	}
	n := 0
	for ; n < 16 && push(fmt.Sprintf("hostile%s/r%d:1", []string{"", "2"}[n%2], n)) == nil; n++ { // two names each: a tag and a digest
	}
	if n != 4 {
		t.Errorf("images of one owner: got %d, want 4 with 8 names of 16", n)
	}
	err := push("hostile/more:1")
	if err == nil || !strings.Contains(err.Error(), "hostile has 8 tags") {
		t.Errorf("one more: got %v, want a refusal that counts them", err)
	}
	for n := range 2 {
		if err := push(fmt.Sprintf("honest/r%d:1", n)); err != nil {
			t.Errorf("image %d of another owner: got %v, want no error", n, err)
		}
	}
	if names := len(m.Store.names); names != 12 {
		t.Errorf("names: got %d, want 12; what was refused left none", names)
	}
}
