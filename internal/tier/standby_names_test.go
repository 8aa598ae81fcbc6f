//go:build linux

package tier

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/store"
)

// put sends something to a registry as a client of its own would, and gives the status of the answer.
func put(t *testing.T, method, host, path, content string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+host+path, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// pushWide pushes an image with many layers that lie elsewhere, and gives the status of the answer.
func pushWide(t *testing.T, host string) int {
	t.Helper()
	send := func(content string) string {
		sum := digest.SHA512.FromString(content)
		if got := put(t, http.MethodPost, host, "/v2/other/app/blobs/uploads/?digest="+sum.String(), content); got != http.StatusCreated {
			t.Fatalf("upload: got status %d, want 201", got)
		}
		return fmt.Sprintf(`"size":%d,"digest":"%s"`, len(content), sum)
	}
	var layers []string
	for n := range 490 {
		layers = append(layers, fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.nondistributable.v1.tar","urls":["http://x/"],%s}`,
			send(fmt.Sprint("layer ", n))))
	}
	return put(t, http.MethodPut, host, "/v2/other/app/manifests/1", fmt.Sprintf(`{"schemaVersion":2,`+
		`"mediaType":"application/vnd.oci.image.manifest.v1+json",`+
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json",%s},"layers":[%s]}`, send("{}"), strings.Join(layers, ",")))
}

// TestNameTooLargeForTheStore: an image whose name would take more in the role's store than is read of one is refused. It does not keep all
// others from being known when the process starts again, nor does one from before there were names in the store.
func TestNameTooLargeForTheStore(t *testing.T) {
	st := roleStore(t)
	dir := filepath.Join(t.TempDir(), "images")
	before, err := artifact.Open(dir, artifact.Options{Local: imageref.BuiltIn})
	if err != nil {
		t.Fatal(err)
	}
	images := NewImages(before, artifact.Limits{}, false, nil)
	all := func(string, string) error { return nil }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		images.ServeHTTP(w, r.WithContext(WithRegistryAuth(r.Context(), all)))
	}))
	if got := pushWide(t, srv.Listener.Addr().String()); got != http.StatusCreated {
		t.Errorf("push to a process without such a store: got status %d, want 201", got)
	}
	srv.Close()
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	l := leadImages(t, dir, st)
	l.push("shop/web:1", 1000)
	l.end()
	l = leadImages(t, dir, st)
	l.wantPulled("shop/web:1")
	if got := put(t, http.MethodHead, l.host, "/v2/other/app/manifests/1", ""); got != http.StatusOK {
		t.Errorf("manifest of the image from before: got status %d, want 200", got)
	}
	if got := pushWide(t, l.host); got != http.StatusRequestEntityTooLarge {
		t.Errorf("push of the image from before: got status %d, want 413: no other process would have its name", got)
	}
	if got := put(t, http.MethodHead, l.host, "/v2/other/app/manifests/1", ""); got != http.StatusOK {
		t.Errorf("manifest of the image from before, after that: got status %d, want 200", got)
	}
	l.end()
	l = leadImages(t, filepath.Join(t.TempDir(), "images"), st)
	if got := pushWide(t, l.host); got != http.StatusRequestEntityTooLarge {
		t.Errorf("push: got status %d, want 413", got)
	}
	l.end()
	leadImages(t, dir, st).wantPulled("shop/web:1")
}

// exchangedStore is one that another store takes the place of as soon as it was listed.
type exchangedStore struct {
	store.Store
	gets atomic.Int64
}

func (s *exchangedStore) Get(ctx context.Context, key string) (store.Record, error) {
	if strings.HasPrefix(key, keyImages) {
		s.gets.Add(1)
		return store.Record{}, store.ErrNotFound
	}
	return s.Store.Get(ctx, key)
}

// TestNamesAreOfOneMoment: a standby takes names over as they are at one moment, and at once. Those of a store that is exchanged meanwhile
// do not count as deleted.
func TestNamesAreOfOneMoment(t *testing.T) {
	st := roleStore(t)
	dir := filepath.Join(t.TempDir(), "images")
	l := leadImages(t, dir, st)
	l.push("shop/web:1", 1000)
	l.end()
	life, err := lifeOf(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	names := &exchangedStore{Store: st}
	kept, err := artifact.Open(dir, artifact.Options{Local: imageref.BuiltIn, Ledger: &artifact.Ledger{
		Names: namesOfLife{ImageNames{names}, life}, Life: string(life), Follows: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := artifact.ReloadLedger(t.Context(), kept); err != nil {
		t.Error(err)
	}
	if n := len(artifact.LedgerImages(kept)); n != 1 {
		t.Errorf("images: got %d, want 1", n)
	}
	if n := names.gets.Load(); n != 0 {
		t.Errorf("names that were read one by one: got %d, want 0", n)
	}
	if err := kept.Close(); err != nil {
		t.Error(err)
	}
	leadImages(t, dir, st).wantPulled("shop/web:1")
}
