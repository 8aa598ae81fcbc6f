package artifact

import (
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
	const mib = 1 << 20
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

// Manifests that are asked for and never named do not fill it either.
func TestManifestsAreBounded(t *testing.T) {
	pad := strings.Repeat("x", 1<<20)
	var n atomic.Int32
	host := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[],"annotations":{"n":"%d","pad":%q}}`, n.Add(1), pad)
	}))
	s := openStore(t, Options{MaxCache: 8 << 20, Local: "reg.example"})
	for i := range 20 {
		_, _ = s.Resolve(t.Context(), fmt.Sprintf("%s/x/y:%d", host, i), amd64, &Source{})
	}
	if u := s.Cache.Use(); n.Load() < 20 || u.Bytes > u.Max {
		t.Errorf("%d were sent: %+v", n.Load(), u)
	}
}
