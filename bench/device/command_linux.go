package device

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/node"
)

// Command gives `skerry bench runtime`.
func Command() *cobra.Command {
	var opt Options
	var classes []string
	saved := report.Saved{Resumes: true}
	cmd := &cobra.Command{
		Use: "runtime", Short: "Measure the cost of each kind of isolation on this device", Args: cobra.NoArgs,
		Long: `Measure the cost of each kind of isolation on this device: the same programs on the machine itself ("bare"), in namespaces and a
cgroup made by hand ("manual"), in every runtime that passes its self-test, and as jobs of a complete Skerry on this device
("orchestrated"), which separates the cost of orchestration from that of isolation. All take turns in each round, after one round
that is not counted. The report contains medians with their intervals, and how many times the bare machine's figure each is. Cases
that could not run are listed with the reason. It also shows the benefit of isolation: which system calls of the host one program
reaches from each place (with strace).

The programs are sysbench, stress-ng, OpenSSL, 7-Zip, x265, POV-Ray, fio and bonnie++ if they are installed, and kernels in C, which
gcc compiles on the device, and clang, if installed, to a module for runtime wasm. --out saves the report after each round: Ctrl-C
loses no complete round, and --resume continues from the file. The results are those of an idle machine only if it was idle; the
report says when it was not. It needs root.`,
		Example: "  skerry bench runtime --quick --rounds 3\n  skerry bench runtime --only os,ipc --in oci --ablation --out os.json\n  skerry bench runtime --resume os.json --out os.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return skerry.Errorf(skerry.CodeForbidden, "bench runtime makes namespaces and cgroups and needs root")
			}
			err := saved.Check()
			if err != nil {
				return err
			}
			if opt.Rounds < 1 || opt.Rounds > 1000 {
				return skerry.Errorf(skerry.CodeInvalid, "--rounds %d is not 1 to 1000", opt.Rounds)
			}
			if opt.Containerd.Classes, err = node.ParseContainerdClasses(classes); err != nil {
				return err
			}
			return saved.Run(cmd, func(ctx context.Context, m report.Measuring) (*report.Report, error) {
				opt.Measuring = m
				return Run(ctx, opt)
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&opt.Rounds, "rounds", 15, "number of runs of each case in each place")
	fs.BoolVar(&opt.Quick, "quick", false, "a tenth of the work of each case")
	fs.StringSliceVar(&opt.Only, "only", nil,
		"only these groups (cpu, memory, disk, os, ipc, net, sweep, start, footprint, reach) or cases; sweep is run only if named")
	fs.StringSliceVar(&opt.Places, "in", nil, "only in these places beside bare: manual, orchestrated, or names of runtimes")
	fs.BoolVar(&opt.Ablation, "ablation", false, "add one ingredient of a container at a time: ns, cgroup, oci-unfiltered")
	fs.StringVar(&opt.Dir, "dir", "", "directory for tools and files, on the disk to measure (default a temporary one)")
	fs.StringVar(&opt.Machines.Kernel, "guest-kernel", "", "kernel of virtual machines, as for skerry worker")
	fs.StringVar(&opt.Machines.Firecracker, "firecracker", "", "program of Firecracker, measured as a place of its own, as for skerry worker")
	fs.StringVar(&opt.Machines.CloudHypervisor, "cloud-hypervisor", "",
		"program of Cloud Hypervisor, measured as a place of its own, as for skerry worker")
	fs.StringVar(&opt.Containerd.Socket, "containerd", "", "socket of a containerd to measure, as for skerry worker")
	fs.StringVar(&opt.Containerd.Shim, "containerd-shim", "", "shim to use with it, as for skerry worker")
	fs.StringVar(&opt.Containerd.Binary, "containerd-binary", "", "OCI runtime for its shim, as for skerry worker")
	fs.StringArrayVar(&classes, "containerd-class", nil, "`class` of containers to measure, as for skerry worker; may be repeated")
	fs.BoolVar(&opt.Machines.Emulate, "emulate", false, "also measure emulated machines, which are many times slower")
	fs.StringVar(&opt.Meter, "meter", "", "command that prints the machine's energy use so far in joules (default: the machine's own counters)")
	fs.StringVar(&opt.MeterCSV, "meter-csv", "", "file written by a power meter: lines of seconds since 1970 and watts")
	saved.Add(fs, "round")
	return cmd
}
