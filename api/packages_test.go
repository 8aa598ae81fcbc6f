package api_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
)

// attach puts a list of contents beside an image, as other tools do.
func (s *site) attach(rt http.RoundTripper, repo, document string, subject artifact.Image) {
	s.t.Helper()
	const kind = "application/vnd.cyclonedx+json"
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), kind)
	list, err := mutate.AppendLayers(base, static.NewLayer([]byte(document), kind))
	must(s.t, err)
	d, err := v1.NewHash(string(subject.Digest))
	must(s.t, err)
	r, err := gname.ParseReference(strings.TrimPrefix(s.URL, "https://") + "/" + repo + ":list")
	must(s.t, err)
	about := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: d, Size: subject.Size}
	must(s.t, remote.Write(r, mutate.Subject(list, about).(v1.Image), remote.WithTransport(rt)))
}

func TestFindPackages(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	ctx := t.Context()
	for _, org := range []string{"acme", "umbra"} {
		_, err := admin.CreateOrg(ctx, orgNamed(org))
		must(t, err)
		_, err = admin.CreateNamespace(ctx, spaceOf(org, org))
		must(t, err)
		_, err = admin.CreateUser(ctx, "dev-"+org, "a long password", []auth.Grant{{Role: auth.RoleDeveloper, Org: org, Cluster: auth.Any}})
		must(t, err)
	}
	acme, umbra := s.client("dev-acme", "a long password"), s.client("dev-umbra", "a long password")
	local, err := artifact.Open(filepath.Join(s.Dir, "local"), artifact.Options{})
	must(t, err)
	defer local.Close()
	writeFile(t, s.Dir+"/ctx/hello.txt", "hello\n")
	build := func(repo string) artifact.Image {
		ref := "skerry.local/" + repo + ":1"
		o := artifact.BuildOptions{Source: s.Dir + "/ctx", Tag: ref, Platform: artifact.Platform{OS: "linux", Arch: "amd64"}}
		img, err := local.Build(ctx, o)
		must(t, err)
		_, err = local.Push(ctx, ref, ref, &artifact.Source{BaseURL: s.URL, Transport: acme.Transport()}, nil)
		must(t, err)
		return img
	}
	var many strings.Builder
	for n := range 150 {
		fmt.Fprintf(&many, `{"name": "many", "version": "1.%d"},`, n)
	}
	s.attach(acme.Transport(), "acme/web", `{"bomFormat": "CycloneDX", "components": [
		{"name": "libssl3", "version": "3.0.11-1", "purl": "pkg:deb/debian/libssl3@3.0.11-1?upstream=openssl"},
		`+many.String()+`{"name": "free"}]}`, build("acme/web"))
	build("acme/side")
	_, err = acme.Apply(ctx, []byte(`
apiVersion: skerry/v1
kind: Application
metadata: {name: shop, namespace: acme}
spec:
  services:
  - name: web
    image: skerry.local/acme/web:1
    command: [/hello.txt]
    replicas: 2
    sidecars:
    - {name: side, image: "skerry.local/acme/side:1", command: [/hello.txt]}
`), api.ApplyOptions{})
	must(t, err)
	find := func(c *api.Client, q string) (found, unknown string) {
		t.Helper()
		r, err := c.FindPackages(ctx, q, api.InstanceFilter{}, false)
		must(t, err)
		for _, u := range r.Found {
			found += u.Service.String() + " " + u.Package + " " + u.Version + ", "
		}
		for _, u := range r.Unknown {
			image, _, _ := strings.Cut(u.Image, "@")
			unknown += strings.Repeat("i", len(u.Instances)) + " " + image + ": " + u.Reason + ", "
		}
		return found, unknown
	}
	const side = "ii skerry.local/acme/side: no list of its contents (SBOM) is stored here, "
	both := strings.Repeat("acme/shop/web libssl3 3.0.11-1, ", 2)
	for q, want := range map[string]string{
		"openssl@<3.0.15": both, "libssl3": both,
		"openssl@>=3.0.15": "", "zlib": "",
	} {
		if found, unknown := find(acme, q); found != want || unknown != side {
			t.Errorf("%s: found %q, want %q; unknown %q, want %q", q, found, want, unknown, side)
		}
	}
	// What cannot be compared is not known, and not absent.
	if found, unknown := find(acme, "free@<2"); found != "" || !strings.Contains(unknown, "names no version of free") {
		t.Errorf("a package without a version: found %q, unknown %q", found, unknown)
	}
	if found, unknown := find(acme, "many"); strings.Count(found, "many") != 200 || !strings.Contains(unknown, "more than 100 versions") {
		t.Errorf("a package in many versions is found %d times; unknown %q", strings.Count(found, "many"), unknown)
	}
	if found, unknown := find(umbra, "openssl"); found+unknown != "" {
		t.Errorf("another organisation sees %q and %q", found, unknown)
	}
	if _, err := acme.FindPackages(ctx, "openssl@<", api.InstanceFilter{}, false); !strings.Contains(err.Error(), "no version") {
		t.Errorf("a query without a version: %v", err)
	}
}
