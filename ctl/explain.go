package ctl

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func (a *app) explainCommand() *cobra.Command {
	var format string
	var schema bool
	cmd := &cobra.Command{Use: "explain INSTANCE|APP/SERVICE|FIELD",
		Short: "Show why an instance was placed where it is, or what a field of manifests means", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeLogs,
		Long: `Show why an instance was placed where it is, or why it could not be placed: the decision of the role you ask, why
candidates were ruled out and what would help. Of a FIELD of manifests, such as spec.services.probes, show what it means and
which fields are in it. With --schema, print the JSON Schema of manifests.`,
		Example: "  skerry explain shop/front\n  skerry explain spec.services.probes.readiness\n  skerry explain --schema > application.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(spec.ApplicationSchema())
				return err
			}
			if len(args) == 1 && isField(args[0]) {
				return explainField(cmd.OutOrStdout(), args[0])
			}
			if len(args) == 0 {
				return skerry.Errorf(skerry.CodeInvalid, "an instance or a service is missing").WithHint("write `skerry explain INSTANCE` or `skerry explain APP/SERVICE`")
			}
			return a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
				list, err := a.findInstances(cmd.Context(), client, args[0])
				if err != nil {
					return err
				}
				var out []view.Explanation
				for _, i := range list {
					e, err := client.Explain(cmd.Context(), i.ID)
					if err != nil {
						return err
					}
					out = append(out, e)
				}
				if len(out) == 1 {
					if done, err := printValue(cmd.OutOrStdout(), format, out[0]); done {
						return err
					}
				} else if done, err := printValue(cmd.OutOrStdout(), format, map[string]any{"items": out}); done {
					return err
				}
				for n := range out {
					if n > 0 {
						fmt.Fprintln(cmd.OutOrStdout())
					}
					printExplanation(cmd.OutOrStdout(), &out[n], time.Now())
				}
				return nil
			})(cmd, args)
		}}
	outputFlag(cmd, &format)
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of manifests")
	return cmd
}

func printExplanation(out io.Writer, why *view.Explanation, now time.Time) {
	inst := &why.Instance
	pairs := newPairs(out)
	pairs.add("Instance", string(inst.ID))
	pairs.add("Service", inst.Service.String())
	pairs.add("State", strings.Join(nonEmpty(string(inst.State), phaseOf(inst)), ", "))
	pairs.add("Cluster", string(inst.Cluster))
	pairs.add("Worker", string(inst.Worker))
	pairs.add("Reason", inst.Reason)
	pairs.add("Instances", scaleText(why.Scale))
	if len(why.Tried) > 0 {
		pairs.add("Said no", strings.Join(why.Tried, ", "))
	}
	if !why.RetryAt.IsZero() && why.RetryAt.After(now) {
		pairs.add("Next try", until(now, why.RetryAt))
	}
	if !why.Deadline.IsZero() && (inst.State == skerry.Requested || inst.State == skerry.ClusterScheduled) {
		pairs.add("Wanted by", until(now, why.Deadline))
	}
	pairs.flush()
	printReasons(out, "Why it is not placed", inst.Why)
	printClasses(out, why.Classes)
	printRuntimes(out, why.Runtimes, len(why.Classes) > 0)
	decision := why.Decision
	if decision == nil {
		return
	}
	fmt.Fprintf(out, "\nDecision of the %s, %s ago, by policy %s:\n", decision.Tier, age(now, decision.At), decision.Policy)
	if decision.Chosen != "" {
		fmt.Fprintf(out, "  chosen %s of %d considered\n", clean(decision.Chosen), decision.Considered)
	} else {
		fmt.Fprintf(out, "  none of %d considered\n", decision.Considered)
	}
	if decision.Because != "" {
		fmt.Fprintf(out, "  it was moved: %s\n", clean(decision.Because))
	}
	printReasons(out, "", decision.Why)
	for n, u := range decision.Users {
		switch {
		case u.Unknown != "":
			fmt.Fprintf(out, "  user %d: %s\n", n, clean(u.Unknown))
		case u.Probes > 0:
			fmt.Fprintf(out, "  user %d: located by round trips from %d workers, with a residual of %.1f ms\n", n, u.Probes, u.Residual)
		}
	}
	for _, p := range decision.Plugins {
		switch {
		case p.Skipped != "":
			fmt.Fprintf(out, "  plugin %s: skipped: %s\n", clean(p.Plugin), clean(p.Skipped))
		default:
			fmt.Fprintf(out, "  plugin %s: scored %d candidates and ruled %d out\n", clean(p.Plugin), len(p.Scores), len(p.Out))
		}
	}
	if len(decision.Top) == 0 {
		return
	}
	fmt.Fprintln(out)
	t := table{head: []string{"  CANDIDATE", "SCORE", "VERDICT"}}
	for _, c := range decision.Top {
		verdict, score := "fits", fmt.Sprintf("%.6g", c.Score)
		switch {
		case c.Chosen:
			verdict = "chosen"
		case c.Out != nil:
			verdict, score = "ruled out: "+c.Out.Text, ""
		}
		if c.Suspicion != "" {
			verdict += "; " + c.Suspicion
		}
		t.add("", []string{"  " + c.Name, score, verdict})
	}
	t.print(out, false, true)
}

