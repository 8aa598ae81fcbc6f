package main

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func clusterCommand() *cobra.Command {
	var c role.CommonFlags
	var p parentFlags
	var j role.JoinFlags
	var public acmeFlags
	var cfg parents.ClusterConfig
	var pool, admission, plugins, profile string
	var succeed []string
	site := &cfg.Server
	cmd := &cobra.Command{
		Use: "cluster", Short: "Run a cluster: the orchestrator of one site and its workers", Args: cobra.NoArgs,
		Long: `Run a cluster, the orchestrator of one site: it enforces the site's admission policy and places instances on its workers.

Every flag can also be set by an environment variable: --root is SKERRY_ROOT. The site keeps working while its root is away;
with --standalone it has none. The admission policy is a YAML file:

  trusted: [default]        # organisations without restrictions
  denied: []                # organisations that may run nothing
  allowed: []               # if not empty: only these may run anything
  level: restricted         # isolation: restricted (no capabilities), baseline (the usual ones, devices) or privileged
  levels: {partners: baseline}   # for single organisations
  native: false             # for all others, whatever their level
  privileged: false
  hostPorts: false
  ingress: false            # access from outside through the workers
  hostPaths: [/srv/media, {path: /srv/up, writable: true}]   # read-only unless writable is set
  nfs: [nas.example.com:/export/media]   # what NFS servers export, on workers that allow it, too (skerry worker --nfs)
  maxPriority: 0            # higher priorities could preempt others
  registries: [registry.example.com]
  noMeasuring: false        # true: workers never measure round trips to users
  measureNetworks: []       # private networks where workers may measure round trips for untrusted organisations
  measurePorts: []          # TCP ports for that, in addition to 80, 443, 8080 and 8443
  requireUserNamespaces: false # true: no containers on workers without user namespaces
  egress:                   # destinations outside the overlay by organisation; * is everybody not named or trusted
    "*": {allow: [{cidr: 0.0.0.0/0, except: [10.0.0.0/8]}, {cidr: 203.0.113.0/24, ports: [{port: 443}]}]}
    guests: {}              # nowhere
  signers:                  # public keys in PEM, as cosign has them: workers start only images that one of them has signed
    guests: ["-----BEGIN PUBLIC KEY-----…"]   # * is everybody not named, trusted or not; [] asks for none
  maxPerInstance: {cpu: 2, memory: 1Gi}
  quotas:                   # total of an organisation's instances, trusted or not
    guests: {cpu: 8, instances: 40, serviceAddresses: 60}

Successors stand by on machines of their own, with the same flags and --succeed:

  skerry token create --role successor --name second --data /var/lib/skerry/cluster      # where the cluster runs
  skerry cluster --succeed harbour.example.com --join skt1.successor.… --root root.example.com   # on the other machine

The cluster replicates its store to the first two that connect. When the cluster falls silent, a majority of the site's workers
elects one of them; the former leader stands by when it comes back. ` + "`skerry cluster status`" + ` shows who leads and how far the others are.

If the store is lost and there is no successor, restore any backup, however old, which contains the site's CA and its identity
at the root, and start once with --rebuild. Workers reconnect with their certificates, and their instances are adopted without a
restart: those of the root by its books, and local services from the workers' copies of their specifications. For half a minute
nothing is started, so that all workers can reconnect. ` + "`skerry cluster status`" + ` shows what
was recovered and what was not. Without a backup, join the root again with a token created with --replace, and let the workers join
again: running instances stay.

Without a policy file, no organisation is trusted and all have the level restricted: containers without capabilities, no privileges,
no devices, no host paths, no fixed host ports. A change of the policy does not affect running instances. With level: privileged,
everybody may do everything.`,
		Example: "  skerry cluster --name harbour --root root.example.com --join skt1.cluster.…\n  skerry cluster --name island --standalone",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := role.FromEnv(cmd); err != nil {
				return err
			}
			err := clusterConfig(&cfg, &c, &p, admission, plugins)
			if err != nil {
				return err
			}
			if site.Admission.Certificates, site.ACME, err = public.options(); err != nil {
				return err
			}
			if site.Pool, err = poolFlag(pool); err != nil {
				return err
			}
			if site.Profile, err = clustercore.ProfileOf(profile); err != nil {
				return err
			}
			if cfg.Succeed = role.HostPorts(succeed, "7444"); len(succeed) > 0 || succession.Copied(cfg.Dir) {
				if err := successorConfig(&cfg, &j); err != nil {
					return err
				}
			} else if site.Standalone {
				if len(j.Parents) > 0 || j.Token != "" || j.TokenFile != "" {
					return skerry.Errorf(skerry.CodeInvalid, "--standalone excludes --root and --join").
						WithHint("omit --root and --join, or omit --standalone")
				}
				if cfg.Join.Name = j.Name; j.Name == "" {
					cfg.Join.Name, err = role.HostName()
				}
			} else {
				cfg.Join, err = j.Join(c.Data, "root")
			}
			if err != nil {
				return err
			}
			role.Frugal()
			s := role.NewService(cfg.Log)
			k, err := startCluster(cmd.Context(), s, cfg, &p.api)
			if err != nil {
				return errors.Join(err, s.Stop())
			}
			takes := "cluster " + k.Name() + " takes workers on " + k.LinkAddr().String()
			if a := k.MQTTAddr(); a != nil {
				takes += ", and external agents by MQTT on " + a.String()
			}
			return s.Run(cmd.Context(), takes)
		},
	}
	c.Add(cmd.Flags(), "cluster")
	p.add(cmd.Flags(), clusterLink, clusterAPI)
	j.Add(cmd.Flags(), "root", "root", "7443")
	public.add(cmd.Flags())
	cmd.AddCommand(role.StatusCommand("cluster"), pluginCommand())
	cmd.Flags().StringSliceVar(&succeed, "succeed", nil,
		"stand by as a successor of the cluster at this address, HOST or HOST:PORT (default port 7444); the first time with --join and a token for a successor; may be repeated")
	cmd.Flags().StringVar(&cfg.LinkPublic, "link-public", "",
		"address at which workers reach this machine when it leads, HOST or HOST:PORT (default: detected)")
	cmd.Flags().BoolVar(&site.Rebuild, "rebuild", false,
		"rebuild a lost store: adopt what workers run, and accept every certificate of the site's CA; for one start only")
	cmd.Flags().BoolVar(&site.Standalone, "standalone", false, "this site has no root")
	cmd.Flags().StringVar(&profile, "profile", clustercore.Fast.Name,
		"how fast a lost worker is detected, and at what cost: fast (3 s; one heartbeat a second) or metered (90 s; below 0.25 kbit/s for an idle worker)")
	cmd.Flags().BoolVar(&site.Rebalance, "rebalance", false,
		"automatically move instances to clearly better workers, such as one that returned (skerry rebalance does so once)")
	cmd.Flags().BoolVar(&site.Trusted, "trusted-network", false,
		"trust the network between the site's workers: packets there are not encrypted, only tagged")
	cmd.Flags().BoolVar(&site.Direct, "direct-sites", false,
		"let this site's workers and those of other sites that also allow it connect directly, without gateways; they learn each other's addresses")
	cmd.Flags().StringVar(&site.Relay, "relay", clusterRelay,
		"address of the site's relay, UDP and TCP, for workers without a direct path to each other and between sites; empty to disable")
	cmd.Flags().StringVar(&site.RelayPublic, "relay-public", "",
		"address at which the relays of other sites reach this one, HOST or HOST:PORT (default: detected)")
	cmd.Flags().StringVar(&site.MQTT, "mqtt", "", mqttHelp)
	cmd.Flags().StringVar(&pool, "instance-pool", "", "IPv4 prefix for the addresses of the federation's instances (default 10.64.0.0/10)")
	cmd.Flags().StringVar(&admission, "admission", "", "file with the site's admission policy")
	cmd.Flags().StringVar(&p.places, "snapshot-places", "", placesHelp)
	cmd.Flags().StringVar(&plugins, "plugins", "", pluginsHelp)
	return cmd
}

