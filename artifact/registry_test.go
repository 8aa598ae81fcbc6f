//go:build linux

package artifact

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"encoding/json"
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

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/time/rate"
)

// foreign is a registry that is not ours, with a handler before it that counts and harms.
type foreign struct {
	host  string
	blobs atomic.Int64 // GETs of blobs
	wrap  atomic.Pointer[func(http.Handler) http.Handler]
}

func startForeign(t testing.TB) *foreign {
	t.Helper()
	f := &foreign{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			f.blobs.Add(1)
		}
		h := http.Handler(inner)
		if wrap := f.wrap.Load(); wrap != nil {
			h = (*wrap)(h)
		}
		h.ServeHTTP(w, r)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(srv.Close)
	f.host = strings.TrimPrefix(srv.URL, "http://")
	return f
}

func (f *foreign) set(wrap func(http.Handler) http.Handler) { f.wrap.Store(&wrap) }

// push puts a random image for a platform there.
func (f *foreign) push(t testing.TB, ref string, p Platform, size int64, layers int64) v1.Image {
	t.Helper()
	img, err := random.Image(size, layers)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Variant = p.OS, p.Arch, p.Variant
	c.Config.Entrypoint, c.Config.User = []string{"/app"}, "nobody"
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	r, err := gname.ParseReference(f.host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
	return img
}

func (f *foreign) pushIndex(t testing.TB, ref string, ps ...Platform) {
	t.Helper()
	idx := v1.ImageIndex(empty.Index)
	for i, p := range ps {
		img := f.push(t, fmt.Sprintf("%s-%d", ref, i), p, 10_000, 2)
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Arch, Variant: p.Variant}}})
	}
	r, err := gname.ParseReference(f.host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(r, idx); err != nil {
		t.Fatal(err)
	}
}

var amd64, arm64 = Platform{OS: "linux", Arch: "amd64"}, Platform{OS: "linux", Arch: "arm64"}

func TestPull(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	want := f.push(t, "team/app:1", amd64, 100_000, 3)
	s := openStore(t, Options{})
	var seen []Progress
	img, err := s.Pull(ctx, f.host+"/team/app:1", amd64, func(p Progress) { seen = append(seen, p) }, &Source{})
	if err != nil {
		t.Fatal(err)
	}
	wd, _ := want.Digest()
	if img.Digest.String() != wd.String() || img.User != "nobody" || strings.Join(img.Args(), " ") != "/app" || img.Platform != amd64 {
		t.Errorf("image %+v", img)
	}
	last := seen[len(seen)-1]
	if seen[0].Total == 0 || last.Done != last.Total {
		t.Errorf("progress ends at %+v", last)
	}
	if dirs, err := s.RootFS(ctx, img.Digest, amd64); err != nil || len(dirs) != 3 {
		t.Errorf("%v, %v", dirs, err)
	}
	n := f.blobs.Load()
	if n != 4 {
		t.Errorf("%d blobs fetched, want 4", n)
	}
	if _, err := s.Pull(ctx, f.host+"/team/app:1", amd64, nil, &Source{}); err != nil || f.blobs.Load() != n {
		t.Errorf("a second pull fetched again (%v)", err)
	}
	pinned := f.host + "/team/app@" + wd.String()
	if img, err := s.Pull(ctx, pinned, amd64, nil, &Source{}); err != nil || img.Digest.String() != wd.String() {
		t.Errorf("by digest: %v", err)
	}
	es := s.List()
	if len(es) != 2 || es[0].Platforms[0] != amd64 || es[0].Size < 300_000 || es[0].Broken != "" {
		t.Errorf("list %+v", es)
	}
	// Everything is there after a restart.
	s.Close()
	s2, err := Open(s.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s2.Close()
	if _, err := s2.Pull(ctx, pinned, amd64, nil); err != nil {
		t.Errorf("without a source: %v", err)
	}
}

func TestPullPlatforms(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.pushIndex(t, "multi:1", amd64, arm64)
	s := openStore(t, Options{})
	res, err := s.Resolve(ctx, f.host+"/multi:1", Platform{}, &Source{})
	if err != nil || len(res.Platforms) != 2 || res.Digest == res.Manifest {
		t.Errorf("%+v, %v", res, err)
	}
	img, err := s.Pull(ctx, f.host+"/multi:1", arm64, nil, &Source{})
	if err != nil || img.Platform != arm64 {
		t.Fatalf("%+v, %v", img, err)
	}
	if n := f.blobs.Load(); n > 4 { // a config each for Resolve and Pull, two layers
		t.Errorf("%d blobs fetched: another platform came along", n)
	}
	_, err = s.Pull(ctx, f.host+"/multi:1", Platform{OS: "linux", Arch: "riscv64"}, nil, &Source{})
	var pe *PlatformError
	if !errors.As(err, &pe) || !errors.Is(err, ErrPlatform) || len(pe.Offers) != 2 || !strings.Contains(err.Error(), "linux/amd64, linux/arm64") {
		t.Errorf("riscv64: %v", err)
	}
	f.push(t, "single:1", amd64, 100, 1)
	if _, err = s.Pull(ctx, f.host+"/single:1", arm64, nil, &Source{}); !errors.As(err, &pe) || pe.Offers[0] != amd64 {
		t.Errorf("single: %v", err)
	}
	_, err = s.Pull(ctx, f.host+"/none:1", arm64, nil, &Source{})
	var nf *NotFoundError
	if !errors.As(err, &nf) || !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "none:1") {
		t.Errorf("missing: %v", err)
	}
	if es := s.List(); len(es) != 1 || len(es[0].Platforms) != 1 {
		t.Errorf("list %+v", es)
	}
}

