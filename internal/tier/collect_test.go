package tier

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/decide/apps"
)

// TestCollectSparesWhatIsUsed: a registry that is beyond its limit removes what nothing uses, and nothing while it does not know what that
// is.
func TestCollectSparesWhatIsUsed(t *testing.T) {
	ahead := time.Duration(0)
	st, err := artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	images := NewImages(st, artifact.Limits{Space: 1}, false, nil)
	pinned := map[string]string{}
	for _, name := range []string{"run", "kept", "agent", "unused"} {
		src := t.TempDir()
		if err := os.WriteFile(filepath.Join(src, "file"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		ref := imageref.Ref{Registry: imageref.BuiltIn, Repository: "test/" + name, Tag: "1"}
		opt := artifact.BuildOptions{Source: src, Tag: ref.String(), Platform: artifact.Platform{OS: "linux", Arch: "amd64"}}
		if _, err := st.Build(t.Context(), opt); err != nil {
			t.Fatal(err)
		}
		d, _ := st.Lookup(ref)
		pinned[name] = ref.Pinned(d).String()
	}
	ahead = 2 * time.Hour
	if p, err := images.collect(t.Context()); err != nil || len(p.Names) > 0 {
		t.Errorf("collected %v before anybody said what is used: %v", p.Names, err)
	}
	away := errors.New("the store is away")
	KeepImages(images, func(context.Context) (apps.ImageUses, error) {
		if away != nil {
			return nil, away
		}
		uses := apps.ImageUses{}
		uses.Run(pinned["run"], skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}, 1)
		uses.Of(pinned["kept"]).KeptFor = []string{"default/shop/web"}
		uses.Of("test/agent:1").UsedBy = []string{"worker/w1"}
		return uses, nil
	})
	if _, err := images.collect(t.Context()); !errors.Is(err, away) {
		t.Errorf("collected without knowing what is used: %v", err)
	}
	if _, err := images.ListImages(t.Context()); !errors.Is(err, away) {
		t.Errorf("listed without knowing what is used: %v", err)
	}
	away = nil
	if list, err := images.ListImages(t.Context()); err != nil || len(list) != 4 {
		t.Fatalf("%d images, %v", len(list), err)
	}
	p, err := images.collect(t.Context())
	if err != nil || strings.Join(p.Names, " ") != imageref.BuiltIn+"/test/unused:1" {
		t.Errorf("collected %v, %v", p.Names, err)
	}
	list, err := images.ListImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range list {
		got[v.Name] = strings.Join(v.UsedBy, ",") + " " + strings.Join(v.KeptFor, ",")
		if v.LastUsed.IsZero() || v.Size == 0 {
			t.Errorf("neither size nor last use: %+v", v)
		}
	}
	want := map[string]string{"test/agent:1": "worker/w1 ", "test/kept:1": " default/shop/web", "test/run:1": "default/shop/web "}
	for name, uses := range want {
		if got[name] != uses {
			t.Errorf("%s is used by %q, want %q", name, got[name], uses)
		}
	}
	if len(got) != len(want) {
		t.Errorf("left are %v", got)
	}
}
