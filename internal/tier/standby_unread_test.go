//go:build linux

package tier

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"skerry.dev/skerry/store"
)

// unreadStore cannot be read for its names of images for some time.
type unreadStore struct {
	store.Store
	fails atomic.Bool
}

func (s *unreadStore) List(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	if s.fails.Load() && strings.HasPrefix(prefix, keyImages) {
		return nil, 0, errors.New("it cannot be read")
	}
	return s.Store.List(ctx, prefix)
}

// TestStandbyThatCannotReadAtFirst: a standby that connects again, and cannot read the names then, tells later all that it has.
func TestStandbyThatCannotReadAtFirst(t *testing.T) {
	st := &unreadStore{Store: roleStore(t)}
	l := leadImages(t, filepath.Join(t.TempDir(), "images"), st.Store)
	image := l.push("shop/web:1", 1000)
	standBy(t, &Standby{Dir: filepath.Join(t.TempDir(), "images"), Store: st}, l.ln.Addr().String)
	l.awaitState("it is copied", func(images, missing int, _ string) bool { return images == 1 && missing == 0 })
	st.fails.Store(true)
	l.Standbys.mu.Lock()
	before := l.Standbys.list["second"].link
	l.Standbys.mu.Unlock()
	before.Close()
	l.awaitState("it cannot read", func(images, missing int, why string) bool {
		return images == 0 && missing == 1 && strings.Contains(why, "it cannot be read")
	})
	st.fails.Store(false)
	l.push("shop/web:2", 1000) // it looks again
	l.awaitState("it can read again", func(_, missing int, _ string) bool { return missing == 0 })
	if c := l.Standbys.Copies(image); c == nil || c.Have != 1 {
		t.Errorf("copies of the image: got %+v, want one", c)
	}
}
