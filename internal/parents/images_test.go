package parents

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
)

// serveImages opens and serves the images of a role that may be followed, and gives the function that ends that.
func serveImages(t *testing.T, dir string, st store.Store, bucket artifact.Depot) (host string, images *tier.Images, end func()) {
	t.Helper()
	common := &node.Common{Dir: dir, Log: slog.New(slog.DiscardHandler)}
	role := &leading{Store: st, Leadership: &succession.Leadership{}}
	images, err := openImages(t.Context(), common, role, ImageConfig{ImageDepot: bucket}, false)
	if err != nil {
		t.Fatal(err)
	}
	all := func(string, string) error { return nil }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		images.ServeHTTP(w, r.WithContext(tier.WithRegistryAuth(r.Context(), all)))
	}))
	return srv.Listener.Addr().String(), images, func() {
		srv.Close()
		images.Store.Close()
	}
}

// awayBucket is one that cannot be reached.
type awayBucket struct{ tier.ImageNames }

var errAwayBucket = errors.New("the bucket is away")

func (awayBucket) Get(context.Context, string, int64) (io.ReadCloser, error) {
	return nil, errAwayBucket
}

func (awayBucket) List(context.Context, string, func(string, int64, time.Time) error) error {
	return errAwayBucket
}

// TestBucketIsGivenUp: a role that was told of a bucket, and is told of none again, has its images, whether the bucket was ever reached or
// took them all.
func TestBucketIsGivenUp(t *testing.T) {
	for what, away := range map[string]bool{"it was never reached": true, "it took them": false} {
		t.Run(what, func(t *testing.T) {
			ctx, dir := t.Context(), t.TempDir()
			st, far := testStore(t), testStore(t)
			host, _, end := serveImages(t, dir, st, nil)
			image, err := random.Image(1000, 1)
			if err != nil {
				t.Fatal(err)
			}
			at := func(host string) gname.Reference {
				ref, err := gname.ParseReference(host+"/shop/web:1", gname.Insecure)
				if err != nil {
					t.Fatal(err)
				}
				return ref
			}
			if err := remote.Write(at(host), image, remote.WithContext(ctx)); err != nil {
				t.Fatal(err)
			}
			end()
			bucket := artifact.Depot(tier.ImageNames{Store: far}) // it takes blobs as well
			if away {
				bucket = awayBucket{}
			}
			_, _, end = serveImages(t, dir, st, bucket)
			if !away {
				if err := tier.ForgetImageNames(ctx, st); err != nil {
					t.Fatal(err)
				}
			}
			end()
			host, _, end = serveImages(t, dir, st, nil)
			defer end()
			got, err := remote.Image(at(host), remote.WithContext(ctx))
			if err == nil {
				err = validate.Image(got)
			}
			if err != nil {
				t.Errorf("pull: got %v, want no error", err)
			}
		})
	}
}

func testStore(t *testing.T) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}
