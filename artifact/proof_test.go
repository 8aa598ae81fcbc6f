//go:build linux

package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/testenv"
)

// private has a registry answer nobody without a password, and gives a source that has it.
func (f *foreign) private() *Source {
	f.set(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, pass, _ := r.BasicAuth(); user != "them" || pass != "secret" {
				w.Header().Set("WWW-Authenticate", `Basic realm="theirs"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	return &Source{Credentials: func(string) (Credential, error) { return Credential{Username: "them", Password: "secret"}, nil }}
}

// thief is a registry whose images name layers that it does not have, and which says that it has everything.
type thief struct {
	host  string
	blobs map[string][]byte // what it sends
	sizes map[string]int64  // what it says
	asked atomic.Int32      // for layers that it does not have
}

// startThief makes an image mine/x:1 of the layers of another one, with a config of its own.
func startThief(t *testing.T, of *manifest, config []byte) *thief {
	t.Helper()
	th := &thief{blobs: map[string][]byte{}, sizes: map[string]int64{}}
	put := func(b []byte) ocispec.Descriptor {
		s := openStore(t, Options{})
		d, err := s.putBlob(b, "")
		if err != nil {
			t.Fatal(err)
		}
		th.blobs[d.String()] = b
		return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: d, Size: int64(len(b))}
	}
	m := *of.image
	m.Config = put(append(config[:len(config):len(config)], '\n'))
	for _, l := range m.Layers {
		th.sizes[l.Digest.String()] = l.Size
	}
	raw := mustJSON(m)
	put(raw)
	th.host = startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, kind, id := splitPath(strings.TrimPrefix(r.URL.Path, "/v2/"))
		if kind == "manifests" {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			_, _ = w.Write(raw)
			return
		}
		if b, ok := th.blobs[id]; ok {
			_, _ = w.Write(b)
			return
		}
		if n, ok := th.sizes[id]; ok && r.Method == http.MethodHead {
			w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
			return
		}
		th.asked.Add(1)
		http.NotFound(w, r)
	}))
	return th
}

// Whoever knows digests and sizes of another's layers does not get them by an image of his own registry from a store that has them, nor
// from a cache, nor while they come, nor from what came of them.
func TestLayersOfAnothersImage(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "theirs/app:1", amd64, 200_000, 2)
	credentials := f.private()
	cache := openStore(t, Options{})
	theirs := f.host + "/theirs/app:1"
	img, err := cache.Pull(ctx, theirs, amd64, nil, credentials)
	if err != nil {
		t.Fatal(err)
	}
	m, err := cache.readManifest(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := cache.readBlob(m.image.Config.Digest)
	if err != nil {
		t.Fatal(err)
	}
	th := startThief(t, m, config)
	mine, layer := th.host+"/mine/x:1", m.image.Layers[0].Digest.String()
	if got, err := cache.Pull(ctx, mine, amd64, nil, &Source{}); err == nil {
		t.Errorf("pulled %s", got.Digest)
	} else if th.asked.Load() == 0 {
		t.Errorf("its registry was not asked for the layer: %v", err)
	}
	proxy := &Handler{Store: cache, Registry: "reg.example", Upstream: func(host string) []*Source { return []*Source{credentials} }}
	by := &Source{BaseURL: "http://" + startHandler(t, proxy)}
	if got, err := openStore(t, Options{}).Pull(ctx, mine, amd64, nil, by); err == nil {
		t.Errorf("pulled by way of a cache: %s", got.Digest)
	}
	res, err := http.Get(by.BaseURL + "/v2/mine/x/blobs/" + layer + "?ns=" + th.host)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := io.Copy(io.Discard, res.Body); res.StatusCode == http.StatusOK || n > 10_000 {
		t.Errorf("the cache sends the layer itself: %s, %d bytes", res.Status, n)
	}
	res.Body.Close()
	// An image by its digest, under the thief's name, and by the name it has, without its password.
	if _, err := cache.Resolve(ctx, th.host+"/mine/x@"+img.Digest.String(), amd64, &Source{}); err == nil {
		t.Error("resolved by digest")
	}
	if _, err := cache.Resolve(ctx, theirs, amd64, &Source{}); !errors.Is(err, ErrDenied) {
		t.Errorf("by its tag, without a password: %v", err)
	}
	if _, err := cache.Pull(ctx, theirs, amd64, nil, credentials); err != nil {
		t.Errorf("their own: %v", err)
	}

	// While theirs is on its way, and from the part that an earlier attempt left.
	store := openStore(t, Options{})
	half, release := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	slow := &Source{Credentials: credentials.Credentials, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil && res.StatusCode < 300 && strings.HasSuffix(r.URL.Path, layer) && once.CompareAndSwap(false, true) {
			first := make([]byte, m.image.Layers[0].Size-10)
			if _, err := io.ReadFull(res.Body, first); err != nil {
				return nil, err
			}
			rest := res.Body
			res.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader(string(first)), readerFunc(func(b []byte) (int, error) {
				close(half)
				<-release
				return 0, errors.New("broken off")
			}), rest), rest}
		}
		return res, err
	})}
	pulled := make(chan error, 1)
	pctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	go func() {
		_, err := store.Pull(pctx, theirs, amd64, nil, slow)
		pulled <- err
	}()
	<-half
	asked := th.asked.Load()
	if _, err := store.Pull(ctx, mine, amd64, nil, &Source{}); err == nil || th.asked.Load() == asked {
		t.Errorf("pulled while it came: %v", err)
	}
	close(release)
	if err := <-pulled; err != nil {
		t.Errorf("their own, in two parts: %v", err)
	}
}

// A registry that has the layer, or that another repository of the same registry had it from, is believed: the first by what it sends, the
// second by its word. What was proven once holds without the registry, also after a restart, and goes with the blob.
func TestLayersAreProven(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	secret := layerTar(t, entry{kind: tar.TypeReg, name: "secret", body: "x"})
	registry := &Handler{Store: openStore(t, Options{}), Registry: "reg.example", Authorize: allow}
	for _, name := range []string{"a/one:1", "a/two:1"} {
		addImage(t, registry.Store, "reg.example/"+name, amd64, gz, secret)
	}
	sent := map[string]int{}
	host := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, kind, _ := splitPath(strings.TrimPrefix(r.URL.Path, "/v2/")); kind == "blobs" && r.Method == http.MethodGet {
			sent[r.URL.Query().Get("ns")]++
		}
		r.URL.RawQuery = ""
		registry.ServeHTTP(w, r)
	}))
	src := &Source{BaseURL: "http://" + host}
	for _, c := range []struct {
		ref  string
		more int // blobs that are sent
	}{{"reg.example/a/one:1", 2}, {"reg.example/a/one:1", 0}, {"reg.example/a/two:1", 0}, {"other.example/a/one:1", 2}} {
		ns, _, _ := strings.Cut(c.ref, "/")
		before := sent[ns]
		img, err := s.Pull(ctx, c.ref, amd64, nil, src)
		if err != nil || sent[ns]-before != c.more {
			t.Errorf("%s: %d blobs came, want %d; %v", c.ref, sent[ns]-before, c.more, err)
		}
		if _, err := s.RootFS(ctx, img.Digest, amd64); err != nil {
			t.Errorf("%s: %v", c.ref, err)
		}
	}
	s.Close()
	// As an earlier version left it: names are taken at their word.
	if err := os.RemoveAll(filepath.Join(s.dir, "proven")); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	before := sent["reg.example"]
	if _, err := again.Pull(ctx, "reg.example/a/two:1", amd64, nil, src); err != nil || sent["reg.example"] != before {
		t.Errorf("after the upgrade: %d blobs came, %v", sent["reg.example"]-before, err)
	}
	if _, err := again.Prune(nil, time.Now().Add(time.Hour), func(Entry) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(s.dir, "proven")); len(left) > 0 {
		t.Errorf("%d proofs are left of blobs that are gone", len(left))
	}
}

// TestProvenReadsOnce: whether an image that is here may run is found out by reading its manifest and its config once each, since that is
// done twice for each start of a container.
func TestProvenReadsOnce(t *testing.T) {
	s := openStore(t, Options{})
	sum := addImage(t, s, "reg.example/app:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "program", body: "x"}))
	r, err := imageref.Parse("reg.example/app@" + sum.String())
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	reads := func() (n int) {
		text, err := os.ReadFile("/proc/thread-self/io")
		if err != nil {
			t.Skip(&testenv.Unsupported{What: "counting reads", Why: err.Error()})
		}
		_, rest, _ := strings.Cut(string(text), "syscr: ")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := reads()
	second := reads()
	if _, err := Proven(s, r, amd64); err != nil {
		t.Fatal(err)
	}
	// Each of two files takes a read and one that finds its end; those of the counter itself are not counted.
	if got := reads() - second - (second - first); got != 4 {
		t.Errorf("%d reads, want 4", got)
	}
}
