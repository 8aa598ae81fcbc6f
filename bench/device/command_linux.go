package device

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench"
)

// Commands gives `skerry bench runtime`, `bench compare` and `bench report`, and what tasks run.
func Commands() []*cobra.Command {
	return []*cobra.Command{runtimeCommand(), compareCommand(), reportCommand(), workCommandLine()}
}

func runtimeCommand() *cobra.Command {
	var o Options
	saved := bench.Saved[Report]{Read: ReadReport, Ways: outputs, Drawings: (*Report).Drawings, SVG: "plots"}
	cmd := &cobra.Command{
		Use: "runtime", Short: "Measure what each kind of isolation costs on this device", Args: cobra.NoArgs,
		Long: `Measure what each kind of isolation costs on this device: the same programs on the machine itself ("bare"), in namespaces
and a cgroup made by hand ("manual"), in every runtime that passes its self-test, and as jobs of a whole Skerry on this device
("orchestrated"), so that the cost of orchestration is seen beside that of isolation. All take turns in each round, after one
round that is not counted. The report tells mean, relative standard deviation, and the loss against the bare machine, with
whether that may be chance; what could not run is listed with the reason. Beside the cost it tells what isolation buys: which
system calls of the host one program reaches from each place (with strace).

The programs are sysbench, stress-ng, OpenSSL, 7-Zip, x265, POV-Ray, fio and bonnie++ where they are installed, and kernels in C, which gcc compiles on
the device, and clang, where it is, to a module for runtime wasm. --out keeps the report after each round: Ctrl-C loses no complete round, and --resume goes on from there. The
results are those of an idle machine only if it was idle; the report says when it was not. It needs root.`,
		Example: "  skerry bench runtime --quick --rounds 3\n  skerry bench runtime --only os,ipc --in oci --ablation --out os.json\n  skerry bench runtime --resume os.json --out os.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return skerry.Errorf(skerry.CodeForbidden, "bench runtime makes namespaces and cgroups and needs root")
			}
			err := saved.Check()
			if err != nil {
				return err
			}
			if o.Rounds < 1 || o.Rounds > 1000 {
				return skerry.Errorf(skerry.CodeInvalid, "--rounds %d is not 1 to 1000", o.Rounds)
			}
			return saved.Run(cmd, func(ctx context.Context, m bench.Measuring[Report]) (*Report, error) {
				o.Resume, o.Keep, o.Progress = m.Resume, m.Keep, m.Progress
				return Run(ctx, o)
			}, func(_ context.Context, r *Report) error {
				if r.Done == 0 {
					return skerry.Errorf(skerry.CodeUnavailable, "no round was completed")
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&o.Rounds, "rounds", 15, "how often each case runs in each place")
	fs.BoolVar(&o.Quick, "quick", false, "a tenth of the work of each case")
	fs.StringSliceVar(&o.Only, "only", nil, "only these groups (cpu, memory, disk, os, ipc, net, start, footprint, reach) or cases")
	fs.StringSliceVar(&o.Places, "in", nil, "only in these places beside bare: manual, orchestrated, or names of runtimes")
	fs.BoolVar(&o.Ablation, "ablation", false, "add one ingredient of a container at a time: ns, cgroup, oci-unfiltered")
	fs.StringVar(&o.Dir, "dir", "", "directory for tools and files, on the disk to measure (default a temporary one)")
	fs.StringVar(&o.Machines.Kernel, "guest-kernel", "", "kernel of virtual machines, as for skerry worker")
	fs.StringVar(&o.Containerd.Socket, "containerd", "", "socket of a containerd to measure, as for skerry worker")
	fs.StringVar(&o.Containerd.Shim, "containerd-shim", "", "shim that it is to use, as for skerry worker")
	fs.StringVar(&o.Containerd.Binary, "containerd-binary", "", "OCI runtime that its shim is to call, as for skerry worker")
	fs.BoolVar(&o.Machines.Emulate, "emulate", false, "take machines that are emulated, many times slower, too")
	fs.StringVar(&o.Meter, "meter", "", "command that prints the joules that the machine has used until now (default its own counters)")
	fs.StringVar(&o.MeterCSV, "meter-csv", "", "file that a power meter writes: lines of seconds since 1970 and watts")
	saved.Add(fs, "round")
	return cmd
}