// TestPullResumes breaks every answer after a while; each byte is asked for once.
func TestPullResumes(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "big:1", amd64, 1<<20, 1)
	for name, ranges := range map[string]bool{"with ranges": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			var ranged atomic.Int64
			f.set(func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
						h.ServeHTTP(w, r)
						return
					}
					if r.Header.Get("Range") != "" {
						ranged.Add(1)
					}
					if !ranges { // it begins anew each time, and gets a bit further
						limit := 300_000 * int(ranged.Load()+1)
						r.Header.Del("Range")
						h.ServeHTTP(&breaking{w, limit}, r)
						return
					}
					h.ServeHTTP(&breaking{w, 300_000}, r)
				})
			})
			s := openStore(t, Options{})
			img, err := s.Pull(ctx, f.host+"/big:1", amd64, nil, &Source{})
			if err != nil {
				t.Fatal(err)
			}
			if ranged.Load() < 3 {
				t.Errorf("resumed %d times", ranged.Load())
			}
			if _, err := s.RootFS(ctx, img.Digest, amd64); err != nil {
				t.Error(err)
			}
		})
	}
}

// breaking breaks the connection after some bytes.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if len(p) > b.left {
		b.ResponseWriter.Write(p[:b.left])
		b.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	b.left -= len(p)
	return b.ResponseWriter.Write(p)
}

// TestPullResumesLater gives up halfway, re-opens the store and continues.
func TestPullResumesLater(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	f := startForeign(t)
	f.push(t, "big:1", amd64, 1<<20, 1)
	var from atomic.Value
	f.set(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				if rg := r.Header.Get("Range"); rg != "" {
					from.Store(rg)
				} else if r.Context().Value(http.ServerContextKey) != nil && from.Load() == nil {
					h.ServeHTTP(&stalling{w, r, 300_000}, r)
					return
				}
			}
			h.ServeHTTP(w, r)
		})
	})
	dir := filepath.Join(t.TempDir(), "s")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Pull(ctx, f.host+"/big:1", amd64, func(p Progress) {
		if p.Done > 250_000 {
			cancel()
		}
	}, &Source{})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(s.List()) > 0 {
		t.Error("half an image has a name")
	}
	s.Close()
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Pull(context.Background(), f.host+"/big:1", amd64, nil, &Source{}); err != nil {
		t.Fatal(err)
	}
	if rg, _ := from.Load().(string); rg == "" || rg == "bytes=0-" {
		t.Errorf("it began anew: %q", rg)
	}
}

