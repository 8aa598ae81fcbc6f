package tier

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/decide/apps"
)

// TestHeldImagesStay: an image that a request has resolved and not used yet is not deleted, and one that was deleted is not resolved.
func TestHeldImagesStay(t *testing.T) {
	st, err := artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	images := NewImages(st, artifact.Limits{}, false, nil)
	KeepImages(images, func(context.Context) (apps.ImageUses, error) { return apps.ImageUses{}, nil })
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	ref := imageref.BuiltIn + "/test/web:1"
	if _, err := st.Build(t.Context(), artifact.BuildOptions{Source: src, Tag: ref,
		Platform: artifact.Platform{OS: "linux", Arch: "amd64"}}); err != nil {
		t.Fatal(err)
	}
	remove := func(want int, text string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodDelete, "/v2/test/web/manifests/1", nil)
		r = r.WithContext(WithRegistryAuth(r.Context(), func(string, string) error { return nil }))
		w := httptest.NewRecorder()
		images.ServeHTTP(w, r)
		if w.Code != want || !strings.Contains(w.Body.String(), text) {
			t.Errorf("the deletion gives %d %s, want %d with %q", w.Code, w.Body, want, text)
		}
	}
	first, done := images.Hold(t.Context())
	second, doneToo := images.Hold(t.Context())
	for _, ctx := range []context.Context{first, first, second} {
		if _, err := images.Resolve(ctx, ref); err != nil {
			t.Fatal(err)
		}
	}
	done()
	done()
	remove(http.StatusConflict, "an application that is being applied uses it")
	doneToo()
	// While it is being deleted, which may take long, nobody else waits for that, or uses it.
	d, _ := st.Lookup(imageref.Ref{Registry: imageref.BuiltIn, Repository: "test/web", Tag: "1"})
	gone, err := images.mayGo(t.Context(), artifact.Deletion{Repo: imageref.Ref{Registry: imageref.BuiltIn, Repository: "test/web"},
		Lost: []digest.Digest{d}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := images.Resolve(first, ref); err == nil {
		t.Errorf("an image that is being deleted is resolved")
	}
	gone()
	remove(http.StatusAccepted, "")
	if _, err := images.Resolve(second, ref); err == nil {
		t.Errorf("an image that was deleted is resolved")
	}
	if len(images.held.images) != 0 {
		t.Errorf("%v is still held, want nothing", images.held.images)
	}
}

// TestImagesOfTheParentAreHeld: what only the parent has is there, though nothing of it is here yet, as after a successor has taken over.
func TestImagesOfTheParentAreHeld(t *testing.T) {
	st, err := artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	images := NewImages(st, artifact.Limits{}, true, nil)
	ctx, release := images.Hold(t.Context())
	defer release()
	repo, d := imageref.Ref{Registry: imageref.BuiltIn, Repository: "test/web"}, digest.FromString("web")
	if !images.hold(ctx, repo, d) {
		t.Error("an image of the parent is taken for one that was deleted")
	}
	gone, err := images.mayGo(t.Context(), artifact.Deletion{Repo: repo, Lost: []digest.Digest{digest.FromString("other")}}, false)
	if err != nil {
		t.Fatal(err)
	}
	gone()
	if images.hold(ctx, repo, digest.FromString("other")) {
		t.Error("an image that was deleted after a request had begun is held")
	}
}
