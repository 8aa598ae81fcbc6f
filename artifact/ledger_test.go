package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

type askedStandbys struct{ n atomic.Int64 }

// RoundTrip implements http.RoundTripper.
func (a *askedStandbys) RoundTrip(r *http.Request) (*http.Response, error) {
	a.n.Add(1)
	return nil, http.ErrHandlerTimeout
}

// TestStandbysAreAskedLast: what comes from the tier above is asked for there, and not first at standbys, which do not have it and may not
// answer.
func TestStandbysAreAskedLast(t *testing.T) {
	serve := func(ledger *Ledger, above ...*Source) string {
		st, err := Open(filepath.Join(t.TempDir(), "images"), Options{Local: imageref.BuiltIn, Ledger: ledger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		srv := httptest.NewServer(&Handler{Store: st, Registry: imageref.BuiltIn, UpstreamLocal: above,
			Authorize: func(*http.Request, string, string) error { return nil }})
		t.Cleanup(srv.Close)
		return srv.Listener.Addr().String()
	}
	root := serve(nil)
	standbys := &askedStandbys{}
	cluster := serve(&Ledger{Others: standbys}, &Source{BaseURL: "http://" + root})
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	at := func(host string) gname.Reference {
		ref, err := gname.ParseReference(host+"/shop/web:1", gname.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	if err := remote.Write(at(root), image); err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(at(cluster))
	if err == nil {
		err = validate.Image(got)
	}
	if err != nil {
		t.Errorf("pull: got %v, want no error", err)
	}
	if n := standbys.n.Load(); n != 0 {
		t.Errorf("requests to standbys for an image of the tier above: got %d, want 0", n)
	}
}

// memDepot has objects in memory.
type memDepot struct {
	mu      sync.Mutex
	objects map[string]string
}

func (d *memDepot) Put(_ context.Context, name string, from io.Reader, _ int64) error {
	raw, err := io.ReadAll(from)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects[name] = string(raw)
	return err
}

func (d *memDepot) Get(_ context.Context, name string, offset int64) (io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.objects[name]; !there {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(d.objects[name][offset:])), nil
}

func (d *memDepot) Delete(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, name)
	return nil
}

func (d *memDepot) List(_ context.Context, prefix string, each func(string, int64, time.Time) error) error {
	d.mu.Lock()
	all := maps.Clone(d.objects)
	d.mu.Unlock()
	for name, content := range all {
		if strings.HasPrefix(name, prefix) {
			if err := each(name, int64(len(content)), time.Time{}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *memDepot) String() string { return "memory" }

// TestStandbysFillMoreThanTheCache: what a process that leads lacks of its own images comes from a standby, however little it may keep of
// other registries' images.
func TestStandbysFillMoreThanTheCache(t *testing.T) {
	names := &memDepot{objects: map[string]string{}}
	open := func(cache int64, others http.RoundTripper) *Store {
		st, err := Open(filepath.Join(t.TempDir(), "images"), Options{Local: imageref.BuiltIn, MaxCache: cache,
			Ledger: &Ledger{Names: names, Life: "one", Others: others}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		if err := LoadDepot(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	first := open(0, http.DefaultTransport)
	srv := httptest.NewServer(&Handler{Store: first, Registry: imageref.BuiltIn,
		Authorize: func(*http.Request, string, string) error { return nil }})
	defer srv.Close()
	image, err := random.Image(3<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := gname.ParseReference(srv.Listener.Addr().String()+"/shop/web:1", gname.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	held := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		q.Set("ns", imageref.BuiltIn)
		r.URL.RawQuery = q.Encode()
		Held(first).ServeHTTP(w, r)
	}))
	defer held.Close()
	second := open(1<<20, transportTo(held.Listener.Addr().String()))
	told := 0
	Complete(t.Context(), second, Completion{Each: func(_ digest.Digest, err error) bool {
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

type transportTo string

// RoundTrip implements http.RoundTripper.
func (t transportTo) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = string(t)
	return http.DefaultTransport.RoundTrip(r)
}

// TestLedgerIsBounded: whoever may push does not fill the store of the role, in which everything else is as well.
func TestLedgerIsBounded(t *testing.T) {
	st, err := Open(filepath.Join(t.TempDir(), "images"), Options{Local: imageref.BuiltIn,
		Ledger: &Ledger{Names: &memDepot{objects: map[string]string{}}, Life: "one"}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := LoadDepot(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	repo := imageref.Ref{Registry: imageref.BuiltIn, Repository: "shop/web"}
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
	one := imageref.Ref{Registry: imageref.BuiltIn, Repository: "shop/web", Tag: "1"}
	if err := publish(t.Context(), st, one, name{Digest: digest.FromString("one"), Pushed: true}); !errors.Is(err, ErrFull) {
		t.Errorf("one name more than %d: got %v, want %v", maxLedgerNames, err, ErrFull)
	}
}
