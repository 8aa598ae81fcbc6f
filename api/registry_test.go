package api_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
)

// TestRegistryAsksTheSameUsers pushes and pulls as users of two organisations, with passwords and tokens.
func TestRegistryAsksTheSameUsers(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	ctx := t.Context()
	for _, org := range []string{"acme", "umbra"} {
		_, err := admin.CreateOrg(ctx, orgNamed(org))
		must(t, err)
		_, err = admin.CreateNamespace(ctx, spaceOf(org+"-space", org))
		must(t, err)
		_, err = admin.CreateUser(ctx, "dev-"+org, "a long password", []auth.Grant{{Role: auth.RoleDeveloper, Org: org, Cluster: auth.Any}})
		must(t, err)
	}
	acme, umbra := s.client("dev-acme", "a long password"), s.client("dev-umbra", "a long password")
	local, err := artifact.Open(filepath.Join(s.Dir, "local"), artifact.Options{})
	must(t, err)
	defer local.Close()
	push := func(rt http.RoundTripper, repo string) error {
		ref := "skerry.local/" + repo + ":1"
		if _, err := local.Build(ctx, artifact.BuildOptions{Source: s.Dir + "/ctx", Tag: ref, Platform: artifact.Platform{OS: "linux", Arch: "amd64"}}); err != nil {
			t.Fatal(err)
		}
		_, err := local.Push(ctx, ref, ref, &artifact.Source{BaseURL: s.URL, Transport: rt}, nil)
		return err
	}
	writeFile(t, s.Dir+"/ctx/hello.txt", "hello\n")
	token, err := acme.CreateAccessToken(ctx, api.AccessTokenRequest{Name: "ci", Scopes: []auth.Scope{auth.ScopeImagesRead, auth.ScopeImagesPush}})
	must(t, err)
	readOnly, err := acme.CreateAccessToken(ctx, api.AccessTokenRequest{Name: "pull", Scopes: []auth.Scope{auth.ScopeImagesRead}})
	must(t, err)
	for name, c := range map[string]struct {
		rt   http.RoundTripper
		repo string
		ok   bool
	}{
		"own namespace":           {acme.Transport(), "acme-space/web", true},
		"another's namespace":     {umbra.Transport(), "acme-space/web", false},
		"the site's":              {acme.Transport(), "web", false},
		"no such namespace":       {acme.Transport(), "nowhere/web", false},
		"admin, the site's":       {admin.Transport(), "tools/base", true},
		"user and password":       {s.basic("dev-acme", "a long password"), "acme-space/p", true},
		"wrong password":          {s.basic("dev-acme", "a wrong password"), "acme-space/p", false},
		"user and access token":   {s.basic("dev-acme", token.Text), "acme-space/t", true},
		"another's access token":  {s.basic("dev-umbra", token.Text), "umbra-space/t", false},
		"token without the scope": {s.basic("dev-acme", readOnly.Text), "acme-space/r", false},
		"nobody":                  {s.basic("", ""), "acme-space/n", false},
	} {
		if err := push(c.rt, c.repo); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	get := func(rt http.RoundTripper, path string) int {
		r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
		res, err := rt.RoundTrip(r)
		must(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	for name, c := range map[string]struct {
		rt   http.RoundTripper
		path string
		want int
	}{
		"own":                 {acme.Transport(), "/v2/acme-space/web/tags/list", 200},
		"another's":           {umbra.Transport(), "/v2/acme-space/web/tags/list", 403},
		"the site's":          {umbra.Transport(), "/v2/tools/base/tags/list", 200},
		"nobody":              {s.basic("", ""), "/v2/tools/base/tags/list", 401},
		"is it a registry":    {s.basic("", ""), "/v2/", 401},
		"it is, and I may in": {umbra.Transport(), "/v2/", 200},
	} {
		if got := get(c.rt, c.path); got != c.want {
			t.Errorf("pull %s: %d", name, got)
		}
	}
	// To deploy an image is to read it.
	manifest := func(space, image string) []byte {
		return []byte("apiVersion: skerry/v1\nkind: Application\nmetadata: {name: thief, namespace: " + space + "}\nspec:\n  services:\n  - {name: web, image: " + strconv.Quote(image) + "}\n")
	}
	for image, c := range map[string]struct {
		who   *api.Client
		space string
		ok    bool
	}{
		"skerry.local/acme-space/web:1": {acme, "acme-space", true},
		"acme-space/p:1":                {acme, "acme-space", true},
		"skerry.local/acme-space/p:1":   {umbra, "umbra-space", false},
		"acme-space/web:1":              {umbra, "umbra-space", false},
		"skerry.local/acme-space/none":  {umbra, "umbra-space", false},
		"skerry.local/tools/base:1":     {umbra, "umbra-space", true},
	} {
		_, planned := c.who.Plan(ctx, manifest(c.space, image))
		_, err := c.who.Apply(ctx, manifest(c.space, image), api.ApplyOptions{Register: true})
		for how, err := range map[string]error{"apply": err, "plan": planned} {
			if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "images:read in the organisation of namespace acme-space") {
				t.Errorf("%s %s: %v", how, image, err)
			}
		}
	}
	for c, want := range map[*api.Client]string{acme: "acme-space/p acme-space/t acme-space/web tools/base", umbra: "tools/base"} {
		r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/v2/_catalog", nil)
		res, err := c.Transport().RoundTrip(r)
		must(t, err)
		var got struct{ Repositories []string }
		must(t, json.NewDecoder(res.Body).Decode(&got))
		res.Body.Close()
		if strings.Join(got.Repositories, " ") != want {
			t.Errorf("the catalog has %q, want %q", got.Repositories, want)
		}
	}
	for c, want := range map[*api.Client]string{acme: "acme-space/p:1 acme-space/t:1 acme-space/web:1 tools/base:1", umbra: "tools/base:1"} {
		list, err := c.Images(ctx)
		must(t, err)
		var names []string
		for _, i := range list {
			names = append(names, i.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("images: %s, want %s", got, want)
		}
	}
	// Nobody's images become another's with the name of their namespace, nor everybody's.
	_, err = admin.CreateUser(ctx, "head-umbra", "a long password", []auth.Grant{{Role: auth.RoleAdmin, Org: "umbra", Cluster: auth.Any}})
	must(t, err)
	head := s.client("head-umbra", "a long password")
	if _, err := head.CreateNamespace(ctx, spaceOf("tools", "umbra")); err == nil || skerry.AsError(err).Code != skerry.CodeConflict {
		t.Errorf("umbra took the namespace of the site's images: %v", err)
	}
	if err := admin.DeleteNamespace(ctx, "acme-space"); err == nil || !strings.Contains(err.Error(), "still contains image acme-space/") {
		t.Errorf("a namespace with images: %v", err)
	}
	list, err := admin.Audit(ctx, "dev-acme", "registry", 0)
	if err != nil || len(list) == 0 || list[len(list)-1].Token != "ci" && list[0].Object == "" {
		t.Errorf("audit: %+v %v", list, err)
	}
}

// basic sends user and password, as image clients do.
func (s *site) basic(user, password string) http.RoundTripper {
	return basicTransport{s.http().Transport, user, password}
}

type basicTransport struct {
	next           http.RoundTripper
	user, password string
}

func (b basicTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.user != "" {
		r.SetBasicAuth(b.user, b.password)
	}
	return b.next.RoundTrip(r)
}

// TestPushesOfOneOrganisation: an organisation pushes as much as its quota has, whatever namespaces it makes, and others go on.
func TestPushesOfOneOrganisation(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	ctx := t.Context()
	for _, org := range []string{"acme", "umbra"} {
		o := orgNamed(org)
		if org == "acme" {
			o.Quota.Pushed = skerry.MiB
		}
		_, err := admin.CreateOrg(ctx, o)
		must(t, err)
		_, err = admin.CreateNamespace(ctx, spaceOf(org+"-space", org))
		must(t, err)
		_, err = admin.CreateUser(ctx, "dev-"+org, "a long password", []auth.Grant{{Role: auth.RoleAdmin, Org: org, Cluster: auth.Any}})
		must(t, err)
	}
	acme, umbra := s.client("dev-acme", "a long password"), s.client("dev-umbra", "a long password")
	local, err := artifact.Open(filepath.Join(s.Dir, "local"), artifact.Options{})
	must(t, err)
	defer local.Close()
	push := func(c *api.Client, repo string) error {
		noise := make([]byte, 300<<10) // nothing to compress
		rand.Read(noise)
		writeFile(t, s.Dir+"/ctx/noise", string(noise))
		ref := "skerry.local/" + repo
		_, err := local.Build(ctx, artifact.BuildOptions{Source: s.Dir + "/ctx", Tag: ref, Platform: artifact.Platform{OS: "linux", Arch: "amd64"}})
		must(t, err)
		_, err = local.Push(ctx, ref, ref, &artifact.Source{BaseURL: s.URL, Transport: c.Transport()}, nil)
		return err
	}
	_, err = acme.CreateNamespace(ctx, spaceOf("acme-more", "acme"))
	must(t, err)
	for _, repo := range []string{"acme-space/web:1", "acme-more/web:1", "acme-space/web:2"} {
		must(t, push(acme, repo))
	}
	err = push(acme, "acme-more/web:2")
	for _, want := range []string{"acme may have 1048576 bytes", "are used", "skerry org quota acme --pushed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the fourth image: %v, want %q", err, want)
		}
	}
	must(t, push(umbra, "umbra-space/web:1"))
	u, err := acme.Usage(ctx, "acme")
	must(t, err)
	if u.Pushed < 900<<10 || u.Pushed > skerry.MiB || u.Uploads != 0 {
		t.Errorf("usage: %+v", u)
	}
	// Who has more than the quota of now keeps it, and is listed.
	_, err = admin.SetQuota(ctx, "acme", apps.Quota{Pushed: skerry.MiB / 2})
	must(t, err)
	list, err := admin.Unadmitted(ctx)
	if err != nil || len(list) != 1 || list[0].Org != "acme" || !strings.Contains(list[0].Reason.Text, "and may have 512Ki") || !strings.Contains(list[0].Reason.Hint, "skerry org quota acme --pushed") {
		t.Errorf("listed: %+v, %v", list, err)
	}
	_, err = admin.SetQuota(ctx, "acme", apps.Quota{Pushed: skerry.MiB})
	must(t, err)
	// A namespace that is deleted neither makes room nor leaves its images to who is given the name next.
	if err := acme.DeleteNamespace(ctx, "acme-more"); err == nil || !strings.Contains(err.Error(), "still contains image acme-more/") {
		t.Errorf("delete a namespace with an image: %v", err)
	}
	if err := umbra.DeleteImage(ctx, "acme-more/web:1", false); err == nil {
		t.Error("another deleted the image")
	}
	must(t, acme.DeleteImage(ctx, "acme-more/web:1", false))
	must(t, acme.DeleteNamespace(ctx, "acme-more"))
	must(t, push(acme, "acme-space/web:3"))
}
