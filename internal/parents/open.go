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

// DefaultImageRate is how fast images are copied to a process that stands by.
const DefaultImageRate = 64 * skerry.MiB

// imageDir is where images are, below the data directory.
const imageDir = "images"

// ImageConfig says what a root or cluster keeps of images.
type ImageConfig struct {
	// ImageCache is how many bytes of other registries' images it keeps; 0 is DefaultImageCache.
	ImageCache skerry.Bytes
	// ImageLimits bound what it keeps of the images that were pushed to it.
	ImageLimits artifact.Limits
	// ImageDepot has the images that were pushed here, for whichever process leads; nil: they are on this machine, and copied to those that
	// stand by, with ImageRate bytes a second; 0 is no bound.
	ImageDepot artifact.Depot
	ImageRate  skerry.Bytes
	Registry   *artifact.Source // credentials for registries
}

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
func openImages(ctx context.Context, common *node.Common, role *leading, own ImageConfig, hasParent bool) (*tier.Images, error) {
	opt := artifact.Options{MaxCache: int64(cmp.Or(own.ImageCache, DefaultImageCache)), Local: imageref.BuiltIn, Damaged: common.ImageDamaged,
		Depot: role.fence(own.ImageDepot)}
	var standbys *tier.Standbys
	if role.mayChange() && own.ImageDepot == nil {
		life, err := tier.OpenLife(ctx, role.Store)
		if err != nil {
			return nil, err
		}
		standbys = tier.NewStandbys()
		opt.Ledger = &artifact.Ledger{Names: tier.ImageNames{Store: role.Store}, Life: string(life.Incarnation), Others: standbys}
	}
	st, err := artifact.Open(filepath.Join(common.Dir, imageDir), opt)
	if err != nil {
		return nil, err
	}
	if opt.Depot != nil || opt.Ledger != nil {
		// Who asks first should find the images. If it takes longer, the role starts without them, says why, and goes on trying.
		ctx, cancel := context.WithTimeout(ctx, depotPatience)
		defer cancel()
		_ = artifact.LoadDepot(ctx, st)
	}
	images := tier.NewImages(st, own.ImageLimits, hasParent, own.Registry)
	if standbys != nil {
		images.StandBy(standbys)
	} else if role.mayChange() {
		images.Former = role.Store
	}
	return images, nil
}
