package interference

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench"
)

// Command gives `skerry bench interference`.
func Command() *cobra.Command {
	var o Options
	saved := bench.Saved[Report]{Read: ReadReport, Ways: map[string]func(*Report, io.Writer) error{"table": (*Report).WriteTable, "json": (*Report).WriteJSON, "csv": (*Report).WriteCSV, "html": (*Report).WriteHTML},
		Drawings: (*Report).Drawings, SVG: "svg"}
	cmd := &cobra.Command{
		Use: "interference", Short: "Measure what neighbours cost a service", Args: cobra.NoArgs,
		Long: `Measure what neighbours cost a service: an image service, or another that --service names, answers requests that come at fixed rates, in a process with limits
("bare") and in every runtime that passes its self-test, alone and beside a load that takes processors, memory bandwidth, cache,
disk or network as it does. The report tells latency from when a request was due, what of it the service itself takes, and what
the machine tells of quotas, queues and pressure, beside the figures of the thesis that the image service follows. Each answer is compared with the one that
is known; another one is no success. The rates of the other services are those of the thesis times a number that has them cost about as much.

Without choices it runs the matrix of the thesis, with its times, seven and a half minutes a row. --cpu, --rates, --pin,
--interference and --neighbour choose rows, and --quick shortens. The service gets processors of its own beside the one of the generator: rows that
need more than there are are listed as not run. With --find it searches the rate at which each place is full: less than 99 %
succeed, answers come at less than 97 % of the rate, or p99 is above --p99. --out keeps the report after each row, and --resume goes on
from one, without the rows that ran and were valid. It compiles services and neighbour from this source
tree, so run it in a checkout, or give it the programs; it needs root.`,
		Example: "  skerry bench interference --quick --in oci --cpu 0.5 --rates 2,4\n  skerry bench interference --quick --service database,video --in bare,oci --cpu 0.5 --interference 0,1\n  skerry bench interference --quick --cpu 1 --interference 0,1 --pin none,both --neighbour cpu,cache --rates 8 --out i.json\n  skerry bench interference --quick --cpu 0.5 --rates 4 --find\n  skerry bench interference --resume i.json --quick --cpu 1 --interference 0,1 --pin none,both --neighbour cpu,cache --rates 8 --out i.json -o html > i.html",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return skerry.Errorf(skerry.CodeForbidden, "bench interference makes namespaces and cgroups and needs root")
			}
			err := saved.Check()
			if err != nil {
				return err
			}
			if o.P99 <= 0 {
				return skerry.Errorf(skerry.CodeInvalid, "--p99 %v cannot be", o.P99)
			}
			return saved.Run(cmd, func(ctx context.Context, m bench.Measuring[Report]) (*Report, error) {
				o.Resume, o.Keep, o.Progress = m.Resume, m.Keep, m.Progress
				return Run(ctx, o)
			}, nil)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.Quick, "quick", false, "2 s of warm-up, 6 s of load, 1 s to settle, instead of 30, 300 and 120")
	fs.StringSliceVar(&o.Choice.Services, "service", nil, "what answers: image, database, inference, video, mqtt (default image)")
	fs.StringSliceVar(&o.Places, "in", nil, "only in these places: bare, or names of runtimes")
	fs.Float64SliceVar(&o.Choice.CPU, "cpu", nil, "limits of the service, in processors, with 1 GiB of memory for each")
	fs.Float64SliceVar(&o.Choice.Rates, "rates", nil, "requests per second")
	fs.StringSliceVar(&o.Choice.Pin, "pin", nil, "which services get processors of their own: none, both (every place) or one (machines alone)")
	fs.Float64SliceVar(&o.Choice.Interference, "interference", nil, "limits of the neighbour, in processors; 0 is none")
	fs.StringSliceVar(&o.Choice.Neighbours, "neighbour", nil, "what it takes: cpu, memory, cache, disk, network (default cpu)")
	fs.BoolVar(&o.Find, "find", false, "search the rate at which each place is full")
	fs.DurationVar(&o.P99, "p99", defaultP99, "time that an answer in a hundred may take longer than, before a place is called full")
	fs.StringVar(&o.Program, "service-program", "", "program of the services (default: compiled from examples/services)")
	fs.StringVar(&o.Neighbour, "neighbour-program", "", "program of the neighbours (default: compiled from bench/neighbour)")
	fs.StringVar(&o.Machines.Kernel, "guest-kernel", "", "kernel of virtual machines, as for skerry worker")
	fs.BoolVar(&o.Machines.Emulate, "emulate", false, "take machines that are emulated, many times slower, too")
	saved.Add(fs, "row")
	return cmd
}
