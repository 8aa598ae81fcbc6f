package report

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Commands gives `skerry bench report` and `bench compare`.
func Commands() []*cobra.Command { return []*cobra.Command{showCommand(), compareCommand()} }

func showCommand() *cobra.Command {
	var out Output
	cmd := &cobra.Command{
		Use: "report FILE", Short: "Show a report again", Args: cobra.ExactArgs(1),
		Long:    "Show a report of a benchmark again.",
		Example: "  skerry bench report device.json -o html > device.html\n  skerry bench report budget.json -o markdown",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			r, err := Load(args[0])
			if err != nil {
				return err
			}
			return out.Write(cmd.Context(), r, cmd.OutOrStdout())
		},
	}
	out.Add(cmd.Flags())
	return cmd
}

func compareCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "compare OLD NEW", Short: "Compare two reports", Args: cobra.ExactArgs(2),
		Long: `Compare two reports of the same benchmark: list the figures of which the 95 % intervals do not overlap. The reports are from
different times, and the difference includes everything that disturbed the machine in one of them. Compare the ratios to the baseline
if you can.`,
		Example: "  skerry bench compare before.json after.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			was, err := Load(args[0])
			if err != nil {
				return err
			}
			is, err := Load(args[1])
			if err != nil {
				return err
			}
			if was.Kind != is.Kind {
				return skerry.Errorf(skerry.CodeInvalid, "the reports are of two kinds, %q and %q, and cannot be compared", was.Kind, is.Kind)
			}
			return WriteChanges(cmd.OutOrStdout(), was, is, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list unchanged figures")
	return cmd
}
