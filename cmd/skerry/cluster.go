package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	clusterserver "skerry.dev/skerry/cluster"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/succession"
)

func clusterCommand() *cobra.Command {
	var c commonFlags
	var p parentFlags
	var j joinFlags
	var rebuild, standalone, trusted, direct, rebalance bool
	var pool, relay, relayPublic, mqtt string
	var admission, plugins, profile, linkPublic string
	var succeed []string
	cmd := &cobra.Command{
		Use: "cluster", Short: "Run a cluster orchestrator: it owns one site and its workers", Args: cobra.NoArgs,
		Long: `Run a cluster orchestrator: it owns one site, lets in what its operator admits, and places instances on its workers.

Every flag may also be given as an environment variable: --root is SKERRY_ROOT. The site goes on without its root; with
--standalone it has none. The admission policy is a YAML file:

  trusted: [default]        # organisations that may use everything
  denied: []                # organisations that get nothing
  allowed: []               # if not empty: only these get anything
  level: restricted         # of what weakens isolation: restricted (no capabilities), baseline (the usual ones, devices) or privileged
  levels: {partners: baseline}   # of single organisations
  native: false             # what all others may use, whatever their level
  privileged: false
  hostPorts: false
  ingress: false            # ways in from outside by way of the workers
  hostPaths: [/srv/media, {path: /srv/up, writable: true}]   # read-only unless it says writable
  maxPriority: 0            # above it they could push others out
  registries: [registry.example.com]
  noMeasuring: false        # true: no worker measures round trips to users, for anybody
  measureNetworks: []       # private networks where workers measure round trips to users for foreign organisations
  measurePorts: []          # TCP ports for that, beside 80, 443, 8080 and 8443
  requireUserNamespaces: false # true: no containers on workers where root in them is root outside
  egress:                   # where services of an organisation may go outside the overlay; * is everybody who is not named or trusted
    "*": {allow: [{cidr: 0.0.0.0/0, except: [10.0.0.0/8]}, {cidr: 203.0.113.0/24, ports: [{port: 443}]}]}
    guests: {}              # nowhere
  maxPerInstance: {cpu: 2, memory: 1Gi}
  quotas:                   # of an organisation's instances together, trusted or not
    guests: {cpu: 8, instances: 40, serviceAddresses: 60}

Successors stand by on machines of their own, with the same flags and --succeed:

  skerry token create --role successor --name second --data /var/lib/skerry/cluster      # where the cluster runs
  skerry cluster --succeed harbour.example.com --join skt1.successor.… --root root.example.com   # on the other machine

The cluster streams its store to the first two that are there. When it falls silent the site's workers vote for one of them, by majority; the
machine that led stands by when it comes back. ` + "`skerry cluster status`" + ` shows who leads, and what the others have.

When the store is lost and there is no successor, restore any backup of it, however old, for the site's CA and its identity at the root, and start once with
--rebuild. Workers come back by their certificates; what they run is taken up without a restart: the root's, as the root tells it, and the site's own
services, made again from what workers hold of them. Nothing is started anew for half a minute, so that all can come back. ` + "`skerry cluster status`" + ` tells what was
recovered and what was not. Without a backup join the root anew with a token made with --replace, and let the workers join again: what runs stays.

Without a file no organisation is trusted, and all have the level restricted: containers without capabilities, no privileges, no devices,
no host paths, no fixed host ports. What was placed before a change of the policy runs on; level: privileged lets everybody do everything.`,
		Example: "  skerry cluster --name harbour --root root.example.com --join skt1.cluster.…\n  skerry cluster --name island --standalone",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnv(cmd); err != nil {
				return err
			}
			cfg, err := clusterConfig(&c, &p, admission, plugins)
			if err != nil {
				return err
			}
			cfg.Standalone, cfg.Trusted, cfg.Direct, cfg.Relay, cfg.RelayPublic, cfg.MQTT, cfg.Rebalance = standalone, trusted, direct, relay, relayPublic, mqtt, rebalance
			if cfg.Pool, err = poolFlag(pool); err != nil {
				return err
			}
			if cfg.Profile, err = clusterserver.ProfileOf(profile); err != nil {
				return err
			}
			if cfg.Succeed = hostPorts(succeed, "7444"); len(succeed) > 0 || succession.Copied(cfg.Dir) {
				if err := successorConfig(&cfg, &j, standalone); err != nil {
					return err
				}
			} else if standalone {
				if len(j.parents) > 0 || j.token != "" || j.tokenFile != "" {
					return skerry.Errorf(skerry.CodeInvalid, "--standalone means that there is no root").WithHint("leave --root and --join away, or --standalone")
				}
				if cfg.Join.Name = j.name; j.name == "" {
					cfg.Join.Name, err = hostName()
				}
			} else {
				cfg.Join, err = j.join(c.data, "root")
			}
			if err != nil {
				return err
			}
			cfg.LinkPublic, cfg.Rebuild = linkPublic, rebuild
			frugal(50, 0)
			s := newService(cfg.Log)
			k, err := startCluster(cmd.Context(), s, cfg, &p.api)
			if err != nil {
				return errors.Join(err, s.stop())
			}
			takes := "cluster " + k.Name() + " takes workers on " + k.LinkAddr().String()
			if a := k.MQTTAddr(); a != nil {
				takes += ", and agents of others by MQTT on " + a.String()
			}
			return s.run(cmd.Context(), takes)
		},
	}
	c.add(cmd.Flags(), "cluster")
	p.add(cmd.Flags(), clusterLink, clusterAPI)
	j.add(cmd.Flags(), "root", "root", "7443")
	cmd.AddCommand(statusCommand("cluster"), pluginCommand())
	cmd.Flags().StringSliceVar(&succeed, "succeed", nil, "be a successor of the cluster at this address, HOST or HOST:PORT (port 7444 unless given), with --join and a token of the role successor the first time; may be repeated")
	cmd.Flags().StringVar(&linkPublic, "link-public", "", "address at which workers reach this machine if it leads, HOST or HOST:PORT (default found out)")
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "the site's store is lost: take up what workers run, and let in whoever holds a certificate of the site's CA; for one start")
	cmd.Flags().BoolVar(&standalone, "standalone", false, "this site has no root")
	cmd.Flags().StringVar(&profile, "profile", clusterserver.Fast.Name, "how soon a lost worker is noticed, and what that may cost: fast (3 s; a beat a second) or metered (90 s; below 0.25 kbit/s for an idle worker)")
	cmd.Flags().BoolVar(&rebalance, "rebalance", false, "move instances to clearly better places by itself, such as a worker that came back (skerry rebalance asks for it once)")
	cmd.Flags().BoolVar(&trusted, "trusted-network", false, "the network between the site's workers is trusted: paths there are not sealed, only tagged")
	cmd.Flags().BoolVar(&direct, "direct-sites", false, "let workers here and at other sites that allow it, too, reach each other without gateways; they learn each other's addresses")
	cmd.Flags().StringVar(&relay, "relay", clusterRelay, "address of the site's relay, UDP and TCP: for workers that do not reach each other directly, and between sites; empty for none")
	cmd.Flags().StringVar(&relayPublic, "relay-public", "", "address at which the relays of other sites reach this one, HOST or HOST:PORT (default found out)")
	cmd.Flags().StringVar(&mqtt, "mqtt", "", mqttHelp)
	cmd.Flags().StringVar(&pool, "instance-pool", "", "IPv4 prefix that the federation's instances have addresses from (default 10.64.0.0/10)")
	cmd.Flags().StringVar(&admission, "admission", "", "file with the site's admission policy")
	cmd.Flags().StringVar(&plugins, "plugins", "", pluginsHelp)
	return cmd
}

