//go:build linux

package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
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

// startHandler serves h and gives its host.
func startHandler(t testing.TB, h http.Handler) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func allow(*http.Request, string, string) error { return nil }

// TestPullThrough has many workers ask one cluster, which asks a root, which asks the registry, each once.
func TestPullThrough(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "team/app:1", amd64, 1<<20, 3)
	direct := func(string) []*Source { return []*Source{{}} }
	root := &Handler{Store: openStore(t, Options{}), Registry: "registry.skerry", Upstream: direct}
	rootHost := startHandler(t, root)
	cluster := &Handler{Store: openStore(t, Options{}), Registry: "registry.skerry", Upstream: func(string) []*Source {
		return []*Source{{BaseURL: "http://" + rootHost}}
	}}
	var rtUsed atomic.Int64
	clusterHost := startHandler(t, cluster)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			// Workers speak over a connection of their own: the host in the URL means nothing.
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				rtUsed.Add(1)
				r = r.Clone(r.Context())
				r.URL.Host = clusterHost
				return http.DefaultTransport.RoundTrip(r)
			})
			s := openStore(t, Options{})
			img, err := s.Pull(ctx, f.host+"/team/app:1", amd64, nil, &Source{BaseURL: "http://cluster", Transport: rt})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.RootFS(ctx, img.Digest, amd64); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := f.blobs.Load(); n != 4 {
		t.Errorf("%d fetches of 4 blobs from the registry", n)
	}
	// The registry is gone: what the site has, it serves.
	answers := func(status int) {
		f.set(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) })
		})
	}
	answers(http.StatusGone)
	s := openStore(t, Options{})
	if _, err := s.Pull(ctx, f.host+"/team/app:1", amd64, nil, &Source{BaseURL: "http://" + clusterHost}); err != nil {
		t.Errorf("offline: %v", err)
	}
	if _, err := s.Pull(ctx, f.host+"/team/other:1", amd64, nil, &Source{BaseURL: "http://" + clusterHost}); err == nil {
		t.Error("an unknown image was found")
	}
	// It does not serve what the registry refuses.
	answers(http.StatusForbidden)
	if _, err := s.Pull(ctx, f.host+"/team/app:1", amd64, nil, &Source{BaseURL: "http://" + clusterHost}); !errors.Is(err, ErrDenied) {
		t.Errorf("refused by the registry: %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPullThroughStreams: the asker has bytes before the cluster has the whole.
func TestPullThroughStreams(t *testing.T) {
	f := startForeign(t)
	img := f.push(t, "a:1", amd64, 400_000, 1)
	goOn := make(chan struct{})
	f.set(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				b := rec.Body.Bytes()
				w.Header().Set("Content-Length", fmt.Sprint(len(b)))
				w.Write(b[:len(b)/2])
				w.(http.Flusher).Flush()
				<-goOn
				w.Write(b[len(b)/2:])
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	cluster := &Handler{Store: openStore(t, Options{}), Registry: "x", Upstream: func(string) []*Source { return []*Source{{}} }}
	host := startHandler(t, cluster)
	ls, _ := img.Layers()
	d, _ := ls[0].Digest()
	url := "http://" + host + "/v2/a/blobs/" + d.String() + "?ns=" + f.host
	var bodies []io.ReadCloser
	for _, rg := range []string{"", "bytes=1000-"} {
		req, _ := http.NewRequest(http.MethodGet, url, nil)
		if rg != "" {
			req.Header.Set("Range", rg)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, res.Body)
	}
	close(goOn)
	var n []int
	for _, b := range bodies {
		n = append(n, len(readAll(t, b)))
		b.Close()
	}
	if n[0]-n[1] != 1000 {
		t.Errorf("rests of %v bytes", n)
	}
	if f.blobs.Load() != 1 {
		t.Errorf("fetched %d times", f.blobs.Load())
	}
}

// TestPullThroughWrongContent: an asker never gets a whole wrong blob.
func TestPullThroughWrongContent(t *testing.T) {
	f := startForeign(t)
	img := f.push(t, "a:1", amd64, 100_000, 1)
	f.set(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				b := rec.Body.Bytes()
				b[len(b)-1] ^= 1
				w.Write(b)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	host := startHandler(t, &Handler{Store: openStore(t, Options{}), Registry: "x", Upstream: func(string) []*Source { return []*Source{{}} }})
	ls, _ := img.Layers()
	d, _ := ls[0].Digest()
	res, err := http.Get("http://" + host + "/v2/a/blobs/" + d.String() + "?ns=" + f.host)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err == nil && res.StatusCode == http.StatusOK {
		t.Errorf("%d wrong bytes look whole", len(b))
	}
}

// TestRegistryWithForeignClient pushes and pulls with go-containerregistry.
func TestRegistryWithForeignClient(t *testing.T) {
	h := &Handler{Store: openStore(t, Options{}), Authorize: allow}
	host := startHandler(t, h)
	img, err := random.Image(200_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	ref := func(s string) gname.Reference {
		r, err := gname.ParseReference(host + "/" + s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if err := remote.Write(ref("team/app:1"), img); err != nil {
		t.Fatal(err)
	}
	back, err := remote.Image(ref("team/app:1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(back); err != nil {
		t.Error(err)
	}
	idx, err := random.Index(1000, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref("team/multi:1"), idx); err != nil {
		t.Fatal(err)
	}
	bi, err := remote.Index(ref("team/multi:1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(bi); err != nil {
		t.Error(err)
	}
	// Mounts layers from its neighbour.
	if err := remote.Write(ref("team/copy:1"), back); err != nil {
		t.Error(err)
	}
	for _, tag := range []string{"2", "3", "latest"} {
		if err := remote.Tag(ref("team/app:1").Context().Tag(tag), img); err != nil {
			t.Error(err)
		}
	}
	repo := ref("team/app:1").Context()
	tags, err := remote.List(repo, remote.WithPageSize(2))
	if err != nil || strings.Join(tags, " ") != "1 2 3 latest" {
		t.Errorf("tags %v, %v", tags, err)
	}
	repos, err := remote.Catalog(context.Background(), repo.Registry)
	if err != nil || strings.Join(repos, " ") != "team/app team/copy team/multi" {
		t.Errorf("catalog %v, %v", repos, err)
	}
	if err := remote.Delete(ref("team/app:2")); err != nil {
		t.Error(err)
	}
	if tags, _ := remote.List(repo); strings.Join(tags, " ") != "1 3 latest" {
		t.Errorf("tags after deleting one: %v", tags)
	}
	d, _ := img.Digest()
	if err := remote.Delete(repo.Digest(d.String())); err != nil {
		t.Error(err)
	}
	if _, err := remote.Image(ref("team/app:1")); err == nil {
		t.Error("a deleted image is still there")
	}
	if _, err := remote.Image(ref("team/copy:1")); err != nil {
		t.Errorf("its copy has gone too: %v", err)
	}
}

// TestPush pushes with our client to ours and to a foreign registry.
func TestPush(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	own := startHandler(t, &Handler{Store: openStore(t, Options{}), Authorize: allow})
	s := openStore(t, Options{})
	d := addImage(t, s, "shop/web:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "f", body: "x"}))
	for _, host := range []string{f.host, own} {
		var last Progress
		got, err := s.Push(ctx, "shop/web:1", host+"/shop/web:1", &Source{}, func(p Progress) { last = p })
		if err != nil || got != d || last.Done != last.Total || last.Total == 0 {
			t.Errorf("%v, %v, %+v", got, err, last)
		}
		if _, err := s.Push(ctx, "shop/web:1", host+"/shop/web:1", &Source{}, nil); err != nil {
			t.Errorf("again: %v", err)
		}
		if img, err := openStore(t, Options{}).Pull(ctx, host+"/shop/web:1", amd64, nil, &Source{}); err != nil || img.Digest != d {
			t.Errorf("pulled %v, %v", img.Digest, err)
		}
	}
	f.set(basicAuth("me", "secret"))
	if _, err := s.Push(ctx, "shop/web:1", f.host+"/shop/web:2", &Source{}, nil); !errors.Is(err, ErrDenied) {
		t.Errorf("without a login: %v", err)
	}
	creds := func(string) (Credential, error) { return Credential{Username: "me", Password: "secret"}, nil }
	if _, err := s.Push(ctx, "shop/web:1", f.host+"/shop/web:2", &Source{Credentials: creds}, nil); err != nil {
		t.Errorf("with a login: %v", err)
	}
	if _, err := s.Push(ctx, "none", f.host+"/none", &Source{}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing: %v", err)
	}
}

func request(t *testing.T, method, url string, body []byte, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(res.Body)
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(b))
	return res
}

// One owner's uploads leave room for those of others.
func TestUploadsOfOneOwnerLeaveRoom(t *testing.T) {
	host := "http://" + startHandler(t, &Handler{Store: openStore(t, Options{}), Authorize: allow, MaxUploads: 16})
	begin := func(repo string) int {
		res := request(t, "POST", host+"/v2/"+repo+"/blobs/uploads/", nil)
		return res.StatusCode
	}
	n := 0
	for ; n < 16 && begin(fmt.Sprintf("hostile/r%d", n)) == 202; n++ {
	}
	if n != 8 {
		t.Errorf("one owner has %d of 16 uploads", n)
	}
	for k := range minUploads {
		if got := begin("honest/web"); got != 202 {
			t.Errorf("upload %d of another: %d", k, got)
		}
	}
}

func TestRegistryUploads(t *testing.T) {
	s := openStore(t, Options{})
	host := "http://" + startHandler(t, &Handler{Store: s, Authorize: allow, MaxBlob: 1000, MaxUploads: 2})
	blob := bytes.Repeat([]byte("x"), 600)
	d := digest.FromBytes(blob).String()
	status := func(res *http.Response, want int) *http.Response {
		t.Helper()
		if res.StatusCode != want {
			b, _ := io.ReadAll(res.Body)
			t.Errorf("%s %s: %d, want %d: %s", res.Request.Method, res.Request.URL, res.StatusCode, want, b)
		}
		return res
	}
	begin := func(repo string) string {
		return host + status(request(t, "POST", host+"/v2/"+repo+"/blobs/uploads/", nil), 202).Header.Get("Location")
	}
	// In pieces.
	at := begin("a")
	res := status(request(t, "PATCH", at, blob[:200], "Content-Range", "0-199"), 202)
	if res.Header.Get("Range") != "0-199" {
		t.Errorf("range %q", res.Header.Get("Range"))
	}
	status(request(t, "PATCH", at, blob[300:], "Content-Range", "300-599"), 416)
	status(request(t, "PATCH", at, blob[200:400], "Content-Range", "200-399"), 202)
	if res := status(request(t, "GET", at, nil), 204); res.Header.Get("Range") != "0-399" {
		t.Errorf("range %q", res.Header.Get("Range"))
	}
	status(request(t, "PUT", at+"?digest="+d, blob[400:]), 201)
	status(request(t, "GET", at, nil), 404)
	if b, _ := io.ReadAll(status(request(t, "GET", host+"/v2/a/blobs/"+d, nil, "Range", "bytes=590-"), 206).Body); len(b) != 10 {
		t.Errorf("%d bytes of the range", len(b))
	}
	// In one.
	status(request(t, "POST", host+"/v2/b/blobs/uploads/?digest="+d, blob), 201)
	// Another repository's blob is not there until it is mounted.
	status(request(t, "GET", host+"/v2/c/blobs/"+d, nil), 404)
	status(request(t, "POST", host+"/v2/c/blobs/uploads/?mount="+d+"&from=a", nil), 201)
	status(request(t, "GET", host+"/v2/c/blobs/"+d, nil), 200)
	status(request(t, "DELETE", host+status(request(t, "POST", host+"/v2/c/blobs/uploads/?mount="+d+"&from=none", nil), 202).Header.Get("Location"), nil), 204)
	// Refused.
	wrong := digest.FromString("other").String()
	status(request(t, "POST", host+"/v2/a/blobs/uploads/?digest="+wrong, blob), 400)
	status(request(t, "POST", host+"/v2/a/blobs/uploads/?digest=sha256:../../x", blob), 400)
	big := bytes.Repeat([]byte("y"), 1001)
	status(request(t, "POST", host+"/v2/a/blobs/uploads/?digest="+digest.FromBytes(big).String(), big), 413)
	status(request(t, "PUT", host+"/v2/a/manifests/1", []byte("{}")), 400)
	status(request(t, "PUT", host+"/v2/a/manifests/1", fmt.Appendf(nil, `{"schemaVersion":2,"config":{"digest":%q,"size":1},"layers":[]}`, wrong)), 400)
	status(request(t, "PUT", host+"/v2/c/manifests/1", fmt.Appendf(nil, `{"schemaVersion":2,"config":{"digest":%q,"size":1},"layers":[]}`, d)), 400)
	status(request(t, "PUT", host+"/v2/c/manifests/-x", fmt.Appendf(nil, `{"schemaVersion":2,"config":{"digest":%q,"size":600},"layers":[]}`, d)), 400)
	status(request(t, "GET", host+"/v2/../../etc/manifests/1", nil), 400)
	status(request(t, "GET", host+"/v2/A/manifests/1", nil), 400)
	status(request(t, "GET", host+"/v2/none/tags/list", nil), 404)
	status(request(t, "POST", host+"/v2/a/manifests/1", nil), 405)
	begin("a")
	two := begin("a")
	status(request(t, "POST", host+"/v2/a/blobs/uploads/", nil), 429)
	status(request(t, "DELETE", two, nil), 204)
	status(request(t, "PUT", host+"/v2/c/manifests/1", fmt.Appendf(nil, `{"schemaVersion":2,"config":{"digest":%q,"size":600},"layers":[]}`, d)), 201)
	// What was uploaded and never used goes with the next prune after a while.
	s.mu.Lock()
	for _, g := range s.grants {
		for d := range g {
			g[d] = time.Time{}
		}
	}
	s.mu.Unlock()
	if _, err := s.Prune(nil, time.Now().Add(time.Hour), nil); err != nil {
		t.Error(err)
	}
	status(request(t, "GET", host+"/v2/c/blobs/"+d, nil), 200)
}

func TestRegistryAuthorize(t *testing.T) {
	s := openStore(t, Options{})
	addImage(t, s, "r.skerry/open/a:1", amd64, gz, layerTar(t))
	addImage(t, s, "r.skerry/closed/a:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "secret"}))
	var asked []string
	h := &Handler{Store: s, Registry: "r.skerry", Authorize: func(r *http.Request, repo, action string) error {
		asked = append(asked, repo+" "+action)
		u, _, ok := r.BasicAuth()
		switch {
		case !ok:
			return ErrLogin
		case repo == "r.skerry/closed/a" || action != ActionPull && u != "pusher":
			return errors.New("not yours")
		}
		return nil
	}}
	host := "http://" + startHandler(t, h)
	as := func(u string) []string {
		r, _ := http.NewRequest("GET", "/", nil)
		r.SetBasicAuth(u, "x")
		return []string{"Authorization", r.Header.Get("Authorization")}
	}
	for _, c := range []struct {
		method, path string
		header       []string
		status       int
	}{
		{"GET", "/v2/", nil, 401},
		{"GET", "/v2/", as("reader"), 200},
		{"GET", "/v2/open/a/manifests/1", as("reader"), 200},
		{"HEAD", "/v2/open/a/manifests/1", as("reader"), 200},
		{"GET", "/v2/open/a/manifests/1?ns=r.skerry", as("reader"), 200},
		{"GET", "/v2/closed/a/manifests/1", as("reader"), 403},
		{"POST", "/v2/open/a/blobs/uploads/", as("reader"), 403},
		{"POST", "/v2/open/a/blobs/uploads/", as("pusher"), 202},
		{"DELETE", "/v2/open/a/manifests/1", as("reader"), 403},
	} {
		if res := request(t, c.method, host+c.path, nil, c.header...); res.StatusCode != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, res.StatusCode, c.status)
		} else if c.status == 401 && !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Basic") {
			t.Error("no challenge")
		}
	}
	// The closed image's blobs are not had through the open repository.
	d, _ := s.Lookup(imageref.Ref{Registry: "r.skerry", Repository: "closed/a", Tag: "1"})
	m, err := s.readManifest(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"manifests/" + d.String(), "blobs/" + m.image.Layers[0].Digest.String()} {
		if res := request(t, "GET", host+"/v2/open/a/"+path, nil, as("reader")...); res.StatusCode != 404 {
			t.Errorf("%s through another repository: %d", path, res.StatusCode)
		}
	}
}

func TestPrune(t *testing.T) {
	ctx := context.Background()
	now := time.Now()
	s := openStore(t, Options{Now: func() time.Time { return now }})
	shared := layerTar(t, entry{kind: tar.TypeReg, name: "shared", body: "x"})
	digests := map[string]digest.Digest{}
	for _, name := range []string{"kept", "current", "old"} {
		d := addImage(t, s, name, amd64, gz, shared, layerTar(t, entry{kind: tar.TypeReg, name: name, body: name}))
		digests[name] = d
		if _, err := s.RootFS(ctx, d, amd64); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(e Entry) bool { return strings.Contains(e.Ref, "kept") }
	got, err := s.Prune([]digest.Digest{digests["current"]}, now.Add(-time.Hour), keep)
	if err != nil || len(got.Names) > 0 || got.Blobs > 0 {
		t.Errorf("pruned what is young: %+v, %v", got, err)
	}
	now = now.Add(2 * time.Hour)
	got, err = s.Prune([]digest.Digest{digests["current"]}, now.Add(-time.Minute), keep)
	if err != nil || len(got.Names) != 1 || got.Blobs != 3 || got.Layers != 1 || got.Bytes == 0 {
		t.Errorf("pruned %+v, %v", got, err)
	}
	for _, name := range []string{"kept", "current"} {
		if dirs, err := s.RootFS(ctx, digests[name], amd64); err != nil || len(dirs) != 2 {
			t.Errorf("%s: %v, %v", name, dirs, err)
		} else if b, err := os.ReadFile(filepath.Join(dirs[1], "shared")); err != nil || string(b) != "x" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := s.RootFS(ctx, digests["old"], amd64); !errors.Is(err, ErrNotFound) {
		t.Errorf("old: %v", err)
	}
	if err := s.Remove("kept"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("kept"); !errors.Is(err, ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	if got, err = s.Prune(nil, now.Add(time.Minute), nil); err != nil {
		t.Error(err)
	}
	if _, err := s.Image(digests["kept"], amd64); !errors.Is(err, ErrNotFound) {
		t.Errorf("kept, removed: %v", err)
	}
}

// What of an image for several platforms is not here is left out of what is pushed and exported, and can be told.
func TestAbsentPlatforms(t *testing.T) {
	f := startForeign(t)
	f.pushIndex(t, "multi:1", amd64, arm64)
	s, name := openStore(t, Options{}), f.host+"/multi:1"
	absent := func(want string) {
		t.Helper()
		if got, err := Absent(s, name); err != nil || fmt.Sprint(got) != want {
			t.Errorf("absent are %v, %v; want %s", got, err, want)
		}
	}
	for _, c := range []struct {
		pulled Platform
		absent string
	}{{amd64, "[linux/arm64]"}, {arm64, "[]"}} {
		if _, err := s.Pull(t.Context(), name, c.pulled, nil, &Source{}); err != nil {
			t.Fatalf("pull for %s: %v", c.pulled, err)
		}
		absent(c.absent)
	}
	addImage(t, s, "shop/web:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "f", body: "x"}))
	name = "shop/web:1"
	absent("[]")
}
