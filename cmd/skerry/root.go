package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/link"
	rootcore "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/wire"
)

// Ports of the roles, one range for all.
const (
	rootLink     = "0.0.0.0:7443"
	clusterLink  = "0.0.0.0:7444"
	clusterRelay = "0.0.0.0:7445"
	rootAPI      = "0.0.0.0:7480"
	clusterAPI   = "0.0.0.0:7481"
)

func rootCommand() *cobra.Command {
	var c role.CommonFlags
	var p parentFlags
	var cfg parents.RootConfig
	var plugins string
	cmd := &cobra.Command{
		Use: "root", Short: "Run the root: it accepts applications and offers their instances to clusters", Args: cobra.NoArgs,
		Long: `Run the root: it accepts applications and offers their instances to clusters, whose sites it knows only in aggregate.

Every flag can also be set by an environment variable: --log-level is SKERRY_LOG_LEVEL. The first start creates the user
admin, whose password is in the file admin-password in the data directory. SIGTERM stops the root; instances at the sites
keep running.`,
		Example: "  skerry root --data /var/lib/skerry/root\n  skerry token create --role cluster --data /var/lib/skerry/root",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := role.FromEnv(cmd); err != nil {
				return err
			}
			err := rootConfig(&cfg, &c, &p)
			if err == nil {
				cfg.Plugins, err = pluginConfig(plugins)
			}
			if err != nil {
				return err
			}
			role.Frugal()
			s := role.NewService(cfg.Log)
			r, err := startRoot(cmd.Context(), s, cfg, &p.api)
			if err != nil {
				return errors.Join(err, s.Stop())
			}
			return s.Run(cmd.Context(), "root "+r.Name()+" takes clusters on "+r.LinkAddr().String())
		},
	}
	c.Add(cmd.Flags(), "root")
	cmd.Flags().StringVar(&cfg.Server.Name, "name", "root", "name of the federation")
	p.add(cmd.Flags(), rootLink, rootAPI)
	p.api.oakestra.add(cmd.Flags())
	cmd.Flags().StringVar(&cfg.Server.Amendments, "amendments", rootcore.AmendmentsLocal,
		"which overrides, made at sites while the root was away, are adopted: own (those of services that run at that site only, and numbers of instances), all or none; the rest is kept for rollout undo")
	cmd.Flags().DurationVar(&cfg.Server.KeepAlive, "keep-alive", link.DefaultKeepAlive,
		"how often an idle connection to a cluster is probed, 1s to 5m; both ends close it after three failed probes")
	cmd.Flags().StringVar(&plugins, "plugins", "", "directory with the root's scheduling plugins, which judge clusters")
	cmd.AddCommand(role.StatusCommand("root"))
	return cmd
}

// rootConfig fills in what flags say that roots share with clusters, and checks the root's own.
func rootConfig(cfg *parents.RootConfig, c *role.CommonFlags, p *parentFlags) (err error) {
	if cfg.Common, err = c.Common(version); err != nil {
		return err
	}
	if cfg.ImageDepot, err = p.depot(); err != nil {
		return err
	}
	cfg.ImageCache, cfg.ImageLimits = p.imageCache, artifact.Limits{Untagged: p.imageUntagged, Space: int64(p.imageSpace)}
	cfg.ImageRate = p.imageRate
	o := &cfg.Server
	if !slices.Contains([]string{"", rootcore.AmendmentsLocal, rootcore.AmendmentsAll, rootcore.AmendmentsNone}, o.Amendments) {
		return skerry.Errorf(skerry.CodeInvalid, "--amendments %q is not a value", o.Amendments).WithHint("write own, all or none")
	}
	if o.KeepAlive != 0 && (o.KeepAlive < time.Second || o.KeepAlive > 5*time.Minute) {
		return skerry.Errorf(skerry.CodeInvalid, "--keep-alive %s is not 1s to 5m", o.KeepAlive)
	}
	o.Link, o.LostAfter, o.CertLife, o.Journal = p.link, p.lostAfter, p.certLife, p.journal()
	if o.Names, err = p.nameOptions(); err != nil {
		return err
	}
	cfg.Registry, err = p.registry()
	return err
}

// startRoot starts a root and waits until it takes clusters and users.
func startRoot(ctx context.Context, svc *role.Service, cfg parents.RootConfig, api *apiFlags) (*parents.Root, error) {
	if err := skerry.CheckName(cfg.Server.Name); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--name: %w", err)
	}
	if err := role.MustDir(cfg.Dir); err != nil {
		return nil, err
	}
	role.StartTelemetry(svc, &cfg.Common)
	root, err := parents.OpenRoot(ctx, cfg)
	if err != nil {
		return nil, err
	}
	svc.Closer(root.Close)
	svc.Start("root", root.Run)
	svc.Start("leadership", root.Deposed)
	if err := svc.Wait(ctx, "the root", root.Up()); err != nil {
		return nil, err
	}
	svc.Watch(root.Alive)
	if err := parents.Seed(ctx, root); err != nil {
		return nil, err
	}
	if err := svc.Listening(ctx, "root", func() bool { return root.LinkAddr() != nil }); err != nil {
		return nil, err
	}
	if err := startAPI(ctx, svc, root, root.Store, cfg.Common, api); err != nil {
		return nil, err
	}
	role.Tell(svc, &cfg.Common, role.Telling{Tier: wire.TierRoot, Name: root.Name(), Metrics: api.metricsOf(root), Journal: root.Journal(),
		Instances: root.Instances})
	return root, role.StartLocal(svc, cfg.Dir, cfg.Log, &parentLocal{role: "root", dir: cfg.Dir, name: root.Name(),
		authority: root.Authority(), store: root.Store, images: root.Images, ready: root.Ready, plugins: root.Plugins, api: api,
		orphans: root.Orphans})
}
