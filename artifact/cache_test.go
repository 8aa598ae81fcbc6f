package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// A cache of other registries keeps within its bound, whoever has it fetch: what is not in use goes first, the longest unused before the
// rest; what was pushed stays and does not count, and what cannot fit is refused before it comes.
func TestCacheIsBounded(t *testing.T) {
	ctx := t.Context()
	const mib = 1 << 16 // as it were: what is compressed and compared takes time
	f := startForeign(t)
	now := time.Unix(1_700_000_000, 0)
	cache := openStore(t, Options{MaxCache: 10 * mib, Local: "reg.example", Now: func() time.Time { now = now.Add(time.Second); return now }})
	h := &Handler{Store: cache, Registry: "reg.example", Authorize: allow, Upstream: func(string) []*Source { return []*Source{{}} }}
	by := &Source{BaseURL: "http://" + startHandler(t, h)}
	local := openStore(t, Options{})
	own := addImage(t, local, "reg.example/own/app:1", amd64, plain, make([]byte, 4*mib))
	if _, err := local.Push(ctx, "reg.example/own/app:1", "reg.example/own/app:1", &Source{BaseURL: by.BaseURL}, nil); err != nil {
		t.Fatal(err)
	}
	if u := cache.Cache.Use(); u.Bytes != 0 || u.Max != 10*mib {
		t.Errorf("what was pushed counts: %+v", u)
	}
	var used []digest.Digest
	cache.Cache.KeepInUse(func() []digest.Digest { return used })
	ref := func(i int) string { return fmt.Sprintf("%s/many/app%d:1", f.host, i) }
	for i := range 8 {
		f.push(t, fmt.Sprintf("many/app%d:1", i), amd64, 2*mib, 1)
		img, err := openStore(t, Options{}).Pull(ctx, ref(i), amd64, nil, by)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if i == 1 {
			used = append(used, img.Digest)
		}
		if u := cache.Cache.Use(); u.Bytes > u.Max {
			t.Fatalf("after %d: %+v", i, u)
		}
	}
	have := func() (out []int) {
		for _, e := range cache.List() {
			for i := range 8 {
				if e.Ref == ref(i) && len(e.Platforms) > 0 {
					out = append(out, i)
				}
			}
		}
		return out
	}
	if got := have(); !slices.Equal(got, []int{1, 5, 6, 7}) {
		t.Errorf("the cache has %v, want what is used and the newest", got)
	}
	if u := cache.Cache.Use(); u.Evicted == 0 {
		t.Errorf("%+v", u)
	}
	f.push(t, "large:1", amd64, 11*mib, 1)
	before := f.blobs.Load()
	if _, err := openStore(t, Options{}).Pull(ctx, f.host+"/large:1", amd64, nil, by); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "--image-cache") {
		t.Errorf("too large: %v", err)
	}
	if n := f.blobs.Load() - before; n > 1 { // its config
		t.Errorf("%d blobs of it came", n)
	}
	// Even what is in use goes before the bound does.
	used = nil
	for _, e := range cache.List() {
		used = append(used, e.Digest)
	}
	f.push(t, "four:1", amd64, 9*mib, 1)
	if _, err := openStore(t, Options{}).Pull(ctx, f.host+"/four:1", amd64, nil, by); err != nil {
		t.Errorf("all is in use: %v", err)
	}
	if u := cache.Cache.Use(); u.Bytes > u.Max {
		t.Errorf("%+v", u)
	}
	if _, err := openStore(t, Options{}).Pull(ctx, "reg.example/own/app@"+own.String(), amd64, nil, by); err != nil {
		t.Errorf("what was pushed: %v", err)
	}
}

