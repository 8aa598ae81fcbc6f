//go:build linux

package artifact

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestDeletionBesidePush: an image with two tags is deleted by its digest, and in the middle of that somebody pushes. What is acknowledged
// meanwhile stays: another image under one of the tags, or the same image under a third.
func TestDeletionBesidePush(t *testing.T) {
	for name, push := range map[string]func(t *testing.T, reg *machine, img v1.Image) string{
		"another image under the second tag": func(t *testing.T, reg *machine, _ v1.Image) string {
			reg.push(t, "team/app:2", 3000)
			return "team/app:2"
		},
		"the image under a third tag": func(t *testing.T, reg *machine, img v1.Image) string {
			raw, err := img.RawManifest()
			if err != nil {
				t.Fatalf("read the manifest: %v", err)
			}
			if code, text := reg.ask(http.MethodPut, "team/app/manifests/3", strings.NewReader(string(raw))); code != http.StatusCreated {
				t.Fatalf("push it as a third tag: got %d %s, want %d", code, text, http.StatusCreated)
			}
			return "team/app:3"
		},
	} {
		t.Run(name, func(t *testing.T) {
			depot := newShelf()
			reg := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load()
			img, err := pushImage(t, reg.host, "team/app:1", 1, 1000)
			if err != nil {
				t.Fatalf("push: %v", err)
			}
			raw, err := img.RawManifest()
			if err != nil {
				t.Fatalf("read the manifest: %v", err)
			}
			if code, text := reg.ask(http.MethodPut, "team/app/manifests/2", strings.NewReader(string(raw))); code != http.StatusCreated {
				t.Fatalf("push the second tag: got %d %s, want %d", code, text, http.StatusCreated)
			}
			stays := ""
			depot.then(func(method, name string) error {
				if method == http.MethodDelete && name == depotNames+"team/app:1" && stays == "" {
					stays = "?"
					stays = push(t, reg, img)
				}
				return nil
			})
			if code, text := reg.ask(http.MethodDelete, "team/app/manifests/"+sumOf(t, img).String(), nil); code != http.StatusAccepted {
				t.Fatalf("delete by digest: got %d %s, want %d", code, text, http.StatusAccepted)
			}
			depot.then(nil)
			if stays == "" {
				t.Fatal("nothing was pushed in the middle of it, want the first tag deleted before the second")
			}
			reg.wantPulled(stays)
			depot.again(t).wantPulled(stays)
			if stays == "team/app:3" {
				reg.wantPulled("team/app@" + sumOf(t, img).String())
			}
			if err := reg.pull("team/app:1"); err == nil {
				t.Error("the first tag is still there, want it deleted")
			}
		})
	}
}
