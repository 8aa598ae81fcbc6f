package device

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
)

// outputs of a report.
var outputs = map[string]func(*Report, io.Writer) error{"table": (*Report).WriteTable, "json": (*Report).WriteJSON,
	"csv": (*Report).WriteCSV, "html": (*Report).WriteHTML}

func reportCommand() *cobra.Command {
	var output string
	var drawn report.Plots
	cmd := &cobra.Command{
		Use: "report FILE", Short: "Show a report again", Args: cobra.ExactArgs(1),
		Long:    "Show a report of bench budget, network, schedule or runtime again.",
		Example: "  skerry bench report device.json -o html > device.html\n  skerry bench report budget.json -o markdown",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := drawn.Check(); err != nil {
				return err
			}
			r, of, err := readFile(args[0])
			if err != nil {
				return err
			}
			if r != nil {
				return show(cmd, output, drawn, r, report.Ways(), r.Drawings)
			}
			return show(cmd, output, drawn, of, outputs, of.Drawings)
		},
	}
	drawn.Add(cmd.Flags(), "plots")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, markdown, json, csv or html")
	return cmd
}

// show writes a report as it is asked for, and its plots.
func show[R any](cmd *cobra.Command, output string, drawn report.Plots, r *R, ways map[string]func(*R, io.Writer) error,
	drawings func() map[string]string) error {
	write := ways[output]
	if write == nil {
		return skerry.Errorf(skerry.CodeInvalid, "--output %q is not known of this report", output).
			WithHint("use table, json, csv or html, and of others than bench runtime markdown")
	}
	if err := drawn.Write(cmd.Context(), drawings()); err != nil {
		return err
	}
	return write(r, cmd.OutOrStdout())
}

func compareCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "compare OLD NEW", Short: "Compare two reports", Args: cobra.ExactArgs(2),
		Long: `Compare two reports of bench budget, network, schedule or runtime: list the figures of which the 95 % intervals do not overlap. The
reports are from different times, and the difference includes everything that disturbed the machine in one of them. Compare the ratios
to the baseline if you can.`,
		Example: "  skerry bench compare before.json after.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			was, before, err := readFile(args[0])
			if err != nil {
				return err
			}
			is, after, err := readFile(args[1])
			switch {
			case err != nil:
				return err
			case was != nil && is != nil && was.Kind == is.Kind:
				return report.WriteChanges(cmd.OutOrStdout(), was, is, all)
			case before != nil && after != nil:
				return WriteChanges(cmd.OutOrStdout(), before, after, all)
			}
			return skerry.Errorf(skerry.CodeInvalid, "the reports are of two kinds and cannot be compared")
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list unchanged figures")
	return cmd
}

// readFile reads a report of the form that is one for all benchmarks, or one of this package; the other one is nil.
func readFile(name string) (*report.Report, *Report, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	var head struct{ Schema string }
	if json.Unmarshal(data, &head) == nil && head.Schema == report.Schema {
		r, err := report.Read(bytes.NewReader(data))
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return r, nil, err
	}
	r, err := ReadReport(bytes.NewReader(data))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return nil, r, nil
}
