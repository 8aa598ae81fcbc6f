//go:build linux

package artifact

import (
	"crypto/sha256"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// built is a store with an image of one file that was built there.
func built(t *testing.T, name string) *Store {
	t.Helper()
	s, src := openStore(t, Options{}), t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "file"), []byte("x"), 0o755); err != nil {
		t.Fatalf("a file is not written: %v", err)
	}
	opt := BuildOptions{Source: src, Tag: name, Platform: HostPlatform(), Entrypoint: []string{"/file"}}
	if _, err := s.Build(t.Context(), opt); err != nil {
		t.Fatalf("an image is not built: %v", err)
	}
	return s
}

// Only the status that the protocol has for success is one: what a proxy, a login page or half an answer says is not that an image
// arrived, or that it is there.
func TestStatusesThatAreNoSuccess(t *testing.T) {
	const name = "registry.example/team/app:1"
	mine := built(t, name)
	page := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/page")
			w.WriteHeader(status)
		}
	}
	begin := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/v2/team/app/blobs/uploads/1")
		w.WriteHeader(http.StatusAccepted)
	}
	other := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "7") }
	for what, c := range map[string]struct {
		step  string // HEAD, POST, blob, manifest
		other http.HandlerFunc
		fails bool
	}{
		"as it is to be":                  {"", nil, false},
		"a blob without a size is there":  {"HEAD", page(http.StatusNoContent), false}, // and it is sent
		"another blob is there":           {"HEAD", other, false},
		"no place for an upload":          {"POST", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, true},
		"a page in place of an upload":    {"blob", page(http.StatusOK), true},
		"nothing in place of an upload":   {"blob", page(http.StatusNoContent), true},
		"an upload that is not complete":  {"blob", page(http.StatusAccepted), true},
		"an upload that leads to a page":  {"blob", page(http.StatusSeeOther), true},
		"a manifest that leads to a page": {"manifest", page(http.StatusFound), true},
		"a page in place of a manifest":   {"manifest", page(http.StatusOK), true},
		"a manifest that is not kept yet": {"manifest", page(http.StatusAccepted), true},
		"a manifest without a location":   {"manifest", page(http.StatusNotModified), true},
	} {
		sent := map[string]bool{}
		front := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			step := r.Method
			switch {
			case r.URL.Path == "/page":
				return
			case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/"):
				step = "manifest"
			case r.Method == http.MethodPut:
				step = "blob"
			}
			sent[step] = true
			switch {
			case step == c.step:
				c.other(w, r)
			case step == "HEAD":
				w.WriteHeader(http.StatusNotFound)
			case step == "POST":
				begin(w, r)
			default:
				w.WriteHeader(http.StatusCreated)
			}
		}))
		_, err := mine.Push(t.Context(), name, front+"/team/app:1", new(Source), nil)
		if (err != nil) != c.fails {
			t.Errorf("%s: the push ends with %v; want a failure: %v", what, err, c.fails)
		}
		if !c.fails && (!sent["blob"] || !sent["manifest"]) {
			t.Errorf("%s: sent were %v; want blobs and a manifest", what, sent)
		}
	}
}

// Some registries answer what they have kept with another status than 201. The digest in their answer says that they kept it, and another
// digest does not.
func TestStatusesWithTheDigest(t *testing.T) {
	const name = "registry.example/team/app:1"
	mine := built(t, name)
	for _, status := range []int{http.StatusOK, http.StatusAccepted, http.StatusNoContent, http.StatusFound} {
		for _, right := range []bool{true, false} {
			front := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.Method {
				case http.MethodHead:
					w.WriteHeader(http.StatusNotFound)
				case http.MethodPost:
					w.Header().Set("Location", "/v2/team/app/blobs/uploads/1")
					w.WriteHeader(http.StatusAccepted)
				default:
					h := sha256.New()
					_, _ = io.Copy(h, r.Body)
					if !right {
						h.Write([]byte("and more"))
					}
					w.Header().Set("Docker-Content-Digest", digest.NewDigest(digest.SHA256, h).String())
					w.WriteHeader(status)
				}
			}))
			_, err := mine.Push(t.Context(), name, front+"/team/app:1", new(Source), nil)
			if want := right && status != http.StatusFound; (err == nil) != want {
				t.Errorf("status %d with the digest of what was sent (%v): got %v, want success: %v", status, right, err, want)
			}
		}
	}
}

// A part of something is not all of it, and what says nothing has no size.
func TestAnswersThatAreNoContent(t *testing.T) {
	for _, status := range []int{http.StatusNoContent, http.StatusPartialContent, http.StatusAccepted, http.StatusNotModified} {
		front := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
		ref, err := imageref.Parse(front + "/team/app:1")
		if err != nil {
			t.Fatal(err)
		}
		src := new(Source)
		if n, err := src.blobSize(t.Context(), ref, digest.FromString("x")); err == nil {
			t.Errorf("status %d: a blob of %d bytes is there, want an error", status, n)
		}
		if _, err := src.manifest(t.Context(), ref, "1"); err == nil || !strings.Contains(err.Error(), "answers") {
			t.Errorf("status %d: its manifest is %v, want what the registry answers", status, err)
		}
	}
}
