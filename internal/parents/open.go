// Package parents puts roots and clusters together from their parts: store and leadership, authority, images, plugins, server, API. The
// commands and the end-to-end tests use it.
package parents

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
)

// DefaultImageCache is how much a root or cluster keeps of other registries' images.
const DefaultImageCache = 16 * skerry.GiB

// depotPatience bounds how long a role waits at its start for where its images are kept.
const depotPatience = 10 * time.Second

// openStore opens the store of a root or a cluster. A damaged one is refused: an empty one in its place would be another site with
// another CA and other users, and its children would have lost their parent.
func openStore(ctx context.Context, c *node.Common) (store.Store, error) {
	st, err := c.OpenFrozen(ctx)
	return st, Damage(err, c.Dir)
}

// Damage adds the ways out to the error of a damaged store; others it leaves as they are.
func Damage(err error, dir string) error {
	if !errors.Is(err, store.ErrDamaged) {
		return err
	}
	return skerry.Errorf(skerry.CodeUnavailable, "%w", err).WithHint("`skerry restore --data %[1]s FILE` puts a backup in its place; `skerry repair --data %[1]s` keeps the records "+
		"that are intact. If the site has successors, move state.db* away on this machine and start it with --succeed: it copies the leader's store", dir)
}

// openImages opens the image store below the data directory.
func openImages(ctx context.Context, c *node.Common, cache skerry.Bytes, own artifact.Limits, depot artifact.Depot, hasParent bool,
	src *artifact.Source) (*tier.Images, error) {
	st, err := artifact.Open(filepath.Join(c.Dir, "images"),
		artifact.Options{MaxCache: int64(cmp.Or(cache, DefaultImageCache)), Local: imageref.BuiltIn, Damaged: c.ImageDamaged, Depot: depot})
	if err != nil {
		return nil, err
	}
	if depot != nil {
		// Who asks first should find the images. If it takes longer, the role starts without them, says why, and goes on trying.
		ctx, cancel := context.WithTimeout(ctx, depotPatience)
		defer cancel()
		_ = artifact.LoadDepot(ctx, st)
	}
	return tier.NewImages(st, own, hasParent, src), nil
}
