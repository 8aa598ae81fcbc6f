package api_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
)

// pusher builds images and pushes them to a site.
type pusher struct {
	t      *testing.T
	s      *site
	local  *artifact.Store
	client *api.Client
}

func newPusher(t *testing.T, s *site, client *api.Client) *pusher {
	t.Helper()
	local, err := artifact.Open(filepath.Join(t.TempDir(), "local"), artifact.Options{})
	must(t, err)
	t.Cleanup(func() { local.Close() })
	return &pusher{t, s, local, client}
}

// push pushes an image whose contents are a text, under names.
func (p *pusher) push(content string, names ...string) {
	p.t.Helper()
	writeFile(p.t, p.s.Dir+"/ctx/hello.txt", content)
	for _, name := range names {
		ref := "skerry.local/" + name
		_, err := p.local.Build(p.t.Context(), artifact.BuildOptions{Source: p.s.Dir + "/ctx", Tag: ref,
			Platform: artifact.Platform{OS: "linux", Arch: "amd64"}})
		must(p.t, err)
		_, err = p.local.Push(p.t.Context(), ref, ref, &artifact.Source{BaseURL: p.s.URL, Transport: p.client.Transport()}, nil)
		must(p.t, err)
	}
}

func (p *pusher) names() string {
	p.t.Helper()
	list, err := p.client.Images(p.t.Context())
	must(p.t, err)
	var out []string
	for _, v := range list {
		out = append(out, v.Name)
	}
	return strings.Join(out, " ")
}

func shopOf(image string) []byte {
	return []byte("apiVersion: skerry/v1\nkind: Application\nmetadata: {name: shop}\nspec:\n  services:\n" +
		"  - {name: web, image: " + image + ", command: [/hello]}\n")
}

// wantInUse checks that a deletion was refused, and that it says what uses the image.
func wantInUse(t *testing.T, what string, err error, why ...string) {
	t.Helper()
	var e *skerry.Error
	if !errors.As(err, &e) || e.Code != skerry.CodeConflict || !strings.Contains(e.Hint, "--force") {
		t.Fatalf("%s: %v, want code %s and a hint at --force", what, err, skerry.CodeConflict)
	}
	for _, w := range why {
		if !strings.Contains(e.Message, w) {
			t.Errorf("%s: %q, want it to say %q", what, e.Message, w)
		}
	}
}

// TestImagesInUseAreNotDeleted: neither a root nor a site deletes an image that an application, or an earlier version of it, names, unless
// it is forced to. A tag goes as long as the image has another one, and so does a copy in another repository.
func TestImagesInUseAreNotDeleted(t *testing.T) {
	for _, c := range []struct {
		name string
		site func(*testing.T) *site
	}{{"root", newRoot}, {"cluster", newCluster}} {
		t.Run(c.name, func(t *testing.T) {
			s := c.site(t)
			admin := s.admin()
			ctx := t.Context()
			p := newPusher(t, s, admin)
			p.push("one", "default/web:1", "default/web:also", "default/copy:1")
			p.push("two", "default/web:2")
			p.push("three", "default/web:3")
			for _, tag := range []string{"1", "2"} {
				_, err := admin.Apply(ctx, shopOf("default/web:"+tag), api.ApplyOptions{})
				must(t, err)
			}
			must(t, admin.DeleteImage(ctx, "default/web:also", false))
			must(t, admin.DeleteImage(ctx, "default/copy:1", false))
			must(t, admin.DeleteImage(ctx, "default/web:3", false))
			wantInUse(t, "the image that runs", admin.DeleteImage(ctx, "default/web:2", false), "default/shop/web (version 2) uses it")
			wantInUse(t, "the one before", admin.DeleteImage(ctx, "default/web:1", false), "default/shop/web (version 1) can go back to it")
			if got, want := p.names(), "default/web:1 default/web:2"; got != want {
				t.Errorf("there are the images %s, want %s", got, want)
			}
			must(t, admin.DeleteImage(ctx, "default/web:1", true))
			must(t, admin.DeleteImage(ctx, "default/web:2", true))
			if got := p.names(); got != "" {
				t.Errorf("there are still the images %s, want none", got)
			}
		})
	}
}

// TestDeletionHidesWhoUsesAnImage: whoever may delete an image learns of the applications that use it only what they may see.
func TestDeletionHidesWhoUsesAnImage(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	ctx := t.Context()
	for _, org := range []string{"acme", "rival"} {
		_, err := admin.CreateOrg(ctx, orgNamed(org))
		must(t, err)
		_, err = admin.CreateNamespace(ctx, spaceOf(org+"-space", org))
		must(t, err)
		_, err = admin.CreateUser(ctx, org, "a long password", []auth.Grant{{Role: auth.RoleDeveloper, Org: org, Cluster: auth.Any}})
		must(t, err)
	}
	acme := s.client("acme", "a long password")
	newPusher(t, s, acme).push("one", "acme-space/web:1")
	_, err := admin.Apply(ctx, []byte("apiVersion: skerry/v1\nkind: Application\nmetadata: {name: hidden, namespace: rival-space}\n"+
		"spec:\n  services:\n  - {name: web, image: acme-space/web:1, command: [/hello]}\n"), api.ApplyOptions{})
	must(t, err)
	err = acme.DeleteImage(ctx, "acme-space/web:1", false)
	wantInUse(t, "a stranger's use", err, "1 that you may not see")
	if strings.Contains(err.Error(), "hidden") {
		t.Errorf("it is said who uses the image: %v, want it hidden", err)
	}
	wantInUse(t, "to the operator", admin.DeleteImage(ctx, "acme-space/web:1", false), "rival-space/hidden/web (version 1)")
}

// TestApplyAndDeletionOfItsImage: an application is applied at the moment when somebody deletes its image. Either it is refused, or the
// image stays.
func TestApplyAndDeletionOfItsImage(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	ctx := t.Context()
	p := newPusher(t, s, admin)
	applied, deleted := 0, 0
	for n := range 40 {
		image := fmt.Sprintf("default/round:%d", n)
		p.push(image, image)
		var apply, remove error
		var both sync.WaitGroup
		both.Go(func() { _, apply = admin.Apply(ctx, shopOf("skerry.local/"+image), api.ApplyOptions{}) })
		both.Go(func() { remove = admin.DeleteImage(context.WithoutCancel(ctx), image, false) })
		both.Wait()
		there := strings.Contains(" "+p.names()+" ", " "+image+" ")
		switch {
		case apply == nil && remove == nil:
			t.Fatalf("round %d: it was applied, and its image was deleted", n)
		case apply == nil && there:
			wantInUse(t, image, remove)
			applied++
		case remove == nil && !there && strings.Contains(apply.Error(), "does not exist"):
			deleted++
		default:
			t.Fatalf("round %d: apply gave %v, the deletion %v, and whether the image is there is %t", n, apply, remove, there)
		}
	}
	t.Logf("%d times it was applied, %d times deleted", applied, deleted)
}
