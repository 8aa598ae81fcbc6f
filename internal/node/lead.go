package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/store"
)

// leading is a role's store together with the leadership that it needs where several processes share it.
type leading struct {
	Store store.Store
	lead  *store.Leadership // nil: the store lets one process in
}

// openLeading opens the role's store, and waits until this process leads where others may have opened it, too. Meanwhile it
// is a standby: it listens nowhere.
func (c *Common) openLeading(ctx context.Context) (leading, error) {
	st, err := c.openStore(ctx)
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
	told := time.AfterFunc(time.Second, func() {
		c.Log.Info("another process leads; this one is a standby and takes over when it falls silent", "store", c.StoreURL)
	})
	defer told.Stop()
	l, err := e.Lead(ctx, who)
	if err != nil {
		return leading{}, errors.Join(err, st.Close())
	}
	return leading{st, l}, nil
}

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
		return fmt.Errorf("this process no longer leads, because it could not renew its lease in the store; started again it is a standby: %w", store.ErrDeposed)
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

// prefixMember holds a cluster's identity at its root, where several processes take turns in being that cluster. The site's
// own CA is kept in the same store.
const prefixMember = "meta/member/"

// sharedMember opens the cluster's identity, which comes with the store where that is shared.
func (c *ClusterConfig) sharedMember(ctx context.Context, st *leading, site *auth.Authority, boot string) (*auth.Member, error) {
	if st.lead == nil {
		return c.member(ctx, c.Join, site, boot)
	}
	list, _, err := st.Store.List(ctx, prefixMember)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		files := map[string][]byte{}
		for _, r := range list {
			files[strings.TrimPrefix(r.Key, prefixMember)] = r.Value
		}
		if err := auth.PutMember(filepath.Join(c.Dir, "identity"), files); err != nil {
			return nil, fmt.Errorf("identity from the store: %w", err)
		}
	}
	m, err := c.member(ctx, c.Join, site, boot)
	if err != nil {
		return nil, err
	}
	return m, m.Mirror(func(files map[string][]byte) error {
		var ops []store.Op
		for name, data := range files {
			ops = append(ops, store.Op{Key: prefixMember + name, Value: data})
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, err := st.Store.Commit(ctx, ops)
		return err
	})
}
