package device

import (
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
		Use: "report FILE", Short: "Show a report of bench runtime again", Args: cobra.ExactArgs(1),
		Example: "  skerry bench report device.json -o html > device.html",
		RunE: func(cmd *cobra.Command, args []string) error {
			write := outputs[output]
			if write == nil {
				return skerry.Errorf(skerry.CodeInvalid, "--output %q is not known", output).WithHint("use table, json, csv or html")
			}
			if err := drawn.Check(); err != nil {
				return err
			}
			r, err := readFile(args[0])
			if err != nil {
				return err
			}
			if err := drawn.Write(cmd.Context(), r.Drawings()); err != nil {
				return err
			}
			return write(r, cmd.OutOrStdout())
		},
	}
	drawn.Add(cmd.Flags(), "plots")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json, csv or html")
	return cmd
}

func compareCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "compare OLD NEW", Short: "Compare two reports of bench runtime", Args: cobra.ExactArgs(2),
		Long: `Compare two reports of bench runtime: list the cases in which the 95 % intervals of the means do not overlap. The reports are from
different times, and the difference includes everything that disturbed the machine in one of them. Compare losses against the bare
machine if you can.`,
		Example: "  skerry bench compare before.json after.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			was, err := readFile(args[0])
			if err != nil {
				return err
			}
			is, err := readFile(args[1])
			if err != nil {
				return err
			}
			return WriteChanges(cmd.OutOrStdout(), was, is, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list unchanged cases")
	return cmd
}

func readFile(name string) (*Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := ReadReport(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
