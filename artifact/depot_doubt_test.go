//go:build linux

package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"skerry.dev/skerry/artifact/imageref"
)

// shelf is a depot in memory. after is told of each change and list that was made, and can have it fail nevertheless.
type shelf struct {
	mu      sync.Mutex
	objects map[string][]byte
	after   func(method, name string) error
}

func newShelf() *shelf { return &shelf{objects: map[string][]byte{}} }

func (d *shelf) String() string { return "s3://shelf/of" }

func (d *shelf) answer(method, name string) error {
	d.mu.Lock()
	after := d.after
	d.mu.Unlock()
	if after == nil {
		return nil
	}
	return after(method, name)
}

func (d *shelf) then(after func(method, name string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.after = after
}

func (d *shelf) Put(_ context.Context, name string, from io.Reader, _ int64) error {
	raw, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.objects[name] = raw
	d.mu.Unlock()
	return d.answer(http.MethodPut, name)
}

func (d *shelf) Get(_ context.Context, name string, offset int64) (io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	raw, there := d.objects[name]
	if !there {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(raw[offset:])), nil
}

func (d *shelf) Delete(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.mu.Lock()
	delete(d.objects, name)
	d.mu.Unlock()
	return d.answer(http.MethodDelete, name)
}

func (d *shelf) List(_ context.Context, prefix string, each func(name string, size int64, modified time.Time) error) error {
	d.mu.Lock()
	have := maps.Clone(d.objects)
	d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if err := each(name, int64(len(have[name])), time.Now()); err != nil {
			return err
		}
	}
	return d.answer("LIST", prefix)
}

// TestDepotIsLoadedOnce: a role asks what its depot has when it opens its images, and again when it runs. What is pushed meanwhile is not
// forgotten.
func TestDepotIsLoadedOnce(t *testing.T) {
	depot := newShelf()
	reg := startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load()
	reg.push(t, "team/app:1", 1000)
	pushed := false
	depot.then(func(method, name string) error {
		if method == "LIST" && name == depotNames && !pushed {
			pushed = true
			reg.push(t, "team/app:2", 2000)
		}
		return nil
	})
	reg.load()
	depot.then(nil)
	if !pushed {
		reg.push(t, "team/app:2", 2000)
	}
	reg.wantPulled("team/app:1", "team/app:2")
	startMachine(t, filepath.Join(t.TempDir(), "images"), depot, 0).load().wantPulled("team/app:1", "team/app:2")
}

var errAnswerLost = errors.New("the answer was lost")

// lose has the answers to some changes be lost.
func lose(method, prefix string) func(string, string) error {
	return func(m, name string) error {
		if m == method && strings.HasPrefix(name, prefix) {
			return errAnswerLost
		}
		return nil
	}
}

// again gives another process over the same depot.
func (d *shelf) again(t *testing.T) *machine {
	t.Helper()
	return startMachine(t, filepath.Join(t.TempDir(), "images"), d, 0).load()
}

// rename pushes the manifest of an image again, also where the registry says that it has it.
func rename(t *testing.T, reg *machine, img v1.Image) {
	t.Helper()
	raw, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	if code, text := reg.ask(http.MethodPut, "team/app/manifests/1", bytes.NewReader(raw)); code != http.StatusCreated {
		t.Fatalf("an image is pushed again with %d %s, want %d", code, text, http.StatusCreated)
	}
}

