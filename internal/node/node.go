// Package node puts a role together from its parts: directories, store, identity, images, drivers, server. The commands
// and the end-to-end tests use it; it is the only place that knows all parts.
package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// StateFile is the SQLite store in a data directory, unless another store is named.
const StateFile = "state.db"

// Common is what every role is given.
type Common struct {
	Dir      string // data directory
	StoreURL string // default: SQLite in Dir
	Version  string
	// ImageCache is how many bytes of other registries' images a root or cluster keeps; 0 is DefaultImageCache.
	ImageCache skerry.Bytes
	Log        *slog.Logger
}

// DefaultImageCache is how much a root or cluster keeps of other registries' images.
const DefaultImageCache = 16 * skerry.GiB

// ownStore is the store in the data directory.
func (c *Common) ownStore() string { return "sqlite:" + filepath.Join(c.Dir, StateFile) }

func (c *Common) fill() error {
	if c.Dir == "" {
		return errors.New("a data directory is needed (--data)")
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if c.StoreURL == "" {
		c.StoreURL = c.ownStore()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// openStore opens the store of a root or a cluster. A damaged one is refused: an empty one in its place would be another site with
// another CA and other users, and its children would have lost their parent.
func (c *Common) openStore(ctx context.Context) (store.Store, error) {
	st, err := c.openFrozen(ctx)
	return st, Damage(err, c.Dir)
}

// openFrozen opens a store, for reading alone if its disk cannot be written.
func (c *Common) openFrozen(ctx context.Context) (store.Store, error) {
	st, thawed, err := store.OpenFrozen(ctx, c.StoreURL, store.Options{})
	if err == nil && !thawed {
		c.Log.Error("readers are served from a copy of the store; changes are refused until the disk can be written", "err", store.ErrReadOnly)
	}
	return st, err
}

// Damage adds the ways out to the error of a damaged store; others it leaves as they are.
func Damage(err error, dir string) error {
	if !errors.Is(err, store.ErrDamaged) {
		return err
	}
	return skerry.Errorf(skerry.CodeUnavailable, "%w", err).WithHint("`skerry restore --data %[1]s FILE` puts a backup in its place; `skerry repair --data %[1]s` keeps the records "+
		"that are intact. If the site has successors, move state.db* away on this machine and start it with --succeed: it copies the leader's store", dir)
}

// Repaired alters a record of a damaged store that was whole: a root or cluster begins a new life, as after a restore. What a role's parent
// wants of it is left out, because some of that may be lost; the parent sends all of it again.
func Repaired(r *store.Record) (keep bool, err error) {
	if strings.HasPrefix(r.Key, members.DesiredRecords) {
		return false, nil
	}
	return tier.NewLife(r)
}

// openImages opens the image store below the data directory.
func (c *Common) openImages(hasParent bool, src *artifact.Source) (*tier.Images, error) {
	st, err := artifact.Open(filepath.Join(c.Dir, "images"),
		artifact.Options{MaxCache: int64(cmp.Or(c.ImageCache, DefaultImageCache)), Local: imageref.BuiltIn, Damaged: c.imageDamaged})
	if err != nil {
		return nil, err
	}
	return tier.NewImages(st, hasParent, src), nil
}

// imageDamaged logs what the medium has changed of an image.
func (c *Common) imageDamaged(d digest.Digest) {
	c.Log.Warn("a part of an image was damaged on disk, and is removed; it is fetched again from where it came when somebody asks for it",
		"digest", string(d), "hint", "if it was pushed here, push the image again; check the disk")
}

// namesDamaged logs that a worker has lost the names of its images. What runs goes on.
func (c *Common) namesDamaged(file string, err error) {
	c.Log.Warn("the list of the images' names was damaged and is set aside; images are fetched again when somebody asks for them",
		"file", file, "err", err)
}

// boot names this run of the agent, machine the device for people.
func boot() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func machine() string {
	name, _ := os.Hostname()
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(id) >= 8 {
		name += "/" + strings.TrimSpace(string(id))[:8]
	}
	return name
}

// Join is how a child gets into its site: with a token the first time, with what it kept from then on.
type Join struct {
	Name   string
	Token  string
	Parent []string // addresses, host:port
	Wait   time.Duration
}

// member opens the identity kept in the data directory, or joins with the token, as a role and no other. Joining is tried again
// while the parent cannot be reached; a refusal is final.
func (c *Common) member(ctx context.Context, as wire.Tier, j Join, site *auth.Authority, bootID string) (*auth.Member, error) {
	dir := filepath.Join(c.Dir, "identity")
	m, err := auth.OpenMember(dir)
	if err == nil && m.Tier() != as {
		return nil, fmt.Errorf("%s: this device has joined as a %s, and does not start as a %s with that identity; give each role a data directory of its own", dir, m.Tier(), as)
	}
	if err == nil {
		return m, nil
	}
	if !errors.Is(err, auth.ErrNotJoined) {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "identity: %w", err).WithHint("put %s back as it was. Or move it away, and start with "+
			"--join and a token from `skerry token create --role %s --name NAME --replace` at the parent; what runs here stays", dir, as)
	}
	if j.Token == "" {
		return nil, errors.New("this device has not joined a site yet; get a token with `skerry token create` there, and start with --join TOKEN")
	}
	deadline := time.Now().Add(j.Wait)
	for {
		m, err = auth.Enter(ctx, auth.Entry{Dialing: auth.Dialing{Addrs: j.Parent, Machine: machine(), Boot: bootID, Site: site},
			Dir: dir, Token: j.Token, Tier: as, Name: j.Name, Version: c.Version})
		if err == nil || !unreachable(err) || time.Now().After(deadline) || ctx.Err() != nil {
			return m, err
		}
		c.Log.Warn("join: the parent cannot be reached; trying again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// unreachable reports whether joining failed before the parent said anything.
func unreachable(err error) bool {
	var refused *wire.Refuse
	var op *net.OpError
	return !errors.As(err, &refused) && (errors.As(err, &op) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF))
}
