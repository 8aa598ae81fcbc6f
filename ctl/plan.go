package ctl

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func (a *app) planCommand() *cobra.Command {
	var files []string
	var how foreign
	var output string
	cmd := &cobra.Command{Use: "plan FILE... | plan -f FILE", Short: "Show where instances would be placed, without changing anything",
		Long:    "Show where the instances of manifests would be placed, without changing anything. At the root, clusters are asked in the\norder in which they would be offered the instances; at a cluster, the plan names workers. Round trips to users are not\nmeasured and plugins are not asked: both take part only in actual placements.\n\nExits with 2 if an instance could not be placed.",
		Example: "  skerry plan -f shop.yaml\n  skerry plan -f shop.yaml -o json",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			docs, err := readDocuments(append(files, args...), cmd.InOrStdin())
			if err == nil {
				how.options.Namespace = a.namespace()
				docs, err = how.native(cmd, docs)
			}
			if err != nil {
				return err
			}
			var plans []view.Plan
			for _, d := range docs {
				p, err := client.Plan(cmd.Context(), d.inNamespace(a.namespace()))
				if err != nil {
					return d.at(err)
				}
				plans = append(plans, p)
			}
			missing := 0
			for n := range plans {
				missing += len(withoutPlace(&plans[n]))
			}
			done, err := printValue(cmd.OutOrStdout(), output, map[string]any{"items": plans})
			if err != nil {
				return err
			}
			for n := 0; n < len(plans) && !done; n++ {
				if n > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				a.printPlan(cmd.OutOrStdout(), &plans[n])
			}
			if missing == 1 {
				return notPlaced(skerry.Errorf(skerry.CodeUnavailable, "1 instance could not be placed"))
			} else if missing > 1 {
				return notPlaced(skerry.Errorf(skerry.CodeUnavailable, "%d instances could not be placed", missing))
			}
			return nil
		})}
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "file, directory or - for standard input; may be repeated")
	how.add(cmd)
	outputFlag(cmd, &output)
	return cmd
}

// placeOfCopy is where a plan has an instance, or "".
func placeOfCopy(plan *view.Plan, copy *view.PlannedCopy) string {
	if plan.Tier == string(wire.TierRoot) {
		return copy.Cluster
	}
	return copy.Worker
}

// withoutPlace lists the instances of a plan that would find none.
func withoutPlace(plan *view.Plan) (out []*view.PlannedCopy) {
	for n := range plan.List {
		if copy := &plan.List[n]; placeOfCopy(plan, copy) == "" {
			out = append(out, copy)
		}
	}
	return out
}

func (a *app) printPlan(out io.Writer, plan *view.Plan) {
	fmt.Fprintf(out, "app/%s, as the %s sees it now:\n", a.short(plan.Key), plan.Tier)
	grid := table{head: []string{"  SERVICE", "WHERE", "SCORE", "WHAT"}}
	for n := range plan.List {
		copy := &plan.List[n]
		where, score, what := placeOfCopy(plan, copy), "", "new"
		if copy.Kept {
			what = "stays: " + string(copy.Instance)
		}
		if copy.Resized != "" {
			what = "stays, resized (" + copy.Resized + "): " + string(copy.Instance)
		}
		if copy.Copies > 0 {
			what += fmt.Sprintf(", %d copies", copy.Copies)
		}
		if d := copy.Decision; d != nil && len(d.Top) > 0 && where != "" {
			score = fmt.Sprintf("%.4g", d.Top[0].Score)
		}
		if where == "" {
			where, what = "-", "no place"
		}
		grid.add("", []string{"  " + copy.Service, where, score, what})
	}
	grid.print(out, false, true)
	for _, lost := range plan.Lost {
		fmt.Fprintln(out, "  "+lost)
	}
	told := map[string]bool{}
	for _, copy := range withoutPlace(plan) {
		if copy.Decision != nil && !told[copy.Service] {
			told[copy.Service] = true
			printReasons(out, "Why "+copy.Service+" could not be placed", copy.Decision.Why)
		}
	}
}