const mqttHelp = "address on which agents of others connect by MQTT over TLS, such as 0.0.0.0:8883 (default: none are taken)"

// successorConfig sets up a machine that stands by. What it is called at the root it learns with the store.
func successorConfig(cfg *node.ClusterConfig, j *joinFlags, standalone bool) (err error) {
	cfg.Seat, cfg.Join.Parent = j.name, hostPorts(j.parents, j.port)
	if cfg.SeatToken, err = j.text(); err != nil {
		return err
	}
	if !standalone && len(j.parents) == 0 {
		return skerry.Errorf(skerry.CodeInvalid, "--root is missing").WithHint("name the site's root, or say --standalone if it has none: this machine may come to lead it")
	}
	return nil
}

// poolFlag reads --instance-pool.
func poolFlag(s string) (p netip.Prefix, err error) {
	if s == "" {
		return p, nil
	}
	if p, err = netip.ParsePrefix(s); err != nil || !p.Addr().Is4() || p.Bits() > 20 || p != p.Masked() {
		return p, skerry.Errorf(skerry.CodeInvalid, "--instance-pool %q is not an IPv4 prefix of at most 20 bits", s).WithHint("write it as 10.64.0.0/10")
	}
	if skerry.ServicePrefix().Overlaps(p) {
		return p, skerry.Errorf(skerry.CodeInvalid, "--instance-pool %s overlaps the service addresses, %s", p, skerry.ServicePrefix())
	}
	return p, nil
}

