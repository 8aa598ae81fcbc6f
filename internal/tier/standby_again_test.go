//go:build linux

package tier

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
)

// TestPushAgainWhatWasLost: an image of which a process that leads has a part alone is whole again when it is pushed again, whether no
// standby has the rest or one that is away.
func TestPushAgainWhatWasLost(t *testing.T) {
	for _, known := range []bool{false, true} {
		st := roleStore(t)
		dir := filepath.Join(t.TempDir(), "images")
		l := leadImages(t, dir, st)
		image, err := random.Image(1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(l.ref("shop/web:1"), image); err != nil {
			t.Fatal(err)
		}
		if known {
			l.Standbys.list["away"] = &standby{whole: map[digest.Digest]bool{}}
		}
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		layer, err := layers[0].Digest()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "blobs", "sha256", layer.Hex)); err != nil {
			t.Fatal(err)
		}
		if err := l.pull("shop/web:1"); err == nil || known && !strings.Contains(err.Error(), "UNAVAILABLE") {
			t.Errorf("pull of what is not whole, with a standby known: %t: got %v, want an error", known, err)
		}
		// By another tag: this client does not look at the layers of one that is there.
		if err := remote.Write(l.ref("shop/web:2"), image, remote.WithRetryBackoff(remote.Backoff{Steps: 1})); err != nil {
			t.Errorf("push again, with a standby known: %t: got %v, want no error", known, err)
		}
		l.wantPulled("shop/web:1", "shop/web:2")
		l.end()
	}
}