// While there is room, nobody is asked what is in use: a root with 100,000 instances looks at all of them for that, and each apply would
// wait for it.
func TestRoomAsksNobody(t *testing.T) {
	f := startForeign(t)
	f.push(t, "app:1", amd64, 1000, 1)
	cache := openStore(t, Options{MaxCache: 1 << 20, Local: "reg.example"})
	asked := 0
	cache.Cache.KeepInUse(func() []digest.Digest { asked++; return nil })
	for range 2 { // it comes, and is here
		if _, err := cache.Pull(t.Context(), f.host+"/app:1", amd64, nil, &Source{}); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 0 {
		t.Errorf("asked %d times what is in use, want 0", asked)
	}
	f.push(t, "large:1", amd64, 900_000, 1)
	if _, err := cache.Pull(t.Context(), f.host+"/large:1", amd64, nil, &Source{}); err != nil {
		t.Fatal(err)
	}
	f.push(t, "other:1", amd64, 900_000, 1)
	if _, err := cache.Pull(t.Context(), f.host+"/other:1", amd64, nil, &Source{}); err != nil || asked == 0 {
		t.Errorf("where room is made: asked %d times what is in use, want it asked; %v", asked, err)
	}
}

// What is in use is spared when there was room for something that comes, and another that came first took it.
func TestRoomThatWasTaken(t *testing.T) {
	foreign := startForeign(t)
	cache := openStore(t, Options{MaxCache: 1 << 20, Local: "reg.example"})
	pull := func(name string, size int64) digest.Digest {
		foreign.push(t, name, amd64, size, 1)
		img, err := cache.Pull(t.Context(), foreign.host+"/"+name, amd64, nil, &Source{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return img.Digest
	}
	runs := pull("runs:1", 300_000) // and is the longest unused
	pull("idle:1", 300_000)
	cache.Cache.KeepInUse(func() []digest.Digest { return []digest.Digest{runs} })
	used := cache.Cache.usedNow(300_000)
	pull("other:1", 300_000)
	cache.mu.Lock()
	err := cache.Cache.makeRoomLocked(300_000, used)
	cache.mu.Unlock()
	if errors.Is(err, errNotAsked) {
		err = cache.Cache.makeRoom(300_000)
	}
	if err != nil {
		t.Fatalf("make room: %v", err)
	}
	left := map[string]bool{}
	for _, e := range cache.List() {
		left[strings.TrimPrefix(e.Ref, foreign.host+"/")] = true
	}
	if !left["runs:1"] || left["idle:1"] {
		t.Errorf("the cache has %v, want what runs, and not what is idle", left)
	}
}

// Manifests that are asked for and never named do not fill it either.
func TestManifestsAreBounded(t *testing.T) {
	pad := strings.Repeat("x", 1<<17)
	var n atomic.Int32
	host := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[],"annotations":{"n":"%d","pad":%q}}`, n.Add(1), pad)
	}))
	s := openStore(t, Options{MaxCache: 1 << 20, Local: "reg.example"})
	for i := range 20 {
		_, _ = s.Resolve(t.Context(), fmt.Sprintf("%s/x/y:%d", host, i), amd64, &Source{})
	}
	if u := s.Cache.Use(); n.Load() < 20 || u.Bytes > u.Max {
		t.Errorf("%d were sent: %+v", n.Load(), u)
	}
}

// slowly has a registry claim an image whose one layer has some bytes, of which it sends a few and then none until release is closed.
func slowly(t *testing.T, size int64, asked func(), release <-chan struct{}) (host string) {
	layer := digest.FromString(fmt.Sprint("slow", size))
	config := []byte(`{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["` + layer.String() + `"]}}`)
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`, digest.FromBytes(config), len(config), layer, size)
	return startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			fmt.Fprint(w, manifest)
		case strings.HasSuffix(r.URL.Path, digest.FromBytes(config).String()):
			_, _ = w.Write(config)
		default:
			w.Header().Set("Content-Length", fmt.Sprint(size))
			if r.Method == http.MethodGet {
				fmt.Fprint(w, "begin")
				_ = http.NewResponseController(w).Flush()
				asked()
				<-release
			}
		}
	}))
}

// A registry that claims more than the cache has room for drives nothing out of it, and one that fills it with what it does not send keeps
// nobody else's images from those who ask for them.
func TestCacheIsNotHeld(t *testing.T) {
	const mib = 1 << 16 // as it were: what is compressed and compared takes time
	f := startForeign(t)
	cache := openStore(t, Options{MaxCache: 32 * mib, Local: "reg.example"})
	h := &Handler{Store: cache, Registry: "reg.example", Authorize: allow, Upstream: func(string) []*Source { return []*Source{{}} }}
	by := &Source{BaseURL: "http://" + startHandler(t, h)}
	pull := func(ref string) (err error) {
		_, err = openStore(t, Options{}).Pull(t.Context(), ref, amd64, nil, by)
		return err
	}
	f.push(t, "a:1", amd64, 5*mib, 1)
	if err := pull(f.host + "/a:1"); err != nil {
		t.Fatal(err)
	}
	before := cache.Cache.Use()
	release := make(chan struct{})
	defer close(release)
	huge := slowly(t, 1<<39, func() { t.Error("it was asked for what cannot fit") }, release)
	if err := pull(huge + "/huge:1"); !errors.Is(err, ErrFull) {
		t.Errorf("half a terabyte: %v", err)
	}
	if u := cache.Cache.Use(); u.Evicted != before.Evicted || u.Bytes < before.Bytes {
		t.Errorf("it drove others out: %+v, before %+v", u, before)
	}
	asked := make(chan struct{}, 1)
	slow := slowly(t, 29*mib, func() { asked <- struct{}{} }, release)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	store := openStore(t, Options{})
	go func() {
		_, err := store.Pull(ctx, slow+"/slow:1", amd64, nil, by)
		ended <- err
	}()
	<-asked
	f.push(t, "b:1", amd64, 6*mib, 2)
	if err := pull(f.host + "/b:1"); err != nil {
		t.Errorf("while the cache is taken up: %v", err)
	}
	if u := cache.Cache.Use(); u.Bytes > u.Max {
		t.Errorf("%+v", u)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was never sent")
	}
}
