//go:build linux

package tier

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
)

// TestTagIsNotTakenBack: a tag that was pushed anew where the store's names did not count, such as by an earlier version, means what was
// pushed last when they count again.
func TestTagIsNotTakenBack(t *testing.T) {
	st := roleStore(t)
	dir := filepath.Join(t.TempDir(), "images")
	l := leadImages(t, dir, st)
	l.push("shop/web:1", 1000)
	l.end()
	alone, err := artifact.Open(dir, artifact.Options{Local: imageref.BuiltIn})
	if err != nil {
		t.Fatal(err)
	}
	images := NewImages(alone, artifact.Limits{}, false, nil)
	all := func(string, string) error { return nil }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		images.ServeHTTP(w, r.WithContext(WithRegistryAuth(r.Context(), all)))
	}))
	l.host = srv.Listener.Addr().String()
	last := l.push("shop/web:1", 1000)
	srv.Close()
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
	l = leadImages(t, dir, st)
	l.wantPulled("shop/web:1")
	got, err := remote.Head(l.ref("shop/web:1"))
	if err != nil || got.Digest.String() != last.String() {
		t.Errorf("tag: got %+v, %v, want %s", got, err, last)
	}
	l.end()
	// And what was pushed since stays where an older disk leads again.
	l = leadImages(t, dir, st)
	image, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(l.ref("shop/web:1"), image); err != nil {
		t.Fatal(err)
	}
	l.end()
	if got, err = remote.Head(leadImages(t, dir, st).ref("shop/web:1")); err != nil || got.Digest.String() != sumOf(t, image).String() {
		t.Errorf("tag that was pushed since: got %+v, %v, want %s", got, err, sumOf(t, image))
	}
}