// printClasses tells how each class of workers stands to the service now.
func printClasses(out io.Writer, list []wire.ClassVerdict) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(out, "\nThe site's workers now:")
	for _, verdict := range list {
		name := strings.Join(nonEmpty(verdict.Class.Arch, strings.Join(verdict.Class.Runtimes, "+"), strings.Join(verdict.Class.Devices, "+")),
			" ")
		if verdict.Area != "" {
			name += ", area " + verdict.Area
		}
		switch {
		case verdict.Fits == 1:
			fmt.Fprintf(out, "  %s: 1 of %d fits, score %.4g\n", clean(name), verdict.Workers, verdict.Best)
		case verdict.Fits > 1:
			fmt.Fprintf(out, "  %s: %d of %d fit, scores %.4g to %.4g\n", clean(name), verdict.Fits, verdict.Workers, verdict.Least, verdict.Best)
		default:
			fmt.Fprintf(out, "  %s: none of %d fits\n", clean(name), verdict.Workers)
		}
		for _, r := range verdict.Out {
			fmt.Fprintf(out, "    %s: %s\n", r.What, clean(whyText(r)))
			if r.Sole > 0 && r.Hint != "" {
				fmt.Fprintf(out, "      would allow one more: %s\n", clean(r.Hint))
			} else if r.Hint != "" {
				fmt.Fprintf(out, "      hint: %s\n", clean(r.Hint))
			}
		}
	}
}

// printRuntimes tells what each runtime costs the service, and why it has not those that it has not. Who asks a cluster
// is told which of them its workers have.
func printRuntimes(out io.Writer, list []spec.RuntimeChoice, cluster bool) {
	rated := slices.ContainsFunc(list, func(choice spec.RuntimeChoice) bool { return choice.Saturation > 0 }) // by what it is expected to bear
	grid := table{head: []string{"  RUNTIME", "ISOLATION", "MEMORY OVERHEAD", "WORKERS", "VERDICT"}}
	if rated {
		grid.head = slices.Insert(grid.head, 4, "SATURATES AT", "HEAD-ROOM")
	}
	counted := cluster || slices.ContainsFunc(list, func(choice spec.RuntimeChoice) bool { return choice.Workers > 0 })
	var sources []string
	for _, choice := range list {
		source, _, _ := strings.Cut(choice.Source, " ")
		verdict, workers := "suitable", ""
		switch {
		case choice.Chosen && choice.Crowded != "" && choice.HeadRoom != nil:
			verdict = "chosen for its headroom, although " + choice.Crowded
		case choice.Chosen && choice.Crowded != "":
			verdict = "chosen, although " + choice.Crowded
		case choice.Chosen:
			verdict = "chosen"
		case choice.Unasked:
			continue
		case choice.Out != "":
			verdict = "ruled out: " + choice.Out
		case counted && choice.Workers == 0:
			verdict = "suitable, but no worker has it"
		case choice.Crowded != "":
			verdict = "suitable, but " + choice.Crowded
		}
		if choice.Workers > 0 {
			workers = strconv.Itoa(choice.Workers)
		}
		row := []string{"  " + choice.Runtime, string(choice.Isolation), choice.Memory.String() + ", " + source, workers, clean(verdict)}
		if rated {
			at, left := "not known", ""
			if choice.Saturation > 0 && choice.HeadRoom != nil {
				kind, _, _ := strings.Cut(choice.Processor.Source, " ")
				at, left = fmt.Sprintf("%.3g/s, %s", choice.Saturation, strings.TrimSuffix(kind, ":")), fmt.Sprintf("%.0f %%", 100**choice.HeadRoom)
				sources = append(sources, fmt.Sprintf("  %s takes %.2f times as long for the same work as a container; %s", choice.Runtime,
					choice.Processor.CPU, choice.Processor.Source))
			}
			row = slices.Insert(row, 4, at, left)
		}
		grid.add("", row)
	}
	if len(grid.rows) == 0 {
		return
	}
	fmt.Fprintln(out)
	grid.print(out, false, true)
	if rated {
		fmt.Fprintln(out, "  A request is assumed to need as much processor time as one of the reference image service, and at most latencyObjective.")
	}
	for _, line := range sources {
		fmt.Fprintln(out, clean(line))
	}
}

// printReasons lists reasons, each with how many candidates it ruled out and what would help.
func printReasons(w io.Writer, title string, list []wire.Reason) {
	if len(list) == 0 {
		return
	}
	if title != "" {
		fmt.Fprintf(w, "\n%s:\n", title)
	}
	told := map[wire.Reason]bool{}
	for _, r := range list {
		if told[r] {
			continue
		}
		told[r] = true
		fmt.Fprintf(w, "  %s: %s\n", r.What, clean(whyText(r)))
		if r.Hint != "" {
			fmt.Fprintf(w, "    hint: %s\n", clean(r.Hint))
		}
	}
}
