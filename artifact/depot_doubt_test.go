//go:build linux

package artifact

import (
	"bytes"
	"context"
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

func (d *shelf) Delete(_ context.Context, name string) error {
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
