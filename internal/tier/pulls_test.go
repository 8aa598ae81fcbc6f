package tier

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A child gets what it was given, by digest, as long as it has it.
func TestChildPulls(t *testing.T) {
	dir := t.TempDir()
	st, err := artifact.Open(filepath.Join(dir, "images"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	images := NewImages(st, artifact.Limits{}, false, nil)
	build := func(repo, text string, index bool) artifact.Image {
		t.Helper()
		src := filepath.Join(dir, "src")
		if err := os.MkdirAll(src, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(src, "file"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		img, err := st.Build(t.Context(), artifact.BuildOptions{Source: src, Tag: imageref.BuiltIn + "/" + repo + ":1", Platform: artifact.HostPlatform(), Index: index, Entrypoint: []string{"/file"}})
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	mine, other, late, shared := build("shop/web", "mine", true), build("rival/secret", "secret", false), build("shop/late", "late", false), build("tools/base", "base", false)

	codec := wire.New()
	set := reconcile.NewSource("desired", "x/", "inc", reconcile.Options{})
	give := func(id string, ref, pinned string) {
		t.Helper()
		a := spec.Assignment{ID: skerry.InstanceID(id), Spec: spec.ServiceSpec{Container: spec.Container{Image: ref}}}
		if pinned != "" {
			a.Digest = map[string]string{ref: pinned}
		}
		if _, err := set.Put(wire.AssignmentKey(a.ID), codec.Marshal(&a)); err != nil {
			t.Fatal(err)
		}
	}
	pin := func(repo string, d digest.Digest) string { return imageref.BuiltIn + "/" + repo + "@" + string(d) }
	give("web-r1", "shop/web:1", pin("shop/web", mine.Digest))
	give("late-r1", "shop/late:1", "")
	LimitPulls(images, func(_ context.Context, child, have string) (Pulls, error) {
		p := AssignedImages(set, codec.Unmarshal, have)
		p.Shared = func(repo string) bool { return repo == "tools/base" && child == "site" }
		return p, nil
	})
	// parts lists what an image is made of.
	parts := func(img artifact.Image) []string {
		out := []string{"manifests/" + string(img.Digest), "manifests/" + string(img.Manifest)}
		data, err := os.ReadFile(filepath.Join(dir, "images", "blobs", "sha256", img.Manifest.Encoded()))
		if err != nil {
			t.Fatal(err)
		}
		type blob struct{ Digest string }
		var m struct {
			Config blob
			Layers []blob
		}
		if err := json.Unmarshal(data, &m); err != nil || len(m.Layers) == 0 {
			t.Fatal(err, string(data))
		}
		for _, l := range append(m.Layers, m.Config) {
			out = append(out, "blobs/"+l.Digest)
		}
		return out
	}
	may := func(child, repo, what string) bool {
		kind, id := filepath.Split(what)
		return images.childMayRead(t.Context(), child, imageref.Ref{Registry: imageref.BuiltIn, Repository: repo}, filepath.Clean(kind), id) == nil
	}
	check := func(child, repo string, img artifact.Image, want bool) {
		t.Helper()
		for _, what := range parts(img) {
			if may(child, repo, what) != want {
				t.Errorf("%s of %s for %s: %s", what, repo, child, strconv.FormatBool(!want))
			}
		}
	}
	check("worker", "shop/web", mine, true)
	check("worker", "rival/secret", other, false)
	check("worker", "shop/web", other, false)
	check("worker", "rival/secret", mine, false) // by another's name
	check("worker", "shop/late", late, true)
	check("worker", "tools/base", shared, false)
	check("site", "tools/base", shared, true)
	for what, want := range map[[2]string]bool{
		{"shop/web", "manifests/1"}: false, {"shop/late", "manifests/1"}: true, {"shop/late", "manifests/2"}: false, {"rival/secret", "manifests/1"}: false,
		{"shop/web", "tags/list"}: false, {"shop/web", "referrers/" + string(mine.Digest)}: true, {"shop/web", "referrers/" + string(other.Digest)}: false, {"rival/secret", "referrers/" + string(other.Digest)}: false,
		{"shop/web", "manifests/" + artifact.SignatureTag(mine.Digest)}: true, {"shop/web", "manifests/" + artifact.SignatureTag(other.Digest)}: false,
		{"rival/secret", "manifests/" + artifact.SignatureTag(other.Digest)}: false, {"shop/late", "manifests/" + artifact.SignatureTag(late.Digest)}: true,
		{"shop/web", "blobs/x"}: false,
	} {
		if may("worker", what[0], what[1]) != want {
			t.Errorf("%v: %v", what, !want)
		}
	}
	set.Delete(wire.AssignmentKey("web-r1"))
	check("worker", "shop/web", mine, false)
}

// A registry that the operator has for some organisations is there for no other, and users get none through the built-in one that is not listed.
func TestRegistriesOfOrganisations(t *testing.T) {
	st, err := artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	asked := make(chan string, 100)
	corp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		http.NotFound(w, r)
	}))
	defer corp.Close()
	host := strings.TrimPrefix(corp.URL, "http://")
	guard := &artifact.Guard{Listed: []string{host}, Organisations: map[string][]string{host: {"shop"}}}
	images := NewImages(st, artifact.Limits{}, false, &artifact.Source{Guard: guard})
	for org, want := range map[string]string{"shop": "does not exist at", "bank": "is not there for organisation bank", "": "is not there for organisation"} {
		_, err := images.Resolve(WithOrg(t.Context(), org), host+"/team/app:1")
		if err == nil || !strings.Contains(err.Error(), want) || (len(asked) > 0) != (org == "shop") {
			t.Errorf("%q: %d requests, %v", org, len(asked), err)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
	if _, err := images.Resolve(t.Context(), "169.254.169.254/team/app:1"); err == nil || !strings.Contains(skerry.AsError(err).Hint, "--registry") {
		t.Errorf("%v", err)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		images.ServeHTTP(w, r.WithContext(WithRegistryAuth(r.Context(), func(string, string) error { return nil })))
	}))
	defer api.Close()
	for _, ns := range []string{host, "10.0.0.1:22", "127.0.0.1:1", "registry.example"} {
		res, err := http.Get(api.URL + "/v2/team/app/manifests/1?ns=" + ns)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden || len(asked) > 0 {
			t.Errorf("%s: %d, %d requests", ns, res.StatusCode, len(asked))
		}
	}
}
