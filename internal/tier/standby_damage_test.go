//go:build linux

package tier

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// TestStandbyIsDamaged: a copy that a standby finds to be damaged is fetched again, and not told of as if it were there.
func TestStandbyIsDamaged(t *testing.T) {
	st := roleStore(t)
	dir := filepath.Join(t.TempDir(), "images")
	l := leadImages(t, filepath.Join(t.TempDir(), "images"), st)
	standBy(t, &Standby{Dir: dir, Store: st}, l.ln.Addr().String)
	image, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(l.ref("shop/web:1"), image); err != nil {
		t.Fatal(err)
	}
	l.awaitState("it is copied", func(images, missing int, _ string) bool { return images == 1 && missing == 0 })
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "blobs", "sha256", layer.Hex)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, len(whole)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		fmt.Sprintf("http://standby/v2/shop/web/blobs/%s?ns=%s", layer, imageref.BuiltIn), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := l.Standbys.RoundTrip(r)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	if err == nil {
		t.Error("damaged layer of a standby: got no error, want one")
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		raw, err := os.ReadFile(path)
		if err == nil && digest.FromBytes(raw).String() == layer.String() {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("layer at the standby: got %d bytes, %v, want it fetched again; it tells %+v", len(raw), err, l.Standbys.List())
		}
	}
}
