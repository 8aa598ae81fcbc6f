package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/profile"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

func profileCommand(version string) *cobra.Command {
	var w Flags
	rounds := 3
	cmd := &cobra.Command{Use: "profile", Short: "Measure the overhead of this machine's runtimes, for placement", Args: cobra.NoArgs,
		Long: `Measure how much processor time the same work (small requests over TCP, with file access) takes in each runtime of this
machine, relative to a container, and how many requests one processor answers per second of wall-clock time. The rate reveals
machines that are slow or that share their processors. The result is stored in the worker's data directory and reported to
the cluster, which uses it instead of published figures to choose runtimes and workers. Other load on the machine affects
the rate, but hardly the relative figures, which are of processor time. Takes less than a minute, or longer for emulated
machines. The program itself does the work in each runtime, so it must be static, as released builds and make build are.

Give the same flags for virtual machines as to the worker.`,
		Example: "  skerry worker profile --data /var/lib/skerry/worker",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := NeedRoot("worker profile"); err != nil {
				return err
			}
			if err := role.FromEnv(cmd); err != nil {
				return err
			}
			if rounds < 1 || rounds > 100 {
				return skerry.Errorf(skerry.CodeInvalid, "--rounds %d is not 1 to 100", rounds)
			}
			if err := role.MustDir(w.Common.Data); err != nil {
				return err
			}
			cfg, err := w.Config(version)
			if err != nil {
				return err
			}
			profile, reasons, err := takeProfile(cmd.Context(), cfg, rounds, func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), s) })
			if err != nil {
				return err
			}
			if err := worker.WriteProfile(w.Common.Data, profile); err != nil {
				return err
			}
			printProfile(cmd.OutOrStdout(), profile, reasons)
			// One that runs tells its cluster.
			err = role.CallLocal(cmd.Context(), w.Common.Data, "POST", "/check", nil, &role.Status{})
			if errors.Is(err, role.ErrNotRunning) {
				return nil
			}
			return err
		}}
	cmd.Flags().StringVar(&w.Common.Data, "data", role.DefaultData()+"/worker", "data directory of the worker")
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "how many times each runtime does the work; the median counts")
	w.addGuest(cmd.Flags())
	w.addContainerd(cmd.Flags())
	w.Common.AddLog(cmd.Flags())
	return cmd
}

// takeProfile measures beside a worker that may run, with drivers of its own.
func takeProfile(ctx context.Context, cfg node.WorkerConfig, rounds int, progress func(string)) (took map[string]wire.RuntimeProfile,
	reasons map[string]string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if err := profile.CheckStatic(self); err != nil { // before self-tests, which take their time
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "skerry-profile-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // tasks are other users
		return nil, nil, err
	}
	// It is given as much of the machine as an instance would be.
	parent := node.CgroupParent(cfg.Dir)
	cfg.Dir, cfg.CgroupParent = dir, path.Join(parent, "skerry-profile-"+fmt.Sprint(os.Getpid()))
	all, err := node.OpenDrivers(cfg)
	defer func() {
		for _, d := range all {
			if x, ok := d.(interface{ CleanUp(context.Context) error }); ok {
				err = errors.Join(err, x.CleanUp(context.WithoutCancel(ctx)))
			}
			err = errors.Join(err, d.Close())
		}
	}()
	if err != nil {
		return nil, nil, err
	}
	var works []runtime.Driver
	for _, d := range all {
		// What brings a system of its own, or is a module, does not run this program.
		if slices.Contains([]string{spec.RuntimeWasm, spec.RuntimeUnikernel, spec.RuntimeVM}, d.Name()) {
			continue
		}
		progress("self-test of runtime " + d.Name())
		if r := d.Check(ctx); r.Passed {
			works = append(works, d)
		}
	}
	return profile.Take(ctx, profile.Options{Drivers: works, Program: self, Dir: dir, Rounds: rounds, Progress: progress})
}

func printProfile(out io.Writer, profile map[string]wire.RuntimeProfile, reasons map[string]string) {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "RUNTIME\tPROCESSOR TIME\tREQUESTS A SECOND\tROUNDS APART\tOF A PROCESSOR")
	for _, name := range slices.Sorted(maps.Keys(profile)) {
		p := profile[name]
		fmt.Fprintf(tw, "%s\t%.2f x a container's\t%.4g\t%.0f %%\t%.0f %%\n", name, p.CPU, p.Rate, 100*p.Spread, 100*p.Share)
	}
	tw.Flush()
	if p := profile[spec.RuntimeOCI]; p.Spread > wire.MaxProfileSpread {
		fmt.Fprintf(out, "The rounds of containers are more than %.0f %% apart: how fast this machine is does not count.\n",
			100*wire.MaxProfileSpread)
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(out, "not measured: %s: %s\n", name, reasons[name])
	}
}
