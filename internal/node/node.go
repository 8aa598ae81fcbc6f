// Package node puts a worker together from its parts: directories, store, identity, images, drivers, network, server. It also has what
// every role is given and opens. It knows no parent: package parents puts roots and clusters together, and a worker does without it.
package node

import (
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
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/internal/otlp"
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
	Log      *slog.Logger
	// Telemetry pushes what the role knows of itself; nil: nobody is told.
	Telemetry *otlp.Exporter
}

// OwnStore is the store in the data directory.
func (c *Common) OwnStore() string { return "sqlite:" + filepath.Join(c.Dir, StateFile) }

// Fill makes the data directory and completes what was left out.
func (c *Common) Fill() error {
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
		c.StoreURL = c.OwnStore()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// OpenFrozen opens a store, for reading alone if its disk cannot be written.
func (c *Common) OpenFrozen(ctx context.Context) (store.Store, error) {
	st, thawed, err := store.OpenFrozen(ctx, c.StoreURL, store.Options{})
	if err == nil && !thawed {
		c.Log.Error("readers are served from a copy of the store; changes are refused until the disk can be written", "err", store.ErrReadOnly)
	}
	return st, err
}

// Repaired alters a record of a damaged store that was whole: a root or cluster begins a new life, as after a restore. What a role's parent
// wants of it is left out, because some of that may be lost; the parent sends all of it again.
func Repaired(r *store.Record) (keep bool, err error) {
	if strings.HasPrefix(r.Key, members.DesiredRecords) {
		return false, nil
	}
	return tier.NewLife(r)
}

// ImageDamaged logs what the medium has changed of an image.
func (c *Common) ImageDamaged(d digest.Digest) {
	c.Log.Warn("a part of an image was damaged on disk, and is removed; it is fetched again from where it came when somebody asks for it",
		"digest", string(d), "hint", "if it was pushed here, push the image again; check the disk")
}

// namesDamaged logs that a worker has lost the names of its images. What runs goes on.
func (c *Common) namesDamaged(file string, err error) {
	c.Log.Warn("the list of the images' names was damaged and is set aside; images are fetched again when somebody asks for them",
		"file", file, "err", err)
}

// Boot names this run of the agent.
func Boot() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Machine names the device, for people.
func Machine() string {
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

// Member opens the identity kept in the data directory, or joins with the token, as a role and no other. Joining is tried again
// while the parent cannot be reached; a refusal is final.
func (c *Common) Member(ctx context.Context, as wire.Tier, j Join, site *auth.Authority, bootID string) (*auth.Member, error) {
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
		m, err = auth.Enter(ctx, auth.Entry{Dialing: auth.Dialing{Addrs: j.Parent, Machine: Machine(), Boot: bootID, Site: site},
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