// stalling sends some bytes and then waits until the client goes.
type stalling struct {
	http.ResponseWriter
	r    *http.Request
	left int
}

func (b *stalling) Write(p []byte) (int, error) {
	if len(p) > b.left {
		b.ResponseWriter.Write(p[:b.left])
		b.ResponseWriter.(http.Flusher).Flush()
		<-b.r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	b.left -= len(p)
	return b.ResponseWriter.Write(p)
}

func TestPullWrongContent(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "a:1", amd64, 50_000, 1)
	for name, harm := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"flipped": func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			b := rec.Body.Bytes()
			b[len(b)/2] ^= 1
			w.Write(b)
		},
		"too much": func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			w.Write(append(rec.Body.Bytes(), "more"...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f.set(func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
						harm(w, r, h)
						return
					}
					h.ServeHTTP(w, r)
				})
			})
			s := openStore(t, Options{})
			_, err := s.Pull(ctx, f.host+"/a:1", amd64, nil, &Source{})
			if !errors.Is(err, ErrDigest) && !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v", err)
			}
			if len(s.List()) > 0 {
				t.Error("it has a name")
			}
			// The next source is right, and what the wrong one sent does no harm.
			f.set(func(h http.Handler) http.Handler { return h })
			if _, err := s.Pull(ctx, f.host+"/a:1", amd64, nil, &Source{}); err != nil {
				t.Errorf("then: %v", err)
			}
		})
	}
}

func TestPullFallsBack(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "a:1", amd64, 10_000, 1)
	dead := httptest.NewServer(nil)
	dead.Close()
	s := openStore(t, Options{})
	if _, err := s.Pull(ctx, f.host+"/a:1", amd64, nil, &Source{BaseURL: dead.URL}, &Source{}); err != nil {
		t.Fatalf("second source: %v", err)
	}
	// Nobody answers: what is here counts.
	if _, err := s.Pull(ctx, f.host+"/a:1", amd64, nil, &Source{BaseURL: dead.URL}); err != nil {
		t.Errorf("offline: %v", err)
	}
	if _, err := s.Pull(ctx, f.host+"/b:1", amd64, nil, &Source{BaseURL: dead.URL}); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("unknown offline: %v", err)
	}
}

