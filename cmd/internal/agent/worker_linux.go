package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/devices"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/runtime/oci"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// Config makes the worker's configuration of the flags, for a program of a version.
func (w *Flags) Config(version string) (node.WorkerConfig, error) {
	cfg := node.WorkerConfig{NoNetwork: w.noNetwork, RunDir: w.runDir, CgroupParent: w.cgroup, PullLimit: w.pull, MinFree: w.minFree,
		ProbeAddress: w.probeAddress, ProbeEvery: w.probeEvery,
		NoOverlay: w.noOverlay, OpenHost: w.openHost, Dataplane: node.Dataplane(w.dataplane), OverlayPort: w.overlayPort,
		PlainPort: w.plainPort, WireGuard: node.WireGuard(w.wireguard), WGPort: w.wireguardPort, Flows: w.flows, NoIngress: !w.ingress,
		Machines: node.Machines{Kernel: w.guest.kernel, KernelSHA256: w.guest.sum, Monitor: w.guest.monitor, Firecracker: w.guest.firecracker,
			CloudHypervisor: w.guest.cloudHypervisor, Emulate: w.guest.emulate, Enabled: w.guest.machines},
		Containerd: node.Containerd{Socket: w.containerd.socket, Shim: w.containerd.shim, Binary: w.containerd.binary}}
	err := node.CheckDataplane(cfg.Dataplane)
	if err != nil {
		return cfg, err
	}
	if err = node.CheckWireGuard(cfg.WireGuard); err != nil {
		return cfg, err
	}
	if cfg.Containerd.Classes, err = node.ParseContainerdClasses(w.containerd.classes); err != nil {
		return cfg, err
	}
	if cfg.IngressListen, err = addrFlag("--ingress-address", w.ingressAddress); err != nil {
		return cfg, err
	}
	if cfg.IngressPublic, err = addrFlag("--ingress-public", w.ingressPublic); err != nil {
		return cfg, err
	}
	if cfg.Common, err = w.Common.Common(version); err != nil {
		return cfg, err
	}
	if w.instanceLogs && cfg.Telemetry == nil {
		return cfg, skerry.Errorf(skerry.CodeInvalid, "--otlp-instance-logs is for a collector").WithHint("name it with --otlp")
	}
	cfg.Facts = worker.FactOptions{Capacity: w.capacity, Area: w.area, Address: w.address}
	if cfg.Facts.Labels, err = parseLabels(w.labels); err != nil {
		return cfg, err
	}
	if cfg.Facts.Location, err = parseLocation(w.location); err != nil {
		return cfg, err
	}
	cfg.Facts.Taints, cfg.Facts.Devices = w.taints, w.devices
	for _, f := range [][2]string{{"--gpu-class", w.accelerators.GPUs}, {"--tpu-class", w.accelerators.TPUs}} {
		name, class := f[0], f[1]
		if _, _, one, ok := spec.ParseCDI(class); class != "" && (!ok || one != "") {
			return cfg, skerry.Errorf(skerry.CodeInvalid, "%s %q names no class of devices", name, class).
				WithHint("write it as in /etc/cdi: vendor.com/class")
		}
	}
	if w.accelerators != (spec.Accelerators{}) {
		cfg.Facts.Accelerators = &w.accelerators
	}
	if cfg.Attach, err = w.attach(); err != nil {
		return cfg, err
	}
	if cfg.Users, err = worker.ParseUserPool(w.users); err != nil {
		return cfg, skerry.Errorf(skerry.CodeInvalid, "--user-namespaces: %w", err).WithHint("omit it for the default, 1879048192-2147287039")
	}
	if cfg.Owners, err = oci.ParseOwners(w.owners); err != nil {
		return cfg, skerry.Errorf(skerry.CodeInvalid, "--file-owners: %w", err).WithHint("omit it for auto")
	}
	if err := checkKeys("--taint", w.taints); err != nil {
		return cfg, err
	}
	if cfg.Facts.Power, err = parsePower(w.power); err != nil {
		return cfg, err
	}
	if a := w.probeAddress; a != "" && a != worker.NoProbing {
		if host, port, err := net.SplitHostPort(a); err != nil || host != "" && !isIP(host) || !isPort(port) {
			return cfg, skerry.Errorf(skerry.CodeInvalid, "--probe-address %q is not an IP address with a port",
				a).WithHint("write it as 192.0.2.7:7445, :7445 or off")
		}
	}
	if w.probeEvery < 0 {
		return cfg, skerry.Errorf(skerry.CodeInvalid, "--probe-every %s is negative", w.probeEvery)
	}
	if w.profileAfter < 0 {
		return cfg, skerry.Errorf(skerry.CodeInvalid, "--profile-after %s is negative", w.profileAfter).WithHint("0 is never")
	}
	for _, s := range w.closed {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return cfg, skerry.Errorf(skerry.CodeInvalid, "--closed-networks %q is not a network", s).WithHint("write it as 192.168.0.0/16")
		}
		cfg.Closed = append(cfg.Closed, p.Masked())
	}
	for _, s := range w.nfs {
		grant, err := spec.ParseNFSGrant(s)
		if err != nil {
			return cfg, skerry.Errorf(skerry.CodeInvalid, "--nfs: %w", err).WithHint("write it as nas.example.com:/export/media")
		}
		cfg.NFS = append(cfg.NFS, grant)
	}
	if w.subnet != "" {
		if cfg.Subnet, err = netip.ParsePrefix(w.subnet); err != nil || !cfg.Subnet.Addr().Is4() {
			return cfg, skerry.Errorf(skerry.CodeInvalid, "--subnet %q is not an IPv4 subnet", w.subnet).WithHint("write it as 10.31.5.0/24")
		}
	}
	return cfg, nil
}

