package parents

import (
	"context"
	"errors"
	"path/filepath"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/plugin"
	"skerry.dev/skerry/wire"
)

// ClusterConfig sets up a cluster orchestrator.
type ClusterConfig struct {
	node.Common
	node.Join
	// Server has what the server takes as it is. OpenCluster adds the parts that it opens. Link is 0.0.0.0:7444 by default. With Standalone
	// there is no root. With Rebuild the store has lost what the site had; it is taken up from what workers run and hold, under a new
	// incarnation.
	Server cluster.ServerOptions
	// Succeed makes this machine a successor: where the cluster is. Candidate is how the machine is called as one, and CandidateToken lets it
	// in, the first time.
	Succeed                   []string
	Candidate, CandidateToken string
	// LinkPublic is where workers reach this machine, HOST or HOST:PORT; empty: found out.
	LinkPublic string
	// Standing, if not nil, is told of the leadership while the process stands by, and of the copies of images; nil: there are none.
	Standing func(o *succession.Leadership, images *tier.Standby)
	ImageConfig
	Plugins PluginConfig
}

// Cluster is a cluster orchestrator with its store and images.
type Cluster struct {
	*cluster.Server
	leading
	Images *tier.Images
	// Plugins runs scheduling plugins; nil when the site has none.
	Plugins *plugin.Host
}

// OpenCluster opens a cluster orchestrator, joining its root first if it has not; Run starts it.
func OpenCluster(ctx context.Context, c ClusterConfig) (*Cluster, error) {
	if err := c.Fill(); err != nil {
		return nil, err
	}
	if c.Server.Link == "" {
		c.Server.Link = "0.0.0.0:7444"
	}
	st, err := openLeading(ctx, &c.Common, wire.TierCluster, &c.ImageConfig)
	if err != nil {
		return nil, err
	}
	if !c.Server.Rebuild && len(c.Succeed) == 0 {
		more := ", or take the site up from its workers with --rebuild; a successor starts with --succeed"
		if err := lostStore(ctx, &c.Common, st.Store, more); err != nil {
			return nil, errors.Join(err, st.close())
		}
	}
	if err := c.takeLeadership(ctx, &st); err != nil {
		return nil, errors.Join(err, st.close())
	}
	if site, ok := succession.Site(c.Dir); ok {
		c.Join.Name = site
	}
	if err := skerry.CheckName(c.Join.Name); err != nil {
		return nil, errors.Join(err, st.close())
	}
	if c.Server.Rebuild {
		if err := tier.BeginAnew(ctx, st.Store); err != nil {
			return nil, errors.Join(err, st.close())
		}
	}
	images, err := openImages(ctx, &c.Common, &st, c.ImageConfig, !c.Server.Standalone)
	if err != nil {
		st.close()
		return nil, err
	}
	if c.Registry != nil && c.Registry.Guard != nil {
		c.Server.Admission.RegistryOrgs = c.Registry.Guard.Organisations
	}
	opt := c.Server
	opt.Name, opt.Version, opt.Log, opt.Store, opt.Images = c.Join.Name, c.Version, c.Log, st.Store, images
	opt.History = filepath.Join(c.Dir, "history")
	opt.Policies, opt.Leadership = sched.Policies(), st.theLeadership()
	fail := func(err error) (*Cluster, error) { return nil, errors.Join(err, images.Store.Close(), st.close()) }
	if opt.Secrets, err = openKey(ctx, &c.Common, st.Store); err != nil {
		return fail(err)
	}
	plugins, err := c.Plugins.open(ctx, &c.Common)
	if err != nil {
		return fail(err)
	}
	if plugins != nil {
		opt.Plugins = pluginHost{plugins}
		fail = func(err error) (*Cluster, error) {
			return nil, errors.Join(err, plugins.Close(), images.Store.Close(), st.close())
		}
	}
	if !c.Server.Standalone {
		opt.Root = &cluster.RootLink{Boot: node.Boot(), Machine: node.Machine(),
			Addrs: func() []string { return c.Parent }, OnUp: images.SetParent}
	}
	s, err := cluster.NewServer(ctx, opt)
	if err != nil {
		return fail(err)
	}
	if opt.Root != nil {
		if opt.Root.Member, err = c.sharedMember(ctx, &st, s.Authority(), opt.Root.Boot); err != nil {
			return fail(err)
		}
	}
	keepCA(&c.Common, s.Authority())
	return &Cluster{s, st, images, plugins}, nil
}

// Close ends the plugins and closes store and images. Run must have ended.
func (c *Cluster) Close() error {
	var err error
	if c.Plugins != nil {
		err = c.Plugins.Close()
	}
	return errors.Join(err, c.Images.Store.Close(), c.close())
}
