package main

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
	"skerry.dev/skerry/bench/device"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/worker"
)

func workerProfile() *cobra.Command {
	var w workerFlags
	rounds := 3
	cmd := &cobra.Command{Use: "profile", Short: "Measure what the runtimes of this machine cost, for placement", Args: cobra.NoArgs,
		Long: `Measure how much processor time the same work (small requests over TCP, with files) takes in each runtime of this machine,
as a multiple of what it takes in a container, and how many requests one processor answers in a second by the clock, which tells a machine
that is slow, or that is not given its processors for all of the time, from others. The result is kept in the worker's data directory; the
worker tells its cluster, which then goes by it, in place of published figures, where it chooses runtimes and places what they run.
What else runs on the machine matters little to multiples, which are of processor time, and does matter to the rate. Takes less
than a minute; machines that are emulated take longer. The program itself does the work in each runtime, so it has to be a static one, as those
that are released and those of make build are.

Give the flags that the worker is given for its machines.`,
		Example: "  skerry worker profile --data /var/lib/skerry/worker",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := needRoot("worker profile"); err != nil {
				return err
			}
			if err := fromEnv(cmd); err != nil {
				return err
			}
			if rounds < 1 || rounds > 100 {
				return skerry.Errorf(skerry.CodeInvalid, "--rounds %d is not 1 to 100", rounds)
			}
			if err := mustDir(w.common.data); err != nil {
				return err
			}
			cfg, err := w.config()
			if err != nil {
				return err
			}
			profile, reasons, err := takeProfile(cmd.Context(), cfg, rounds, func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), s) })
			if err != nil {
				return err
			}
			if err := worker.WriteProfile(w.common.data, profile); err != nil {
				return err
			}
			printProfile(cmd.OutOrStdout(), profile, reasons)
			// One that runs tells its cluster.
			if err := callLocal(cmd.Context(), w.common.data, "POST", "/check", nil, &status{}); err != nil && !errors.Is(err, errNotRunning) {
				return err
			}
			return nil
		}}
	cmd.Flags().StringVar(&w.common.data, "data", defaultData()+"/worker", "data directory of the worker")
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "how often each runtime does the work; the median counts")
	w.addGuest(cmd.Flags())
	w.addContainerd(cmd.Flags())
	w.common.addLog(cmd.Flags())
	return cmd
}

// takeProfile measures beside a worker that may run, with drivers of its own.
func takeProfile(ctx context.Context, cfg node.WorkerConfig, rounds int, progress func(string)) (profile map[string]skerry.RuntimeProfile, reasons map[string]string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if err := device.CheckStatic(self); err != nil { // before self-tests, which take their time
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
		if slices.Contains([]string{skerry.RuntimeWasm, skerry.RuntimeUnikernel, skerry.RuntimeVM}, d.Name()) {
			continue
		}
		progress("self-test of runtime " + d.Name())
		if r := d.Check(ctx); r.Passed {
			works = append(works, d)
		}
	}
	return device.TakeProfile(ctx, device.ProfileOptions{Drivers: works, Program: self, Dir: dir, Rounds: rounds, Progress: progress})
}

func printProfile(out io.Writer, profile map[string]skerry.RuntimeProfile, reasons map[string]string) {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "RUNTIME\tPROCESSOR TIME\tREQUESTS A SECOND\tROUNDS APART\tOF A PROCESSOR")
	for _, name := range slices.Sorted(maps.Keys(profile)) {
		p := profile[name]
		fmt.Fprintf(tw, "%s\t%.2f x a container's\t%.4g\t%.0f %%\t%.0f %%\n", name, p.CPU, p.Rate, 100*p.Spread, 100*p.Share)
	}
	tw.Flush()
	if p := profile[skerry.RuntimeOCI]; p.Spread > skerry.MaxProfileSpread {
		fmt.Fprintf(out, "The rounds of containers are more than %.0f %% apart: how fast this machine is does not count.\n", 100*skerry.MaxProfileSpread)
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(out, "not measured: %s: %s\n", name, reasons[name])
	}
}
