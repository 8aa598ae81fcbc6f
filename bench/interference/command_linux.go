package interference

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
)

// Command gives `skerry bench interference`.
func Command() *cobra.Command {
	var opt Options
	saved := report.Saved{Resumes: true}
	cmd := &cobra.Command{
		Use: "interference", Short: "Measure how neighbours slow a service down", Args: cobra.NoArgs,
		Long: `Measure how neighbours slow a service down. An image service, or another one that --service names, answers requests that arrive at
fixed rates. It runs in a process with limits ("bare") and in every runtime that passes its self-test, alone and next to a load on
processors, memory bandwidth, cache, disk or network. The report contains the latency from the time when a request was due, the
service's own share of it, and the machine's figures for quotas, queues and pressure, together with the figures of the thesis that
the image service follows. Each answer is compared with the known one; a different one counts as a failure. The rates of the other
services are those of the thesis times a factor that makes their cost about equal.

By default it runs the matrix of the thesis, with its times: seven and a half minutes a row. --cpu, --rates, --pin, --interference
and --neighbour choose rows, and --quick shortens them. The service gets processors of its own, apart from the generator's; rows that
need more processors than there are, are listed as not run. With --find it searches for the rate at which each place is full: fewer
than 99 % of the requests succeed, answers arrive at less than 97 % of the rate, or p99 exceeds --p99. --out saves the report after
each row, and --resume continues from a report, without the rows that ran and were valid. It compiles services and neighbour from
this source tree, so run it in a checkout, or pass the programs; it needs root.`,
		Example: "  skerry bench interference --quick --in oci --cpu 0.5 --rates 2,4\n  skerry bench interference --quick --service database,video --in bare,oci --cpu 0.5 --interference 0,1\n  skerry bench interference --quick --cpu 1 --interference 0,1 --pin none,both --neighbour cpu,cache --rates 8 --out i.json\n  skerry bench interference --quick --cpu 0.5 --rates 4 --find\n  skerry bench interference --resume i.json --quick --cpu 1 --interference 0,1 --pin none,both --neighbour cpu,cache --rates 8 --out i.json -o html > i.html",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return skerry.Errorf(skerry.CodeForbidden, "bench interference makes namespaces and cgroups and needs root")
			}
			err := saved.Check()
			if err != nil {
				return err
			}
			if opt.P99 <= 0 {
				return skerry.Errorf(skerry.CodeInvalid, "--p99 %v cannot be", opt.P99)
			}
			return saved.Run(cmd, func(ctx context.Context, m report.Measuring) (*report.Report, error) {
				opt.Measuring = m
				return Run(ctx, opt)
			})
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&opt.Quick, "quick", false, "2 s of warm-up, 6 s of load, 1 s to settle, instead of 30, 300 and 120")
	fs.StringSliceVar(&opt.Choice.Services, "service", nil, "services to measure: image, database, inference, video, mqtt (default image)")
	fs.StringSliceVar(&opt.Places, "in", nil, "only in these places: bare, or names of runtimes")
	fs.Float64SliceVar(&opt.Choice.CPU, "cpu", nil, "limits of the service, in processors, with 1 GiB of memory for each")
	fs.Float64SliceVar(&opt.Choice.Rates, "rates", nil, "requests per second")
	fs.StringSliceVar(&opt.Choice.Pin, "pin", nil, "services with processors of their own: none, both (in every place) or one (only in machines)")
	fs.Float64SliceVar(&opt.Choice.Interference, "interference", nil, "limits of the neighbour, in processors; 0 means no neighbour")
	fs.StringSliceVar(&opt.Choice.Neighbours, "neighbour", nil,
		"resources that the neighbour loads: cpu, memory, cache, disk, network (default cpu)")
	fs.BoolVar(&opt.Find, "find", false, "search for the rate at which each place is full")
	fs.DurationVar(&opt.P99, "p99", defaultP99, "99th percentile of the latency above which a place counts as full")
	fs.StringVar(&opt.Program, "service-program", "", "program of the services (default: compiled from examples/services)")
	fs.StringVar(&opt.Neighbour, "neighbour-program", "", "program of the neighbours (default: compiled from bench/neighbour)")
	fs.StringVar(&opt.Machines.Kernel, "guest-kernel", "", "kernel of virtual machines, as for skerry worker")
	fs.BoolVar(&opt.Machines.Emulate, "emulate", false, "also measure emulated machines, which are many times slower")
	saved.Add(fs, "row")
	return cmd
}
