package parents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/auth"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
)

// leading is a role's store together with the leadership that it needs where several processes share it.
type leading struct {
	Store store.Store
	lead  *store.Leadership // nil: the store lets one process in
	// Leadership is of a cluster whose store lets one process in, for the successors that it may have; raw is that store.
	Leadership *succession.Leadership
	raw        store.Store
}

// theLeadership gives the leadership, or nil.
func (l *leading) theLeadership() tier.Leadership {
	if l.Leadership == nil {
		return nil
	}
	return l.Leadership
}

// takeLeadership waits until this process leads a site that may have successors. Where processes share the store that has been done.
func (c *ClusterConfig) takeLeadership(ctx context.Context, st *leading) error {
	if !store.CanFollow(st.Store) {
		if len(c.Succeed) > 0 {
			return errors.New("--succeed is for a store of this machine's own; with etcd, start another process over the same prefix instead")
		}
		return nil
	}
	if len(c.Succeed) > 0 {
		if _, err := succession.Join(ctx, c.Dir, c.Candidate, c.CandidateToken, c.Version, node.Machine(), node.Boot(), c.Succeed); err != nil {
			return err
		}
	}
	opt := succession.Options{Dir: c.Dir, Key: filepath.Join(c.Dir, vault.KeyFile), Store: st.Store, Link: c.Server.Link,
		Public: c.LinkPublic, Addrs: c.Succeed, Machine: node.Machine(), Boot: node.Boot(), Version: c.Version, Log: c.Log}
	images := c.ImageConfig.standby(&c.Common, st.Store)
	if images != nil {
		opt.Meanwhile = func(ctx context.Context, o *succession.Leadership) {
			images.Dial = func(ctx context.Context) (net.Conn, error) {
				addr, cfg, err := o.Leader()
				if err != nil {
					return nil, err
				}
				return tier.DialImages(ctx, addr, cfg)
			}
			images.Run(ctx)
		}
	}
	if c.Server.Profile.Name == clustercore.Metered.Name {
		opt.TTL = 30 * succession.DefaultTTL
	}
	o, err := succession.Open(ctx, opt)
	if err != nil {
		return err
	}
	if c.Standing != nil {
		c.Standing(o, images)
	}
	if err := o.Lead(ctx); err != nil {
		return err
	}
	st.raw, st.Leadership, st.Store = st.Store, o, o.Store()
	return nil
}

// RunLeadership keeps the leadership until ctx ends. It ends with an error when another machine leads the site.
func (l *leading) RunLeadership(ctx context.Context) error {
	if l.Leadership == nil {
		<-ctx.Done()
		return nil
	}
	return l.Leadership.Run(ctx)
}

// openLeading opens the role's store, and waits until this process leads where others may have opened it, too. Meanwhile it
// is a standby: it listens nowhere, and copies images.
func openLeading(ctx context.Context, c *node.Common, role wire.Tier, images *ImageConfig) (leading, error) {
	st, err := openStore(ctx, c)
	if err != nil {
		return leading{}, err
	}
	e, ok := st.(store.Electorate)
	if !ok {
		return leading{Store: st}, nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	who := fmt.Sprintf("%s, process %d, %s", host, os.Getpid(), c.Dir)
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-beside.Done():
			return
		case <-time.After(time.Second):
		}
		c.Log.Info("another process leads; this one stands by and takes over when it falls silent", "store", c.StoreURL)
		if s := images.standby(c, st); s != nil {
			s.Dial = func(ctx context.Context) (net.Conn, error) {
				return tier.DialLeader(ctx, st, role, tier.StandbyName(host, c.Dir))
			}
			s.Run(beside)
		}
	})
	l, err := e.Lead(ctx, who)
	cancel()
	wg.Wait()
	if err != nil {
		return leading{}, errors.Join(err, st.Close())
	}
	return leading{Store: st, lead: l}, nil
}

// standby copies the images of a role to this process while another one leads; nil: a bucket has them.
func (i *ImageConfig) standby(c *node.Common, st store.Store) *tier.Standby {
	if i.ImageDepot != nil {
		return nil
	}
	return &tier.Standby{Dir: filepath.Join(c.Dir, imageDir), Store: st, Most: i.ImageLimits.Space, Rate: i.ImageRate, Log: c.Log}
}

// mayChange reports whether another process may lead after this one, and have what is in the store.
func (l *leading) mayChange() bool { return l.lead != nil || l.Leadership != nil }

// Deposed ends with an error when another process leads; it ends with ctx otherwise.
func (l *leading) Deposed(ctx context.Context) error {
	if l.lead == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-l.lead.Done():
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("this process no longer leads, because it could not renew its lease in the store; when restarted, it stands by: %w",
			store.ErrDeposed)
	case <-ctx.Done():
		return nil
	}
}

// close resigns, so that a standby need not wait, and closes the store.
func (l *leading) close() error {
	if l.lead == nil {
		return l.Store.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = l.lead.Resign(ctx) // else the lease ends by itself
	return l.Store.Close()
}

// prefixMember holds a cluster's identity at its root, for several processes may take turns in being that cluster. The site's
// own CA is kept in the same store.
const prefixMember = "meta/member/"

// takesOver reports whether an identity from a store of this machine's own is to take the place of that in the directory: when it is of
// another process that led meanwhile, or there is none. A store that was restored holds an older one, and a token a new one.
func (c *ClusterConfig) takesOver(files map[string][]byte) bool {
	have, err := auth.OpenMember(filepath.Join(c.Dir, "identity"))
	if err != nil {
		return c.Join.Token == ""
	}
	return auth.CounterOf(files) > have.Counter()
}

// sharedMember opens the cluster's identity, which comes with the store where that is shared.
func (c *ClusterConfig) sharedMember(ctx context.Context, st *leading, site *auth.Authority, boot string) (*auth.Member, error) {
	list, _, err := st.Store.List(ctx, prefixMember)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, r := range list {
		files[strings.TrimPrefix(r.Key, prefixMember)] = r.Value
	}
	if len(list) > 0 && (st.lead != nil || c.takesOver(files)) {
		if err := auth.PutMember(filepath.Join(c.Dir, "identity"), files); err != nil {
			return nil, fmt.Errorf("identity from the store: %w", err)
		}
	}
	m, err := c.Member(ctx, wire.TierCluster, c.Join, site, boot)
	if err != nil {
		return nil, err
	}
	kept := files
	return m, m.Mirror(func(files map[string][]byte) error {
		if maps.EqualFunc(files, kept, bytes.Equal) {
			return nil // a site starts, and serves its readers, while its disk is full
		}
		var ops []store.Op
		for name, data := range files {
			ops = append(ops, store.Op{Key: prefixMember + name, Value: data})
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, err := st.Store.Commit(ctx, ops)
		if err == nil {
			kept = files
		}
		return err
	})
}