// TestDepotNameInDoubt: the depot carried out a change of a name, and its answer was lost. Whatever the name leads to then is whole, a push
// that is acknowledged later holds, and without one the next round of collection writes what the registry says.
func TestDepotNameInDoubt(t *testing.T) {
	tag := imageref.Ref{Registry: depotRegistry, Repository: "team/app", Tag: "1"}
	t.Run("a push that failed", func(t *testing.T) {
		depot := newShelf()
		reg := depot.again(t)
		reg.push(t, "team/app:1", 1000)
		depot.then(lose(http.MethodPut, depotNames+"team/app:1"))
		if _, err := pushImage(t, reg.host, "team/app:1", 1, 2000); err == nil {
			t.Fatalf("a push is acknowledged whose name may not be there")
		}
		depot.then(nil)
		depot.again(t).wantPulled("team/app:1")
	})
	t.Run("the image before is pushed again", func(t *testing.T) {
		depot := newShelf()
		reg := depot.again(t)
		img, err := pushImage(t, reg.host, "team/app:1", 1, 1000)
		if err != nil {
			t.Fatal(err)
		}
		depot.then(lose(http.MethodPut, depotNames+"team/app:1"))
		if _, err := pushImage(t, reg.host, "team/app:1", 1, 2000); err == nil {
			t.Fatalf("a push is acknowledged whose name may not be there")
		}
		depot.then(nil)
		rename(t, reg, img)
		if got, _ := depot.again(t).Store.Lookup(tag); got != sumOf(t, img) {
			t.Errorf("the tag means %s, want %s, which was acknowledged last", got, sumOf(t, img))
		}
	})
	t.Run("it is collected", func(t *testing.T) {
		depot := newShelf()
		reg := depot.again(t)
		first := reg.push(t, "team/app:1", 1000)
		depot.then(lose(http.MethodPut, depotNames+"team/app:1"))
		if _, err := pushImage(t, reg.host, "team/app:1", 1, 2000); err == nil {
			t.Fatalf("a push is acknowledged whose name may not be there")
		}
		depot.then(nil)
		reg.pass(48 * time.Hour)
		reg.collect(t, Limits{})
		reg.collect(t, Limits{})
		if got, _ := depot.again(t).Store.Lookup(tag); got != first {
			t.Errorf("the tag means %s, want %s", got, first)
		}
		if list := objects(t, depot, depotBlobs); len(list) != 3 {
			t.Errorf("the depot has %d blobs, want those of one image, 3", len(list))
		}
	})
	t.Run("a deletion that failed", func(t *testing.T) {
		depot := newShelf()
		reg := depot.again(t)
		img, err := pushImage(t, reg.host, "team/app:1", 1, 1000)
		if err != nil {
			t.Fatal(err)
		}
		depot.then(lose(http.MethodDelete, depotNames))
		if code, _ := reg.ask(http.MethodDelete, "team/app/manifests/1", nil); code != http.StatusServiceUnavailable {
			t.Fatalf("a deletion that failed gives %d, want %d", code, http.StatusServiceUnavailable)
		}
		depot.then(nil)
		rename(t, reg, img)
		depot.again(t).wantPulled("team/app:1")
	})
}

