package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	"skerry.dev/skerry/cmd/internal/agent"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/ctl"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/web"
	"skerry.dev/skerry/wire"
)

// upFlags are those of all roles in one process.
type upFlags struct {
	data, admission, plugins          string
	contextName                       string
	rootLink, clusterLink, clusterAPI string
	mqtt                              string
	logs                              role.CommonFlags
	worker                            agent.Flags
	shared                            parentFlags
	service                           bool
}

func upCommand() *cobra.Command { return upCommandWith(&upFlags{}) }

func upCommandWith(f *upFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "up", Short: "Run root, cluster and worker in one process", Args: cobra.NoArgs,
		Long: `Run root, a cluster named local and a worker in one process: all of Skerry on one machine. The roles join automatically and
listen on loopback by default. The contexts local and local-site, for the root and the cluster, are added to the client's
configuration.

With --service, systemd runs it: the unit skerry.service is enabled and started, with the flags that are given, which are
kept in /etc/skerry/up.env. A program outside of /usr is copied to /usr/local/bin first. Once more with other flags, it
starts anew with these; what runs in it goes on meanwhile.

Every flag can also be set by an environment variable: --data is SKERRY_DATA.`,
		Example: `  skerry up
  skerry up --service --name w1 --admission policy.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := role.FromEnv(cmd); err != nil {
				return err
			}
			if err := agent.NeedRoot("skerry up"); err != nil {
				return err
			}
			if f.service {
				return f.asService(cmd)
			}
			log, err := f.logs.Logger()
			if err != nil {
				return err
			}
			role.Frugal()
			s := role.NewService(log)
			if err := f.start(cmd, s); err != nil {
				return errors.Join(err, s.Stop())
			}
			return s.Run(cmd.Context(), "all roles work")
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.data, "data", role.DefaultData(), "data directory; each role has a subdirectory")
	fs.StringVar(&f.rootLink, "root-link", "127.0.0.1:7443", "address for connections of additional clusters")
	fs.StringVar(&f.clusterLink, "cluster-link", "127.0.0.1:7444", "address for connections of additional workers")
	fs.StringVar(&f.clusterAPI, "cluster-api", "127.0.0.1:7481", "address of the cluster's API, for the site's operator; empty to disable")
	fs.StringVar(&f.mqtt, "mqtt", "", mqttHelp)
	fs.StringVar(&f.admission, "admission", "",
		"file with the site's admission policy (default: the organisation default may do everything, which suits a personal machine)")
	fs.StringVar(&f.shared.places, "snapshot-places", "", placesHelp)
	fs.StringVar(&f.plugins, "plugins", "", pluginsHelp)
	fs.StringVar(&f.contextName, "add-context", "local",
		"name of the client's context to add, along with NAME-site for the cluster; empty adds none")
	fs.StringVar(&f.worker.Join.Name, "name", "", "name of the worker (default the host name)")
	fs.BoolVar(&f.service, "service", false,
		"have systemd run it, from now on and whenever the machine starts, with the other flags that are given")
	f.shared.api.add(fs, "127.0.0.1:7480")
	f.shared.api.oakestra.add(fs)
	f.shared.addShared(fs)
	f.worker.Add(fs)
	f.logs.AddLog(fs)
	return cmd
}

// start starts the roles one after the other, each joined to the one before.
func (f *upFlags) start(cmd *cobra.Command, svc *role.Service) error {
	ctx := cmd.Context()
	flags := func(name string) role.CommonFlags {
		return role.CommonFlags{Data: filepath.Join(f.data, name), LogFormat: f.logs.LogFormat, LogLevel: f.logs.LogLevel,
			Telemetry: f.logs.Telemetry}
	}
	rf := flags("root")
	shared := f.shared
	shared.link = f.rootLink
	rootCfg := parents.RootConfig{Server: root.ServerOptions{Name: "root"}}
	if err := rootConfig(&rootCfg, &rf, &shared); err != nil {
		return err
	}
	r, err := startRoot(ctx, svc, rootCfg, &shared.api)
	if errors.Is(err, store.ErrInUse) {
		return f.runsAlready(ctx, rf.Data, err)
	}
	if err != nil {
		return err
	}

	cf := flags("cluster")
	below := f.shared
	below.link = f.clusterLink
	below.api.listen = f.clusterAPI
	below.api.oidc = "" // it names the root's address
	below.api.oakestra = oakestraFlags{}
	clusterCfg := parents.ClusterConfig{Server: cluster.ServerOptions{MQTT: f.mqtt}}
	if err := clusterConfig(&clusterCfg, &cf, &below, f.admission, f.plugins); err != nil {
		return err
	}
	if f.admission == "" {
		clusterCfg.Server.Admission.Trusted = []string{parents.DefaultOrg}
	}
	clusterCfg.Join = node.Join{Name: "local", Parent: []string{reachable(r.LinkAddr())}}
	if clusterCfg.Join.Token, err = tokenIfNeeded(ctx, cf.Data, r.Authority(), wire.TierCluster, "local"); err != nil {
		return err
	}
	k, err := startCluster(ctx, svc, clusterCfg, &below.api)
	if err != nil {
		return err
	}

	w := f.worker
	w.Common = flags("worker")
	workerCfg, err := w.Config(version)
	if err != nil {
		return err
	}
	w.Join.Parents = []string{reachable(k.LinkAddr())}
	if workerCfg.Join, err = w.Join.Join(w.Common.Data, "cluster"); err != nil {
		return err
	}
	if workerCfg.Join.Token, err = tokenIfNeeded(ctx, w.Common.Data, k.Authority(), wire.TierWorker, workerCfg.Join.Name); err != nil {
		return err
	}
	if err := agent.Start(ctx, svc, workerCfg, &w); err != nil {
		return err
	}
	return f.welcome(cmd, server{shared.api.served, r.Authority().CAPin()}, server{below.api.served, k.Authority().CAPin()})
}

// runsAlready says what runs on the data directory.
func (f *upFlags) runsAlready(ctx context.Context, data string, err error) error {
	var status role.Status
	if role.CallLocal(ctx, data, "GET", "/status", nil, &status) != nil {
		return err // it is about to start, or to end
	}
	stop := fmt.Sprintf("kill %d", status.Pid)
	if groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", status.Pid)); err == nil && bytes.Contains(groups, []byte("/"+upUnit+"\n")) {
		stop = "systemctl stop skerry"
	}
	return skerry.Errorf(skerry.CodeConflict, "Skerry runs on %s already: process %d, version %s, at %s", f.data, status.Pid, status.Version, status.API).
		WithHint("`skerry get apps` shows what it runs; `%s` stops it. A second one needs another --data, and other addresses", stop)
}

// tokenIfNeeded makes a token for a role that has no identity yet.
func tokenIfNeeded(ctx context.Context, data string, a *auth.Authority, tier wire.Tier, name string) (string, error) {
	if _, err := auth.OpenMember(filepath.Join(data, "identity")); err == nil {
		return "", nil
	}
	text, _, err := a.CreateToken(ctx, auth.TokenOptions{Tier: tier, Name: name, By: "skerry up", Replace: true})
	return text, err
}

// server is where a role serves its API, if it does, and the pin of its CA.
type server struct{ url, pin string }

// welcome adds contexts for the two servers and tells how to go on.
func (f *upFlags) welcome(cmd *cobra.Command, root, site server) error {
	if root.url == "" {
		return nil
	}
	out := cmd.OutOrStdout()
	password := filepath.Join(f.data, "root", parents.AdminPasswordFile)
	login := "skerry login --server " + root.url + " --ca-pin " + root.pin
	if f.contextName != "" {
		path, err := ctl.ConfigPath()
		if err == nil {
			err = f.addContexts(path, root, site)
		}
		if err != nil { // a service has no home directory, and a disk may be full: the roles run all the same
			fmt.Fprintf(cmd.ErrOrStderr(), "no context is added: %v\n", err)
			f.contextName = ""
		}
	}
	if f.contextName != "" {
		login = "skerry login --context " + f.contextName
	}
	fmt.Fprintf(out, "Skerry runs. Log in:\n\n  %s --user admin --password-file %s\n\n", login, password)
	if web.Built() {
		fmt.Fprintf(out, "Or in a browser, as admin with the same password:\n\n  %s/ui/\n\n", root.url)
	}
	if f.admission == "" {
		fmt.Fprintf(out, "Anyone who may deploy in the organisation %s may do everything on this machine: native processes, privileged containers, any path.\n"+
			"That suits a personal machine. Before you let others in, set a policy with --admission; `skerry cluster --help` shows one.\n\n",
			parents.DefaultOrg)
	}
	if f.contextName != "" && site.url != "" {
		fmt.Fprintf(out, "The site's own server, which knows workers and addresses:\n\n  skerry login --context %s-site --user admin --password-file %s\n\n",
			f.contextName, filepath.Join(f.data, "cluster", parents.AdminPasswordFile))
	}
	return nil
}

// addContexts adds or renews the contexts; logins that are still good stay.
func (f *upFlags) addContexts(path string, root, site server) error {
	return ctl.UpdateConfig(path, func(c *ctl.Config) error {
		put := func(name string, s server) {
			if old := c.Find(name); old == nil || old.Server != s.url || old.CAPin != s.pin {
				c.Put(&ctl.Context{Name: name, Server: s.url, CAPin: s.pin})
			}
		}
		put(f.contextName, root)
		if site.url != "" {
			put(f.contextName+"-site", site)
		}
		if c.Current == "" {
			c.Current = f.contextName
		}
		return nil
	})
}