func basicAuth(user, pass string) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, _ := r.BasicAuth(); u != user || p != pass {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

func TestCredentials(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "a:1", amd64, 10_000, 1)
	conf := filepath.Join(t.TempDir(), "config.json")
	auth := base64.StdEncoding.EncodeToString([]byte("me:secret"))
	if err := os.WriteFile(conf, fmt.Appendf(nil, `{"auths":{"http://%s/v2/":{"auth":%q}}}`, f.host, auth), 0o600); err != nil {
		t.Fatal(err)
	}
	creds, err := DockerConfig(conf)
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(string) (Credential, error) { return Credential{Username: "me", Password: "wrong"}, nil }

	var tokens atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, _ := r.BasicAuth()
		if r.Method == http.MethodPost {
			r.ParseForm()
			if r.Form.Get("refresh_token") == "identity" {
				u, p = "me", "secret"
			}
		}
		if u != "me" || p != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.FormValue("service") != "reg" || !strings.HasPrefix(r.FormValue("scope"), "repository:a:pull") {
			t.Errorf("asked for a token with %v", r.Form)
		}
		tokens.Add(1)
		json.NewEncoder(w).Encode(map[string]any{"token": "T", "expires_in": 300})
	}))
	defer issuer.Close()
	bearer := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer T" {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+issuer.URL+`/token",service="reg",scope="repository:a:pull"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	var leaked atomic.Bool
	blobs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Store(true)
		}
		r.Header.Set("Authorization", "Bearer T")
		res, err := http.DefaultTransport.RoundTrip(&http.Request{Method: r.Method, URL: mustURL("http://" + f.host + r.URL.Path + "?direct=1"), Header: r.Header})
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		io.Copy(w, res.Body)
	}))
	defer blobs.Close()
	redirecting := func(h http.Handler) http.Handler {
		return bearer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/") && r.URL.Query().Get("direct") == "" {
				// Another host name for the same machine: what a client knows of the first must not go there.
				http.Redirect(w, r, strings.Replace(blobs.URL, "127.0.0.1", "localhost", 1)+r.URL.Path+"?signature=secret", http.StatusTemporaryRedirect)
				return
			}
			h.ServeHTTP(w, r)
		}))
	}
	for _, c := range []struct {
		name  string
		wrap  func(http.Handler) http.Handler
		creds func(string) (Credential, error)
		ok    bool
	}{
		{"basic", basicAuth("me", "secret"), creds, true},
		{"basic wrong", basicAuth("me", "secret"), wrong, false},
		{"basic none", basicAuth("me", "secret"), nil, false},
		{"bearer", bearer, creds, true},
		{"bearer wrong", bearer, wrong, false},
		{"bearer identity", bearer, func(string) (Credential, error) { return Credential{IdentityToken: "identity"}, nil }, true},
		{"bearer given", bearer, func(string) (Credential, error) { return Credential{Token: "T"}, nil }, true},
		{"redirect", redirecting, creds, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.set(c.wrap)
			before := tokens.Load()
			s := openStore(t, Options{})
			_, err := s.Pull(ctx, f.host+"/a:1", amd64, nil, &Source{Credentials: c.creds})
			if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrDenied) {
				t.Errorf("error %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a secret is in %v", err)
			}
			if n := tokens.Load() - before; n > 1 {
				t.Errorf("%d tokens for one pull", n)
			}
		})
	}
	if leaked.Load() {
		t.Error("credentials followed a redirect to another host")
	}
	for _, bad := range []string{"", "{", `{"auths":{"x":{"auth":"%%%"}}}`} {
		if err := os.WriteFile(conf, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := DockerConfig(conf); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestPullOnceAtATime(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "a:1", amd64, 500_000, 2)
	s := openStore(t, Options{})
	var wg sync.WaitGroup
	src := &Source{Limit: rate.NewLimiter(20<<20, 64<<10)}
	for range 10 {
		wg.Go(func() {
			if _, err := s.Pull(ctx, f.host+"/a:1", amd64, nil, src); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := f.blobs.Load(); n != 3 {
		t.Errorf("%d fetches of 3 blobs", n)
	}
}

func TestFullDisk(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "big:1", amd64, 6<<20, 1)
	f.push(t, "small:1", amd64, 10_000, 1)
	dir := mountTmpfs(t, "4m")
	s, err := Open(filepath.Join(dir, "s"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Pull(ctx, f.host+"/big:1", amd64, nil, &Source{}); !errors.Is(err, ErrFull) {
		t.Errorf("pull: %v", err)
	}
	if es, _ := os.ReadDir(filepath.Join(s.dir, "partial")); len(es) > 0 {
		t.Errorf("a full disk stays full: %v", es)
	}
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "big"), make([]byte, 1<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	img, err := s.Pull(ctx, f.host+"/small:1", amd64, nil, &Source{})
	if err != nil {
		t.Fatalf("a small one: %v", err)
	}
	// Unpacks to more than there is room for.
	bomb := addImage(t, s, "bomb", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "zeros", body: strings.Repeat("\x00", 8<<20)}))
	if _, err := s.RootFS(ctx, bomb, amd64); !errors.Is(err, ErrFull) {
		t.Errorf("unpack: %v", err)
	}
	if es, _ := os.ReadDir(filepath.Join(s.dir, "tmp")); len(es) > 0 {
		t.Errorf("left in tmp: %v", es)
	}
	if _, err := s.RootFS(ctx, img.Digest, amd64); err != nil {
		t.Errorf("and then: %v", err)
	}
}

func readAll(t testing.TB, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