// attach reads what the worker offers of devices.
func (w *Flags) attach() (opt worker.AttachOptions, err error) {
	opt.CDI, opt.Hooks = w.cdi, w.cdiHooks
	for _, text := range w.deviceClasses {
		rule, err := devices.ParseRule(text)
		if err != nil {
			return opt, skerry.Errorf(skerry.CodeInvalid, "--device-class %s: %w", text, err).
				WithHint("write it as serial, plc=serial,vendor=0403, or nvidia.com/gpu,shares=4")
		}
		opt.Rules = append(opt.Rules, rule)
	}
	if w.deviceFile == "" {
		return opt, nil
	}
	if opt.File, err = filepath.Abs(w.deviceFile); err == nil {
		_, err = devices.ReadFile(opt.File)
	}
	if err != nil {
		return opt, skerry.Errorf(skerry.CodeInvalid, "--device-file %s: %w", w.deviceFile, err).
			WithHint("docs/OPERATIONS.md, \"Devices\", has an example")
	}
	return opt, nil
}

// addrFlag reads a list of addresses.
func addrFlag(name string, list []string) (out []netip.Addr, err error) {
	for _, s := range list {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%s %q is not an IP address", name, s).WithHint("write it as 192.0.2.7")
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// NeedRoot reports, as CodeForbidden, that this user is not root.
func NeedRoot(what string) error {
	if os.Geteuid() != 0 {
		return skerry.Errorf(skerry.CodeForbidden, "%s needs root: it creates cgroups, mounts and network namespaces", what).
			WithHint("run it with sudo, or as a systemd service")
	}
	return nil
}

func runWorker(ctx context.Context, flags *Flags, program Program) error {
	if err := NeedRoot("a worker"); err != nil {
		return err
	}
	cfg, err := flags.Config(program.Version)
	if err != nil {
		return err
	}
	if cfg.Join, err = flags.Join.Join(flags.Common.Data, "cluster"); err != nil {
		return err
	}
	role.Frugal()
	dir, err := programsDir(&cfg)
	if err != nil {
		return err
	}
	if stopped, err := launch(ctx, dir, cfg.Dir, cfg.Log); stopped || err != nil {
		return err
	}
	s := role.NewService(cfg.Log)
	if err := start(ctx, s, cfg, flags, &programs{Program: program, dir: dir, ask: make(chan struct{}, 1)}); err != nil {
		return errors.Join(err, s.Stop())
	}
	err = s.Run(ctx, "worker "+cfg.Join.Name+" works")
	if errors.Is(err, role.ErrUpgrade) {
		return try(ctx, dir, cfg.Dir, cfg.Log)
	}
	return err
}

// Start starts a worker that shares its process with other roles. Its program cannot be exchanged.
func Start(ctx context.Context, svc *role.Service, cfg node.WorkerConfig, flags *Flags) error {
	return start(ctx, svc, cfg, flags, nil)
}

// start starts a worker. Without programs its own cannot be exchanged.
func start(ctx context.Context, svc *role.Service, cfg node.WorkerConfig, flags *Flags, own *programs) error {
	if err := role.MustDir(cfg.Dir); err != nil {
		return err
	}
	if own != nil {
		cfg.Agent = own
	}
	role.StartTelemetry(svc, &cfg.Common)
	w, err := node.OpenWorker(ctx, cfg)
	if err != nil {
		return role.JoinError(err)
	}
	svc.Closer(w.Close)
	local := &workerLocal{name: cfg.Join.Name, version: cfg.Version, w: w, programs: own}
	if own != nil { // an order of the cluster may come as soon as the worker runs
		own.status = local.status
	}
	svc.Start("worker", w.Run)
	if err := svc.Wait(ctx, "the worker", w.Up()); err != nil {
		return err
	}
	svc.Watch(w.Alive)
	role.Tell(svc, &cfg.Common, role.Telling{Tier: wire.TierWorker, Name: cfg.Join.Name, Metrics: w.WriteMetrics, Journal: w.Journal(),
		Instances: w.Views})
	if e := cfg.Telemetry; e != nil && flags.instanceLogs {
		svc.Start("logs of instances", func(ctx context.Context) error {
			return w.FollowLogs(ctx, func(ctx context.Context, l worker.LogLine) bool {
				return e.Line(ctx, l.Time, l.Line, map[string]string{"skerry.namespace": l.Service.App.Namespace, "skerry.app": l.Service.App.Name,
					"skerry.service": l.Service.Service, "skerry.instance": string(l.Instance), "skerry.container": l.Container,
					"log.iostream": l.Stream})
			})
		})
	}
	if flags.HTTP != "" {
		svc.Start("health", func(ctx context.Context) error { return w.ServeHealth(ctx, flags.HTTP) })
	}
	if own != nil {
		svc.Start("upgrade", own.wait)
	}
	if err := role.StartLocal(svc, cfg.Dir, cfg.Log, local); err != nil {
		return err
	}
	if p := flags.profiler(cfg.Dir, cfg.Log); p != nil {
		svc.Start("profiler", p.run)
	}
	return nil
}

func checkCommand(version string) *cobra.Command {
	var w Flags
	cmd := &cobra.Command{Use: "check", Short: "Test every runtime on this machine and suggest fixes", Args: cobra.NoArgs,
		Long: "Test every runtime on this machine. For each that does not work, show why and how to fix it. Exits with 1 if none works.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := NeedRoot("worker check"); err != nil {
				return err
			}
			if err := role.FromEnv(cmd); err != nil {
				return err
			}
			var st role.Status
			err := role.CallLocal(cmd.Context(), w.Common.Data, "POST", "/check", nil, &st)
			if errors.Is(err, role.ErrNotRunning) {
				var cfg node.WorkerConfig
				if cfg, err = w.Config(version); err != nil {
					return err
				}
				dir, err := os.MkdirTemp("", "skerry-check-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				cfg.Dir, cfg.CgroupParent, cfg.NoNetwork = dir, "skerry-check-"+fmt.Sprint(os.Getpid()), true
				if st.Runtimes, err = node.CheckMachine(cmd.Context(), cfg); err != nil {
					return err
				}
			} else if err != nil {
				return err
			}
			printRuntimes(cmd.OutOrStdout(), st.Runtimes)
			for _, r := range st.Runtimes {
				if r.Passed {
					return nil
				}
			}
			return skerry.Errorf(skerry.CodeUnsupported, "no runtime works on this machine").
				WithHint("see the fixes above; on Debian: apt install crun conmon")
		}}
	cmd.Flags().StringVar(&w.Common.Data, "data", role.DefaultData()+"/worker", "data directory of the worker, to ask it if it is running")
	w.addGuest(cmd.Flags())
	w.addContainerd(cmd.Flags())
	w.Common.AddLog(cmd.Flags())
	return cmd
}

func printRuntimes(out io.Writer, list []wire.RuntimeReport) {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "RUNTIME\tWORKS\tVERSION\tABILITIES")
	for _, r := range list {
		works := "yes"
		if !r.Passed {
			works = "no"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.Name, works, cmp.Or(r.Version, "-"), cmp.Or(strings.Join(r.Abilities, ","), "-"))
	}
	tw.Flush()
	for _, r := range list {
		if !r.Passed {
			fmt.Fprintf(out, "\n%s does not work: %s\n  cure: %s\n", r.Name, r.Cause, cmp.Or(r.Cure, "-"))
		} else if r.NoUserNamespaces() {
			fmt.Fprintf(out, "\n%s works, but without user namespaces (root in a container is root on the host): %s\n  cure: %s\n", r.Name,
				cmp.Or(r.Cause, "-"), cmp.Or(r.Cure, "-"))
		} else if r.SharedUsers() {
			fmt.Fprintf(out, "\n%s works; the containers of an organisation have the same users: %s\n", r.Name, r.Cause)
		} else if r.Cause != "" { // with a restriction, or by another program than was asked for
			fmt.Fprintf(out, "\n%s works: %s\n  cure: %s\n", r.Name, r.Cause, cmp.Or(r.Cure, "-"))
		}
	}
}