// TestDepotBlobInDoubt: the depot deleted blobs, and its answers were lost. Whoever pushes one again is not told that it is there.
func TestDepotBlobInDoubt(t *testing.T) {
	depot := newShelf()
	reg := depot.again(t)
	img, err := pushImage(t, reg.host, "team/app:1", 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	depot.then(lose(http.MethodDelete, depotBlobs))
	if code, text := reg.ask(http.MethodDelete, "team/app/manifests/"+sumOf(t, img).String(), nil); code != http.StatusAccepted {
		t.Fatalf("the image is deleted with %d %s, want %d", code, text, http.StatusAccepted)
	}
	depot.then(nil)
	if err := remote.Write(reg.ref(t, "team/app:1"), img); err != nil {
		t.Fatal(err)
	}
	reg.wantPulled("team/app:1")
	depot.again(t).wantPulled("team/app:1")
}

// TestDepotBlobIsLeft: a blob that the depot did not delete goes with the next round of collection.
func TestDepotBlobIsLeft(t *testing.T) {
	depot := newShelf()
	reg := depot.again(t)
	sum := reg.push(t, "team/app:1", 1000)
	before := map[string][]byte{}
	depot.then(func(method, name string) error {
		if method != http.MethodDelete || !strings.HasPrefix(name, depotBlobs) {
			return nil
		}
		depot.mu.Lock()
		defer depot.mu.Unlock()
		depot.objects[name] = before[name]
		return errAnswerLost
	})
	maps.Copy(before, depot.objects)
	if code, text := reg.ask(http.MethodDelete, "team/app/manifests/"+sum.String(), nil); code != http.StatusAccepted {
		t.Fatalf("the image is deleted with %d %s, want %d", code, text, http.StatusAccepted)
	}
	depot.then(nil)
	reg.pass(48 * time.Hour)
	reg.collect(t, Limits{})
	if list := objects(t, depot, depotBlobs); len(list) > 0 {
		t.Errorf("the depot still has %v", list)
	}
}

// TestDepotManifestIsDamaged: the bucket has changed a manifest and a config. All other images are served, pushed and deleted, and a push
// repairs these.
func TestDepotManifestIsDamaged(t *testing.T) {
	depot := newShelf()
	reg := depot.again(t)
	reg.push(t, "team/other:1", 1000)
	img, err := pushImage(t, reg.host, "team/app:1", 1, 2000)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := reg.Store.readManifest(sumOf(t, img))
	if err != nil {
		t.Fatal(err)
	}
	config, err := reg.Store.readBlob(manifest.image.Config.Digest)
	if err != nil {
		t.Fatal(err)
	}
	for what, object := range map[string]string{"manifest": blobObject(sumOf(t, img)), "config": blobObject(manifest.image.Config.Digest)} {
		t.Run(what, func(t *testing.T) {
			depot.mu.Lock()
			depot.objects[object] = bytes.Repeat([]byte("x"), len(depot.objects[object]))
			depot.mu.Unlock()
			two := depot.again(t)
			two.wantPulled("team/other:1")
			two.push(t, "team/other:2", 1000)
			if err := two.pull("team/app:1"); err == nil {
				t.Errorf("what the bucket has changed is served")
			}
			two.pass(48 * time.Hour)
			_, _ = two.Collect(t.Context(), Limits{}, nil)
			if list := objects(t, depot, blobObject(manifest.image.Layers[0].Digest)); len(list) == 0 {
				t.Errorf("a layer is collected although it is not known what needs it")
			}
			if err := remote.Write(two.ref(t, "team/app:1"), img); err != nil {
				t.Errorf("it is not pushed again: %v", err)
			}
			if code, text := two.pushBlob("team/app", string(config)); code != http.StatusCreated { // the client asked for the manifest only
				t.Errorf("a config is pushed with %d %s, want %d", code, text, http.StatusCreated)
			}
			two.wantPulled("team/app:1", "team/other:1", "team/other:2")
			depot.again(t).wantPulled("team/app:1")
		})
	}
}

// TestDepotCollectEnds: a depot is away while images are collected, and each question takes long. It is not asked for each of them, and a
// role that ends does not wait for it. All images are still there.
func TestDepotCollectEnds(t *testing.T) {
	depot := newShelf()
	reg := depot.again(t)
	var names []string
	for n := range 6 {
		names = append(names, fmt.Sprintf("team/app:%d", n))
		reg.push(t, names[n], 1000)
	}
	reg.pass(48 * time.Hour)
	for what, most := range map[string]int{"away": depotFailures, "a role that ends": 1} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		depot.then(func(method, _ string) error {
			if method != http.MethodDelete {
				return nil
			}
			asked++
			if asked >= most && most == 1 {
				cancel()
			}
			return errAnswerLost
		})
		if _, err := reg.Collect(ctx, Limits{Space: 1}, nil); err == nil {
			t.Errorf("%s: what nobody can delete is collected", what)
		}
		cancel()
		if asked > most {
			t.Errorf("%s: it was asked %d times, want at most %d", what, asked, most)
		}
		depot.then(nil)
		if err := SettleDepot(t.Context(), reg.Store); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	reg.wantPulled(names...)
	depot.again(t).wantPulled(names...)
}