func clusterConfig(c *commonFlags, p *parentFlags, admission, plugins string) (node.ClusterConfig, error) {
	cfg := node.ClusterConfig{Link: p.link, LostAfter: p.lostAfter, CertLife: p.certLife, Journal: p.journal()}
	if p.lostAfter < 0 {
		return cfg, skerry.Errorf(skerry.CodeInvalid, "--lost-after never is for roots").WithHint("write a long time, such as 24h")
	}
	var err error
	if cfg.Common, err = c.common(); err != nil {
		return cfg, err
	}
	if cfg.Admission, err = readAdmission(admission); err != nil {
		return cfg, err
	}
	if cfg.Plugins, err = pluginConfig(plugins); err != nil {
		return cfg, err
	}
	if cfg.Names, err = p.nameOptions(); err != nil {
		return cfg, err
	}
	cfg.Registry, err = p.registry()
	return cfg, err
}

// startCluster starts a cluster orchestrator and waits until it takes workers and users.
func startCluster(ctx context.Context, s *service, cfg node.ClusterConfig, api *apiFlags) (*node.Cluster, error) {
	if err := mustDir(cfg.Dir); err != nil {
		return nil, err
	}
	var standing *service // answers on the socket while this machine stands by
	cfg.Standing = func(o *succession.Office) {
		standing = newService(cfg.Log)
		if err := startLocal(standing, cfg.Dir, cfg.Log, &standingLocal{o}); err != nil {
			cfg.Log.Warn("status while standing by", "err", err)
		}
	}
	k, err := node.OpenCluster(ctx, cfg)
	if standing != nil {
		err = errors.Join(err, standing.stop())
	}
	if err != nil {
		return nil, joinError(err)
	}
	s.closer(k.Close)
	s.start(part{"cluster", k.Run})
	s.start(part{"leadership", k.Deposed})
	s.start(part{"succession", k.RunOffice})
	if err := s.wait(ctx, "the cluster", k.Up()); err != nil {
		return nil, err
	}
	if err := node.Seed(ctx, k); err != nil {
		return nil, err
	}
	if err := s.listening(ctx, "cluster", func() bool { return k.LinkAddr() != nil }); err != nil {
		return nil, err
	}
	if err := startAPI(ctx, s, k, k.Store, cfg.Common, api); err != nil {
		return nil, err
	}
	return k, startLocal(s, cfg.Dir, cfg.Log, &parentLocal{role: "cluster", dir: cfg.Dir, name: k.Name(), authority: k.Authority(), store: k.Store, ready: k.Ready, parent: k.Parent, plugins: k.Plugins, api: api, office: k.Office, rebuilt: k.Rebuilt})
}

// joinError gives a refusal the form that users get.
func joinError(err error) error {
	var r *skerry.Refuse
	if errors.As(err, &r) {
		return skerry.Errorf(skerry.CodeForbidden, "the parent refuses: %s", r.Reason).WithHint("%s", r.Hint)
	}
	return err
}

// listening waits until a role listens; the address is known a moment after the role is up.
func (s *service) listening(ctx context.Context, name string, ok func() bool) error {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for !ok() {
		select {
		case <-t.C:
		case e := <-s.done:
			return s.early(e)
		case <-ctx.Done():
			return errors.New("stopped while the " + name + " was starting")
		}
	}
	return nil
}