func cleanupCommand(version string) *cobra.Command {
	var w Flags
	var yes, purge bool
	cmd := &cobra.Command{Use: "cleanup", Short: "Remove everything that a worker left on this machine", Args: cobra.NoArgs,
		Long: `Stop every instance of a worker on this machine and remove its containers, cgroups, mounts, network namespaces and rules.
The agent must be stopped. --purge also removes its data directory: the worker then needs a new token to join again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := NeedRoot("worker cleanup"); err != nil {
				return err
			}
			if err := role.FromEnv(cmd); err != nil {
				return err
			}
			if !yes {
				return skerry.Errorf(skerry.CodeInvalid, "this stops every instance on the machine").WithHint("confirm with --yes")
			}
			if role.CallLocal(cmd.Context(), w.Common.Data, "GET", "/status", nil, &role.Status{}) == nil {
				return skerry.Errorf(skerry.CodeConflict, "the agent is running").
					WithHint("stop it first, for example with systemctl stop skerry-worker")
			}
			cfg, err := w.Config(version)
			if err != nil {
				return err
			}
			cfg.Join.Name = w.Join.Name
			if err := node.CleanMachine(cmd.Context(), cfg); err != nil {
				return err
			}
			if purge {
				if err := os.RemoveAll(cfg.Dir); err != nil {
					return err
				}
			}
			fmt.Fprintln(cmd.OutOrStdout(), "everything of the worker is removed from this machine"+
				map[bool]string{false: " except its data in " + cfg.Dir}[purge])
			return nil
		}}
	w.Common.Add(cmd.Flags(), "worker")
	cmd.Flags().StringVar(&w.Join.Name, "name", "", "name of the worker (default the name it joined with)")
	cmd.Flags().StringVar(&w.runDir, "run-dir", "", "the worker's value, if its data directory does not record it")
	cmd.Flags().StringVar(&w.cgroup, "cgroup-parent", "", "the worker's value, if its data directory does not record it")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove the data directory")
	return cmd
}
