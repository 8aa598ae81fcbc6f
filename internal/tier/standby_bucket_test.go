//go:build linux

package tier

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
)

// awayDepot is a bucket that cannot be reached while away is set.
type awayDepot struct {
	ImageNames
	away *atomic.Bool
}

func (d awayDepot) List(ctx context.Context, prefix string, each func(string, int64, time.Time) error) error {
	if d.away.Load() {
		return errors.New("the bucket is away")
	}
	return d.ImageNames.List(ctx, prefix, each)
}

// TestNamesStayUntilABucketHasThem: the store of a role has the names of images until a bucket has taken the images, and no longer.
func TestNamesStayUntilABucketHasThem(t *testing.T) {
	st := roleStore(t)
	dir := filepath.Join(t.TempDir(), "images")
	l := leadImages(t, dir, st)
	l.push("shop/web:1", 1000)
	l.end()
	bucket := awayDepot{ImageNames{roleStore(t)}, new(atomic.Bool)}
	kept, err := artifact.Open(dir, artifact.Options{Local: imageref.BuiltIn, Depot: bucket})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	images := NewImages(kept, artifact.Limits{}, false, nil)
	images.Former = st
	names := func() int {
		t.Helper()
		list, _, err := st.List(t.Context(), keyImages)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	bucket.away.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := slog.New(slog.DiscardHandler)
	if images.loadDepot(ctx, log, artifact.Leader{}) || names() != 2 {
		t.Errorf("names in the store while the bucket is away: got %d, want 2", names())
	}
	bucket.away.Store(false)
	if !images.loadDepot(t.Context(), log, artifact.Leader{}) || names() != 0 {
		t.Errorf("names in the store when the bucket has the image: got %d, want 0", names())
	}
}
