package node

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/plugin"
	"skerry.dev/skerry/store/journal"
)

// ClusterConfig sets up a cluster orchestrator.
type ClusterConfig struct {
	Common
	Join
	Link       string // default 0.0.0.0:7444
	MQTT       string // where agents of others connect, host:port; empty: none are taken
	Standalone bool   // there is no root
	// Succeed makes this machine a successor: where the cluster is. Candidate is how the machine is called as one, and CandidateToken lets it
	// in, the first time.
	Succeed                   []string
	Candidate, CandidateToken string
	// LinkPublic is where workers reach this machine, HOST or HOST:PORT; empty: found out.
	LinkPublic string
	// Rebuild: the store has lost what the site had; it is taken up from what workers run and hold, under a new incarnation.
	Rebuild bool
	// Standing, if not nil, is told of the leadership while the process stands by.
	Standing    func(o *succession.Leadership)
	Admission   clustercore.Admission
	Places      func() (cluster.Places, error)
	LostAfter   time.Duration       // 0: the profile's
	Profile     clustercore.Profile // the zero value: cluster.Fast
	CertLife    time.Duration
	Journal     journal.Limits
	Registry    *artifact.Source
	Plugins     PluginConfig
	Relay       string       // UDP and TCP address of the site's relay; empty: none
	RelayPublic string       // at which other sites' relays reach it
	Direct      bool         // workers may be reached directly from sites that allow it, too
	Trusted     bool         // the network between the workers is
	Rebalance   bool         // instances are moved to clearly better places
	Pool        netip.Prefix // of instance addresses; the zero value: the default
	Names       tier.NameOptions
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
	if err := c.fill(); err != nil {
		return nil, err
	}
	if c.Link == "" {
		c.Link = "0.0.0.0:7444"
	}
	st, err := c.openLeading(ctx)
	if err != nil {
		return nil, err
	}
	if !c.Rebuild && len(c.Succeed) == 0 {
		more := ", or take the site up from its workers with --rebuild; a successor starts with --succeed"
		if err := c.lostStore(ctx, st.Store, more); err != nil {
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
	if c.Rebuild {
		if err := tier.BeginAnew(ctx, st.Store); err != nil {
			return nil, errors.Join(err, st.close())
		}
	}
	images, err := c.openImages(!c.Standalone, c.Registry)
	if err != nil {
		st.close()
		return nil, err
	}
	if c.Registry != nil && c.Registry.Guard != nil {
		c.Admission.RegistryOrgs = c.Registry.Guard.Organisations
	}
	opt := cluster.ServerOptions{Name: c.Join.Name, Version: c.Version, Store: st.Store, Link: c.Link, MQTT: c.MQTT, Images: images, Admission: c.Admission,
		Places:   c.Places,
		Policies: sched.Policies(), Journal: c.Journal, LostAfter: c.LostAfter, Profile: c.Profile, CertLife: c.CertLife, Leadership: st.theLeadership(), Rebuild: c.Rebuild, Relay: c.Relay, RelayPublic: c.RelayPublic, Trusted: c.Trusted, Rebalance: c.Rebalance, Direct: c.Direct, Pool: c.Pool, Names: c.Names, Log: c.Log}
	fail := func(err error) (*Cluster, error) { return nil, errors.Join(err, images.Store.Close(), st.close()) }
	if opt.Secrets, err = c.openKey(ctx, st.Store); err != nil {
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
	if !c.Standalone {
		opt.Root = &cluster.RootLink{Boot: boot(), Machine: machine(), Addrs: func() []string { return c.Parent }, OnUp: images.SetParent}
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
	c.keepCA(s.Authority())
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
