package api

import (
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// The manifest says which images an instance of its own version has. Of another version, which may have the same main
// image, it says nothing of the others.
func TestImagesOfAnInstance(t *testing.T) {
	const web, side, digest = "skerry.local/web", "skerry.local/side", "sha256:aa"
	key := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	service := spec.ServiceSpec{Name: "web", Sidecars: make([]spec.SideContainer, 1),
		Pinned: map[string]string{web + ":1": web + "@" + digest, side + ":2": side + "@sha256:cc"}}
	service.Image, service.Sidecars[0].Image = web+":1", side+":2"
	gone := skerry.ServiceKey{App: skerry.AppKey{Name: "gone"}, Service: "web"}
	own, pinned := wire.Instance{Service: key, Revision: "new", Digest: digest}, []string{web + "@" + digest, side + "@sha256:cc"}
	app := &view.AppView{Services: []view.ServiceView{{Name: "web", Revision: "new"}},
		Manifest: &spec.Application{Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{service}}}}
	f := packageFinder{apps: map[skerry.AppKey]*view.AppView{key.App: app, gone.App: nil}}
	for name, c := range map[string]struct {
		i    wire.Instance
		want []string
	}{
		"of this version":                     {own, pinned},
		"of this version, and not started":    {wire.Instance{Service: key, Revision: "new"}, pinned},
		"of another with the same image":      {wire.Instance{Service: key, Revision: "old", Digest: digest}, []string{pinned[0], side + ":2"}},
		"of another with another image":       {wire.Instance{Service: key, Revision: "old", Digest: "sha256:bb"}, []string{web + "@sha256:bb", side + ":2"}},
		"of another, and not started":         {wire.Instance{Service: key, Revision: "old"}, []string{web + ":1", side + ":2"}},
		"of an application that is not known": {wire.Instance{Service: gone}, []string{gone.String()}},
	} {
		if got := f.imagesOf(t.Context(), &c.i); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