const mqttHelp = "address for external agents, which connect by MQTT over TLS, such as 0.0.0.0:8883 (default: disabled)"

// successorConfig sets up a machine that stands by. What it is called at the root it learns with the store.
func successorConfig(cfg *parents.ClusterConfig, j *role.JoinFlags) (err error) {
	cfg.Candidate, cfg.Join.Parent = j.Name, role.HostPorts(j.Parents, j.Port)
	if cfg.CandidateToken, err = j.Text(); err != nil {
		return err
	}
	if !cfg.Server.Standalone && len(j.Parents) == 0 {
		return skerry.Errorf(skerry.CodeInvalid, "--root is missing").
			WithHint("name the site's root, or give --standalone if it has none: this machine may lead the site one day")
	}
	return nil
}

// poolFlag reads --instance-pool.
func poolFlag(s string) (p netip.Prefix, err error) {
	if s == "" {
		return p, nil
	}
	if p, err = netip.ParsePrefix(s); err != nil || !p.Addr().Is4() || p.Bits() > 20 || p != p.Masked() {
		return p, skerry.Errorf(skerry.CodeInvalid, "--instance-pool %q is not an IPv4 prefix of at most 20 bits",
			s).WithHint("write it as 10.64.0.0/10")
	}
	if spec.ServicePrefix().Overlaps(p) {
		return p, skerry.Errorf(skerry.CodeInvalid, "--instance-pool %s overlaps the service addresses, %s", p, spec.ServicePrefix())
	}
	return p, nil
}

