//go:build linux

package artifact

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/internal/s3"
	"skerry.dev/skerry/internal/testenv"
)

const depotRegistry = "r.skerry"

// bucket gives a depot in a server of S3, reached at a URL.
func bucket(t *testing.T, server *testenv.S3, url, name string) *s3.Store {
	t.Helper()
	p, err := s3.ParsePlace("s3://" + name + "/of/root?endpoint=" + url + "&region=" + server.Region)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s3.OpenStore(p, s3.Config{AccessKey: server.Key, SecretKey: server.Secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// machine is a process of a registry on a disk of its own.
type machine struct {
	*aging
	t *testing.T
}

func startMachine(t *testing.T, dir string, d Depot, cache int64) *machine {
	t.Helper()
	return startRegistry(t, dir, Options{Depot: d, MaxCache: cache})
}

func startRegistry(t *testing.T, dir string, opt Options) *machine {
	t.Helper()
	a := &aging{}
	opt.Local, opt.Now = depotRegistry, a.now
	s, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	a.Handler = &Handler{Store: s, Registry: depotRegistry, Authorize: allow}
	a.host = startHandler(t, a)
	return &machine{a, t}
}

func (m *machine) load() *machine {
	m.t.Helper()
	if err := LoadDepot(m.t.Context(), m.Store); err != nil {
		m.t.Fatal(err)
	}
	return m
}

// pull gives what a client gets of an image, with all its layers.
func (m *machine) pull(name string) error {
	ref, err := gname.ParseReference(m.host+"/"+name, gname.Insecure)
	if err != nil {
		return err
	}
	img, err := remote.Image(ref, remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	if err != nil {
		return err
	}
	return validate.Image(img)
}

func (m *machine) ask(method, path string, body io.Reader) (int, string) {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.t.Context(), method, "http://"+m.host+"/v2/"+path, body)
	if err != nil {
		m.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// pushBlob uploads a blob in one request.
func (m *machine) pushBlob(repo, content string) (int, string) {
	return m.ask(http.MethodPost, repo+"/blobs/uploads/?digest="+digest.FromString(content).String(), strings.NewReader(content))
}

func (m *machine) wantPulled(names ...string) {
	m.t.Helper()
	for _, name := range names {
		if err := m.pull(name); err != nil {
			m.t.Errorf("%s is not pulled: %v", name, err)
		}
	}
}

// layersOnDisk counts the bytes of blobs on a machine's disk.
func (m *machine) onDisk() (sum int64) {
	m.t.Helper()
	blobs, err := blobsOf(m.Store)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, st := range blobs {
		sum += st.Size()
	}
	return sum
}

func objects(t *testing.T, d Depot, prefix string) (out []string) {
	t.Helper()
	if err := d.List(t.Context(), prefix, func(name string, _ int64, _ time.Time) error {
		out = append(out, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDepotOutlivesTheDisk: the disk of a registry is lost, and another process serves every image that was acknowledged; tags that moved,
// and images that were deleted, are as they were last. What the first one had on its disk before it knew the depot is there as well.
func TestDepotOutlivesTheDisk(t *testing.T) {
	server := testenv.NewS3(t, "..")
	server.Bucket(t, "images")
	depot := bucket(t, server, server.URL, "images")
	dir := filepath.Join(t.TempDir(), "images")
	before := startMachine(t, dir, nil, 0)
	old := before.push(t, "team/old:1", 3000)
	if err := before.Store.Close(); err != nil {
		t.Fatal(err)
	}
	one := startMachine(t, dir, depot, 0).load()
	first := one.push(t, "team/app:1", 5000)
	one.push(t, "team/app:gone", 5000)
	if code, text := one.ask(http.MethodDelete, "team/app/manifests/gone", nil); code != http.StatusAccepted {
		t.Fatalf("the deletion gives %d %s", code, text)
	}
	moved := one.push(t, "team/app:1", 6000)
	one.push(t, "other:1", 2000)
	if err := one.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}

	two := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load()
	two.wantPulled("team/app:1", "team/app@"+first.String(), "team/old:1", "team/old@"+old.String(), "other:1")
	if list := two.Store.List(); len(list) == 0 {
		t.Errorf("no image is listed")
	}
	for _, e := range two.Store.List() {
		if e.Broken != "" || e.Size < 2000 || len(e.Platforms) != 1 || e.LastUsed.IsZero() {
			t.Errorf("the list has %+v, want size and platform of each", e)
		}
		if e.Ref == depotRegistry+"/team/app:1" && e.Digest != moved {
			t.Errorf("the tag means %s, want %s", e.Digest, moved)
		}
	}
	if err := two.pull("team/app:gone"); err == nil {
		t.Errorf("a tag that was deleted is there again")
	}
	// Whoever knows a digest does not get it by another repository.
	if code, _ := two.ask(http.MethodGet, "other/manifests/"+first.String(), nil); code != http.StatusNotFound {
		t.Errorf("somebody else's manifest gives %d, want %d", code, http.StatusNotFound)
	}
	m, err := two.Store.readManifest(first)
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := two.ask(http.MethodGet, "other/blobs/"+m.image.Layers[0].Digest.String(), nil); code != http.StatusNotFound {
		t.Errorf("somebody else's layer gives %d, want %d", code, http.StatusNotFound)
	}
	two.push(t, "team/app:2", 1000)
	two.wantPulled("team/app:2")
}

// TestDepotCacheIsBounded: of the images in a depot as much is on the disk as the cache has room for, and all of them are served.
func TestDepotCacheIsBounded(t *testing.T) {
	server := testenv.NewS3(t, "..")
	server.Bucket(t, "images")
	depot := bucket(t, server, server.URL, "images")
	const room, size = 1 << 20, 300 << 10
	reg := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, room).load()
	var names []string
	for n := range 8 {
		names = append(names, fmt.Sprintf("team/app%d:1", n))
		reg.push(t, names[n], size)
		if got := reg.onDisk(); got > room {
			t.Errorf("after %d pushes %d bytes are on the disk, want at most %d", n+1, got, room)
		}
	}
	reg.wantPulled(names...)
	reg.wantPulled(names...)
	if got := reg.onDisk(); got > room {
		t.Errorf("after pulls %d bytes are on the disk, want at most %d", got, room)
	}
}

// gate lets a test cut off a server of S3, or answer in its place.
type gate struct {
	mu  sync.Mutex
	now http.Handler
}

func (g *gate) set(h http.Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = h
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	h := g.now
	g.mu.Unlock()
	h.ServeHTTP(w, r)
}

// passing passes requests on to a server as they were signed.
func passing(server *testenv.S3) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := *r.URL
		u.Scheme, u.Host = "http", strings.TrimPrefix(server.URL, "http://")
		body, _ := io.ReadAll(r.Body)
		to, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), bytes.NewReader(body))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		to.Header, to.Host = r.Header, r.Host
		res, err := http.DefaultTransport.RoundTrip(to)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer res.Body.Close()
		for k, v := range res.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	})
}

func startGate(t *testing.T, h http.Handler) (*gate, string) {
	g := &gate{now: h}
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	return g, s.URL
}

// TestDepotIsAway: while the depot is away, answers nonsense or refuses, what is on the disk is served, and nothing is pushed or
// deleted; the
// refusal says why. Afterwards all goes on.
func TestDepotIsAway(t *testing.T) {
	server := testenv.NewS3(t, "..")
	server.Bucket(t, "images")
	front, url := startGate(t, passing(server))
	depot := bucket(t, server, url, "images")
	dir := filepath.Join(t.TempDir(), "images")
	reg := startMachine(t, dir, depot, 0).load()
	kept := reg.push(t, "team/app:1", 5000)
	cut := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	refuse := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	problem := func(code string) string { return "<Error><Code>" + code + "</Code><Message>no</Message></Error>" }
	wantRefused := func(what, why string) {
		t.Helper()
		for _, try := range []func() (int, string){
			func() (int, string) { return reg.pushBlob("team/app", what) },
			func() (int, string) { return reg.ask(http.MethodDelete, "team/app/manifests/"+kept.String(), nil) },
		} {
			if code, text := try(); code != http.StatusServiceUnavailable || !strings.Contains(text, why) ||
				!strings.Contains(text, "s3://images/of/root") || strings.Contains(text, server.Secret) {
				t.Errorf("%s: %d %s, want %d with %q", what, code, text, http.StatusServiceUnavailable, why)
			}
		}
		reg.wantPulled("team/app:1")
	}
	for what, c := range map[string]struct {
		now http.Handler
		why string
	}{
		"away":                     {cut, "cannot be reached"},
		"a server in need":         {refuse(503, problem("SlowDown")), "SlowDown"},
		"nonsense":                 {refuse(500, "<html>"), "does not do it"},
		"a bucket that is missing": {refuse(404, problem("NoSuchBucket")), "there is no bucket images"},
		"a wrong key":              {refuse(403, problem("InvalidAccessKeyId")), "access key"},
		"a wrong secret":           {refuse(403, problem("SignatureDoesNotMatch")), "signature"},
	} {
		front.set(c.now)
		wantRefused(what, c.why)
	}

	// The same for a process that begins then: it knows what it knew before, and does not call unknown what may be there.
	if err := reg.Store.Close(); err != nil {
		t.Fatal(err)
	}
	front.set(refuse(200, "<html>"))
	reg = startMachine(t, dir, depot, 0)
	if err := LoadDepot(t.Context(), reg.Store); err == nil {
		t.Fatalf("nonsense is taken for a list of what is there")
	}
	wantRefused("after a restart", "not a list of objects")
	if code, text := reg.ask(http.MethodGet, "team/unknown/manifests/1", nil); code != http.StatusServiceUnavailable {
		t.Errorf("an image that may be there: %d %s, want %d", code, text, http.StatusServiceUnavailable)
	}
	front.set(passing(server))
	reg.load()
	reg.push(t, "team/app:2", 1000)
	reg.wantPulled("team/app:1", "team/app:2")
	if code, _ := reg.ask(http.MethodGet, "team/unknown/manifests/1", nil); code != http.StatusNotFound {
		t.Errorf("an image that is not there: %d, want %d", code, http.StatusNotFound)
	}

	// A bucket that was emptied is not taken for a registry without images.
	for _, name := range objects(t, depot, "") {
		if err := depot.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := reg.Store.Close(); err != nil {
		t.Fatal(err)
	}
	reg = startMachine(t, dir, depot, 0)
	if err := LoadDepot(t.Context(), reg.Store); err == nil || !strings.Contains(err.Error(), "not the one that was used before") {
		t.Errorf("an empty depot: %v, want it refused", err)
	}
	reg.wantPulled("team/app:1")
	if err := os.Remove(filepath.Join(dir, "depot")); err != nil {
		t.Fatal(err)
	}
	reg.load()
	startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load().wantPulled("team/app:1", "team/app:2")
}

// TestDepotIsDamaged: a blob that the bucket has changed is not served, and whoever pushes it again repairs it. One that the disk
// has changed comes from the bucket.
func TestDepotIsDamaged(t *testing.T) {
	server := testenv.NewS3(t, "..")
	server.Bucket(t, "images")
	depot := bucket(t, server, server.URL, "images")
	reg := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load()
	sum := reg.push(t, "team/app:1", 5000)
	manifest, err := reg.Store.readManifest(sum)
	if err != nil {
		t.Fatal(err)
	}
	layer := manifest.image.Layers[0]
	for _, blob := range []digest.Digest{sum, layer.Digest, manifest.image.Config.Digest} {
		if err := os.WriteFile(reg.Store.blobPath(blob), []byte("the disk was here"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A client that is cut off asks again.
	for range 2 {
		_, _ = reg.ask(http.MethodGet, "team/app/manifests/1", nil)
		for _, b := range []digest.Digest{layer.Digest, manifest.image.Config.Digest} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+reg.host+"/v2/team/app/blobs/"+b.String(), nil)
			if res, err := http.DefaultClient.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}
	}
	reg.wantPulled("team/app:1")

	whole, err := os.ReadFile(reg.Store.blobPath(layer.Digest))
	if err != nil {
		t.Fatal(err)
	}
	wrong := bytes.Repeat([]byte("x"), len(whole))
	if err := depot.Put(t.Context(), blobObject(layer.Digest), bytes.NewReader(wrong), int64(len(wrong))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(reg.Store.blobPath(layer.Digest)); err != nil {
		t.Fatal(err)
	}
	if err := reg.pull("team/app:1"); err == nil {
		t.Errorf("a damaged layer is served")
	}
	if code, _ := reg.ask(http.MethodHead, "team/app/blobs/"+layer.Digest.String(), nil); code != http.StatusNotFound {
		t.Errorf("whoever pushes a damaged layer again is told %d, want %d", code, http.StatusNotFound)
	}
	if code, text := reg.pushBlob("team/app", string(whole)); code != http.StatusCreated {
		t.Fatalf("it is pushed again with %d %s", code, text)
	}
	reg.wantPulled("team/app:1")
	startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load().wantPulled("team/app:1")
}

// TestDepotIsCollected: what is deleted or removed by age goes from the depot, too, and what a push that broke off left after a day.
// What is
// used stays.
func TestDepotIsCollected(t *testing.T) {
	server := testenv.NewS3(t, "..")
	server.Bucket(t, "images")
	front, url := startGate(t, passing(server))
	depot := bucket(t, server, url, "images")
	reg := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load()
	used := reg.push(t, "team/used:1", 3000)
	old := reg.push(t, "team/old:1", 3000)
	reg.push(t, "team/old:1", 4000) // the first one has no tag any more
	if code, text := reg.pushBlob("team/old", "left over"); code != http.StatusCreated {
		t.Fatalf("a blob is pushed with %d %s, want %d", code, text, http.StatusCreated)
	}
	has := func(sum digest.Digest) bool {
		t.Helper()
		from, err := depot.Get(t.Context(), blobObject(sum), 0)
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		from.Close()
		return true
	}
	reg.pass(48 * time.Hour)
	limits := Limits{Untagged: 24 * time.Hour}
	front.set(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	if _, err := reg.Collect(t.Context(), limits, map[digest.Digest]bool{used: true}); err == nil {
		t.Errorf("what nobody can delete is collected")
	}
	front.set(passing(server))
	reg.wantPulled("team/old@"+old.String(), "team/old:1")
	reg.pass(25 * time.Hour) // whoever pulled it has used it
	reg.collect(t, limits, used)
	reg.collect(t, limits, used)
	for what, c := range map[string]struct {
		sum  digest.Digest
		want bool
	}{"a used image": {used, true}, "an old image": {old, false}, "what was left over": {digest.FromString("left over"), false}} {
		if got := has(c.sum); got != c.want {
			t.Errorf("that the depot has %s is %t, want %t", what, got, c.want)
		}
	}
	two := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load()
	two.wantPulled("team/used:1", "team/old:1")
	if err := two.pull("team/old@" + old.String()); err == nil {
		t.Errorf("the old image is served")
	}
	for _, name := range []string{"used", "old"} {
		list := two.Store.namesOf(repoOf(depotRegistry + "/team/" + name + ":1"))
		for id := range list {
			code, text := two.ask(http.MethodDelete, "team/"+name+"/manifests/"+id, nil)
			if code != http.StatusAccepted && code != http.StatusNotFound {
				t.Errorf("%s is deleted with %d %s, want %d", name, code, text, http.StatusAccepted)
			}
		}
	}
	two.pass(3 * 24 * time.Hour)
	two.collect(t, limits)
	two.collect(t, limits)
	if left := append(objects(t, depot, depotBlobs), objects(t, depot, depotNames)...); len(left) > 0 {
		t.Errorf("after all was deleted there is still %v", left)
	}
}

// TestDepotPushAndDeletion: images that share a layer are pushed and deleted side by side. What was acknowledged last holds.
func TestDepotPushAndDeletion(t *testing.T) {
	server := testenv.NewS3(t, "..")
	server.Bucket(t, "images")
	depot := bucket(t, server, server.URL, "images")
	reg := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load()
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	img, err := pushImage(t, reg.host, "team/base:1", 1, 4000)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string) error {
		ref, err := gname.ParseReference(reg.host+"/"+name, gname.Insecure)
		if err != nil {
			return err
		}
		return remote.Write(ref, img)
	}
	others.Go(func() {
		for ctx.Err() == nil {
			_ = put("team/other:1")
			reg.ask(http.MethodDelete, "team/other/manifests/1", nil)
			reg.ask(http.MethodDelete, "team/other/manifests/"+string(sumOf(t, img)), nil)
		}
	})
	for n := range 12 {
		reg.ask(http.MethodDelete, "team/base/manifests/"+string(sumOf(t, img)), nil)
		if err := put("team/base:1"); err != nil {
			continue // a layer went between the question and the manifest, and the client was told
		}
		if err := reg.pull("team/base:1"); err != nil {
			t.Errorf("round %d: the image is not pulled: %v", n, err)
		}
	}
	cancel()
	others.Wait()
	if err := put("team/base:1"); err != nil {
		t.Fatal(err)
	}
	startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load().wantPulled("team/base:1")
}

func FuzzDepotName(f *testing.F) {
	f.Add([]byte(`{"digest":"` + digest.FromString("x").String() + `","pushed":true,"sent":[]}`))
	f.Add([]byte(`{"digest":"../../x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, err := parseDepotName(raw)
		if err != nil {
			return
		}
		again, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := parseDepotName(again); err != nil || m.Digest != n.Digest {
			t.Errorf("%q is read as %s and then as %s, %v", raw, n.Digest, m.Digest, err)
		}
	})
}
