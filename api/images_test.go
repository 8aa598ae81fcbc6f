package api_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
)

// TestImagesSayWhoUsesThem pushes to a root, applies two versions of an application, and lists images as their owner and as another.
func TestImagesSayWhoUsesThem(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	ctx := t.Context()
	_, err := admin.CreateOrg(ctx, orgNamed("acme"))
	must(t, err)
	_, err = admin.CreateNamespace(ctx, spaceOf("acme-space", "acme"))
	must(t, err)
	for name, role := range map[string]auth.Role{"dev": auth.RoleDeveloper, "guest": auth.RoleViewer} {
		_, err = admin.CreateUser(ctx, name, "a long password", []auth.Grant{{Role: role, Org: "acme", Cluster: auth.Any}})
		must(t, err)
	}
	dev := s.client("dev", "a long password")
	local, err := artifact.Open(filepath.Join(s.Dir, "local"), artifact.Options{})
	must(t, err)
	defer local.Close()
	for _, tag := range []string{"1", "2", "3"} {
		writeFile(t, s.Dir+"/ctx/hello.txt", tag)
		ref := "skerry.local/acme-space/web:" + tag
		opt := artifact.BuildOptions{Source: s.Dir + "/ctx", Tag: ref, Platform: artifact.Platform{OS: "linux", Arch: "amd64"}}
		_, err := local.Build(ctx, opt)
		must(t, err)
		_, err = local.Push(ctx, ref, ref, &artifact.Source{BaseURL: s.URL, Transport: dev.Transport()}, nil)
		must(t, err)
	}
	for _, tag := range []string{"1", "2"} {
		manifest := fmt.Sprintf("apiVersion: skerry/v1\nkind: Application\nmetadata: {name: shop, namespace: acme-space}\n"+
			"spec:\n  services:\n  - {name: web, image: acme-space/web:%s, command: [/hello]}\n", tag)
		_, err := dev.Apply(ctx, []byte(manifest), api.ApplyOptions{})
		must(t, err)
	}
	user := []string{"acme-space/shop/web"}
	for who, client := range map[string]*api.Client{"dev": dev, "guest": s.client("guest", "a long password")} {
		list, err := client.Images(ctx)
		must(t, err)
		if len(list) != 3 {
			t.Fatalf("%s sees %d images", who, len(list))
		}
		for _, v := range list {
			var used, kept []string
			switch {
			case who == "guest": // may not delete them
			case v.Name == "acme-space/web:1":
				kept = user
			case v.Name == "acme-space/web:2":
				used = user
			}
			if !slices.Equal(v.UsedBy, used) || !slices.Equal(v.KeptFor, kept) || v.LastUsed.IsZero() {
				t.Errorf("%s: %+v, want it used by %v and kept for %v", who, v, used, kept)
			}
		}
	}
	must(t, dev.DeleteImage(ctx, "acme-space/web:3", false))

	// Another organisation that has the same image learns of none of this, not even that somebody else has it.
	_, err = admin.CreateOrg(ctx, orgNamed("rival"))
	must(t, err)
	_, err = admin.CreateNamespace(ctx, spaceOf("rival-space", "rival"))
	must(t, err)
	_, err = admin.CreateUser(ctx, "spy", "a long password", []auth.Grant{{Role: auth.RoleDeveloper, Org: "rival", Cluster: auth.Any}})
	must(t, err)
	spy := s.client("spy", "a long password")
	for _, tag := range []string{"1", "2"} {
		from, to := "skerry.local/acme-space/web:"+tag, "skerry.local/rival-space/copy:"+tag
		must(t, local.Tag(from, to))
		_, err = local.Push(ctx, to, to, &artifact.Source{BaseURL: s.URL, Transport: spy.Transport()}, nil)
		must(t, err)
	}
	before, err := spy.Images(ctx)
	must(t, err)
	_, err = dev.Apply(ctx, []byte("apiVersion: skerry/v1\nkind: Application\nmetadata: {name: second, namespace: acme-space}\n"+
		"spec:\n  services:\n  - {name: web, image: acme-space/web:1, command: [/hello]}\n"), api.ApplyOptions{})
	must(t, err)
	list, err := spy.Images(ctx)
	must(t, err)
	if len(list) != 2 || len(before) != 2 {
		t.Fatalf("the other organisation sees %d images, %d before", len(list), len(before))
	}
	for i, v := range list {
		if len(v.UsedBy)+len(v.KeptFor) > 0 || !v.LastUsed.Equal(before[i].LastUsed) {
			t.Errorf("the other organisation learns of %+v, before %+v", v, before[i])
		}
	}
	all, err := admin.Images(ctx)
	must(t, err)
	for _, v := range all {
		if both := []string{"acme-space/second/web"}; v.Name == "acme-space/web:1" && !slices.Equal(v.UsedBy, both) {
			t.Errorf("the operator sees %+v, want it used by %v", v, both)
		}
	}
}