// clusterConfig fills in what flags say that clusters share with roots, and what files say.
func clusterConfig(cfg *parents.ClusterConfig, c *role.CommonFlags, p *parentFlags, admission, plugins string) (err error) {
	if p.lostAfter < 0 {
		return skerry.Errorf(skerry.CodeInvalid, "--lost-after never is only valid at a root").
			WithHint("use a long duration, such as 24h")
	}
	if cfg.Common, err = c.Common(version); err != nil {
		return err
	}
	if cfg.ImageDepot, err = p.depot(); err != nil {
		return err
	}
	cfg.ImageCache, cfg.ImageLimits = p.imageCache, artifact.Limits{Untagged: p.imageUntagged, Space: int64(p.imageSpace)}
	cfg.ImageRate = p.imageRate
	o := &cfg.Server
	o.Link, o.LostAfter, o.CertLife, o.Journal = p.link, p.lostAfter, p.certLife, p.journal()
	if o.Admission, err = readAdmission(admission); err != nil {
		return err
	}
	if o.Places = placesFile(p.places); o.Places != nil {
		if _, err = o.Places(); err != nil {
			return err
		}
	}
	if cfg.Plugins, err = pluginConfig(plugins); err != nil {
		return err
	}
	if o.Names, err = p.nameOptions(); err != nil {
		return err
	}
	cfg.Registry, err = p.registry()
	return err
}

// startCluster starts a cluster orchestrator and waits until it takes workers and users.
func startCluster(ctx context.Context, svc *role.Service, cfg parents.ClusterConfig, api *apiFlags) (*parents.Cluster, error) {
	if err := role.MustDir(cfg.Dir); err != nil {
		return nil, err
	}
	var local atomic.Pointer[http.Handler] // answers on the control socket; nil: there is no socket yet
	serveLocal := func(h http.Handler) error {
		if local.Swap(&h) != nil {
			return nil
		}
		now := func(w http.ResponseWriter, r *http.Request) { (*local.Load()).ServeHTTP(w, r) }
		return role.StartLocal(svc, cfg.Dir, cfg.Log, http.HandlerFunc(now))
	}
	cfg.Standing = func(o *succession.Leadership, images *tier.Standby) { // and go on answering so until this machine leads
		if err := serveLocal(&standingLocal{o, images}); err != nil {
			cfg.Log.Warn("status while standing by", "err", err)
			local.Store(nil)
		}
	}
	role.StartTelemetry(svc, &cfg.Common)
	cluster, err := parents.OpenCluster(ctx, cfg)
	if err != nil {
		return nil, role.JoinError(err)
	}
	svc.Closer(cluster.Close)
	svc.Start("cluster", cluster.Run)
	svc.Start("leadership", cluster.Deposed)
	svc.Start("succession", cluster.RunLeadership)
	if err := svc.Wait(ctx, "the cluster", cluster.Up()); err != nil {
		return nil, err
	}
	svc.Watch(cluster.Alive)
	if err := parents.Seed(ctx, cluster); err != nil {
		return nil, err
	}
	if err := svc.Listening(ctx, "cluster", func() bool { return cluster.LinkAddr() != nil }); err != nil {
		return nil, err
	}
	if err := startAPI(ctx, svc, cluster, cluster.Store, cfg.Common, api); err != nil {
		return nil, err
	}
	role.Tell(svc, &cfg.Common, role.Telling{Tier: wire.TierCluster, Name: cluster.Name(), Metrics: api.metricsOf(cluster),
		Journal: cluster.Journal(), Instances: cluster.Instances})
	return cluster, serveLocal(&parentLocal{role: "cluster", dir: cfg.Dir, name: cluster.Name(), authority: cluster.Authority(),
		store: cluster.Store, images: cluster.Images, ready: cluster.Ready, parent: cluster.Parent, plugins: cluster.Plugins, api: api,
		leadership: cluster.Leadership, rebuilt: cluster.Rebuilt, orphans: cluster.Orphans})
}
