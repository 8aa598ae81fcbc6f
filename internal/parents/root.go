package parents

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/plugin"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// RootConfig sets up a root.
type RootConfig struct {
	node.Common
	// Server has what the server takes as it is. OpenRoot adds the parts that it opens. By default Name is root, and Link 0.0.0.0:7443.
	Server root.ServerOptions
	ImageConfig
	Plugins PluginConfig
}

// Root is a root with its store and images.
type Root struct {
	*root.Server
	leading
	Images *tier.Images
	// Plugins runs scheduling plugins; nil when the root has none.
	Plugins *plugin.Host
}

// OpenRoot opens a root; Run starts it, Close closes what it keeps.
func OpenRoot(ctx context.Context, c RootConfig) (*Root, error) {
	if err := c.Fill(); err != nil {
		return nil, err
	}
	opt := c.Server
	opt.Name, opt.Link = cmp.Or(opt.Name, "root"), cmp.Or(opt.Link, "0.0.0.0:7443")
	st, err := openLeading(ctx, &c.Common, wire.TierRoot, &c.ImageConfig)
	if err != nil {
		return nil, err
	}
	if err := lostStore(ctx, &c.Common, st.Store, ""); err != nil {
		return nil, errors.Join(err, st.close())
	}
	images, err := openImages(ctx, &c.Common, &st, c.ImageConfig, false)
	if err != nil {
		st.close()
		return nil, err
	}
	if opt.Secrets, err = openKey(ctx, &c.Common, st.Store); err != nil {
		return nil, errors.Join(err, images.Store.Close(), st.close())
	}
	plugins, err := c.Plugins.open(ctx, &c.Common)
	if err != nil {
		return nil, errors.Join(err, images.Store.Close(), st.close())
	}
	opt.Version, opt.Log, opt.Store, opt.Images = c.Version, c.Log, st.Store, images
	if plugins != nil {
		opt.Plugins = pluginHost{plugins}
	}
	s, err := root.NewServer(ctx, opt)
	r := &Root{s, st, images, plugins}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	keepCA(&c.Common, s.Authority())
	return r, nil
}

// Close ends the plugins and closes store and images. Run must have ended.
func (r *Root) Close() error {
	var err error
	if r.Plugins != nil {
		err = r.Plugins.Close()
	}
	return errors.Join(err, r.Images.Store.Close(), r.close())
}

// DefaultOrg is the organisation that every store begins with; it owns the namespace default.
const DefaultOrg = "default"

// doer is a role that takes users' messages.
type doer interface {
	Up() <-chan struct{}
	Do(ctx context.Context, msg any) (any, error)
	Orgs(ctx context.Context) ([]apps.Org, error)
}

// Seed makes the default organisation and namespace in a new store. The role must be running.
func Seed(ctx context.Context, s doer) error {
	select {
	case <-s.Up():
	case <-ctx.Done():
		return ctx.Err()
	}
	orgs, err := s.Orgs(ctx)
	if err != nil || len(orgs) > 0 {
		return err
	}
	for _, m := range []any{apps.PutOrg{Org: apps.Org{Name: DefaultOrg}},
		apps.PutNamespace{Namespace: apps.Namespace{Name: spec.DefaultNamespace, Org: DefaultOrg}}} {
		if _, err := s.Do(ctx, m); err != nil {
			return fmt.Errorf("default organisation: %w", err)
		}
	}
	return nil
}
