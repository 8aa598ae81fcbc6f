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
	var o string
	var schema bool
	cmd := &cobra.Command{Use: "explain INSTANCE|APP/SERVICE", Short: "Show why an instance was placed where it is, or why it could not be placed", Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeLogs,
		Long:    "Show why an instance was placed where it is, or why it could not be placed: the decision of the role you ask, why\ncandidates were ruled out and what would help. With --schema, print the JSON Schema of manifests.",
		Example: "  skerry explain shop/front\n  skerry explain --schema > application.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(spec.ApplicationSchema())
				return err
			}
			if len(args) == 0 {
				return skerry.Errorf(skerry.CodeInvalid, "an instance or a service is missing").WithHint("write `skerry explain INSTANCE` or `skerry explain APP/SERVICE`")
			}
			return a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
				list, err := a.findInstances(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				var out []view.Explanation
				for _, i := range list {
					e, err := c.Explain(cmd.Context(), i.ID)
					if err != nil {
						return err
					}
					out = append(out, e)
				}
				if len(out) == 1 {
					if done, err := printValue(cmd.OutOrStdout(), o, out[0]); done {
						return err
					}
				} else if done, err := printValue(cmd.OutOrStdout(), o, map[string]any{"items": out}); done {
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
	outputFlag(cmd, &o)
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of manifests")
	return cmd
}

func printExplanation(w io.Writer, e *view.Explanation, now time.Time) {
	i := &e.Instance
	p := newPairs(w)
	p.add("Instance", string(i.ID))
	p.add("Service", i.Service.String())
	p.add("State", strings.Join(nonEmpty(string(i.State), phaseOf(i)), ", "))
	p.add("Cluster", string(i.Cluster))
	p.add("Worker", string(i.Worker))
	p.add("Reason", i.Reason)
	p.add("Instances", scaleText(e.Scale))
	if len(e.Tried) > 0 {
		p.add("Said no", strings.Join(e.Tried, ", "))
	}
	if !e.RetryAt.IsZero() && e.RetryAt.After(now) {
		p.add("Next try", until(now, e.RetryAt))
	}
	if !e.Deadline.IsZero() && (i.State == skerry.Requested || i.State == skerry.ClusterScheduled) {
		p.add("Wanted by", until(now, e.Deadline))
	}
	p.flush()
	printReasons(w, "Why it is not placed", i.Why)
	printClasses(w, e.Classes)
	printRuntimes(w, e.Runtimes, len(e.Classes) > 0)
	d := e.Decision
	if d == nil {
		return
	}
	fmt.Fprintf(w, "\nDecision of the %s, %s ago, by policy %s:\n", d.Tier, age(now, d.At), d.Policy)
	if d.Chosen != "" {
		fmt.Fprintf(w, "  chosen %s of %d considered\n", clean(d.Chosen), d.Considered)
	} else {
		fmt.Fprintf(w, "  none of %d considered\n", d.Considered)
	}
	if d.Because != "" {
		fmt.Fprintf(w, "  it was moved: %s\n", clean(d.Because))
	}
	printReasons(w, "", d.Why)
	for n, u := range d.Users {
		switch {
		case u.Unknown != "":
			fmt.Fprintf(w, "  user %d: %s\n", n, clean(u.Unknown))
		case u.Probes > 0:
			fmt.Fprintf(w, "  user %d: located by round trips from %d workers, with a residual of %.1f ms\n", n, u.Probes, u.Residual)
		}
	}
	for _, p := range d.Plugins {
		switch {
		case p.Skipped != "":
			fmt.Fprintf(w, "  plugin %s: skipped: %s\n", clean(p.Plugin), clean(p.Skipped))
		default:
			fmt.Fprintf(w, "  plugin %s: scored %d candidates and ruled %d out\n", clean(p.Plugin), len(p.Scores), len(p.Out))
		}
	}
	if len(d.Top) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := table{head: []string{"  CANDIDATE", "SCORE", "VERDICT"}}
	for _, c := range d.Top {
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
	t.print(w, false, true)
}

// printClasses tells how each class of workers stands to the service now.
func printClasses(w io.Writer, list []wire.ClassVerdict) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w, "\nThe site's workers now:")
	for _, k := range list {
		name := strings.Join(nonEmpty(k.Class.Arch, strings.Join(k.Class.Runtimes, "+"), strings.Join(k.Class.Devices, "+")), " ")
		if k.Area != "" {
			name += ", area " + k.Area
		}
		switch {
		case k.Fits == 1:
			fmt.Fprintf(w, "  %s: 1 of %d fits, score %.4g\n", clean(name), k.Workers, k.Best)
		case k.Fits > 1:
			fmt.Fprintf(w, "  %s: %d of %d fit, scores %.4g to %.4g\n", clean(name), k.Fits, k.Workers, k.Least, k.Best)
		default:
			fmt.Fprintf(w, "  %s: none of %d fits\n", clean(name), k.Workers)
		}
		for _, r := range k.Out {
			fmt.Fprintf(w, "    %s: %s\n", r.What, clean(whyText(r)))
			if r.Sole > 0 && r.Hint != "" {
				fmt.Fprintf(w, "      would allow one more: %s\n", clean(r.Hint))
			} else if r.Hint != "" {
				fmt.Fprintf(w, "      hint: %s\n", clean(r.Hint))
			}
		}
	}
}

// printRuntimes tells what each runtime costs the service, and why it has not those that it has not. Who asks a cluster is told which of them
// its workers have.
func printRuntimes(w io.Writer, list []spec.RuntimeChoice, cluster bool) {
	rated := slices.ContainsFunc(list, func(r spec.RuntimeChoice) bool { return r.Saturation > 0 }) // by what it is expected to bear
	t := table{head: []string{"  RUNTIME", "ISOLATION", "MEMORY OVERHEAD", "WORKERS", "VERDICT"}}
	if rated {
		t.head = slices.Insert(t.head, 4, "SATURATES AT", "HEAD-ROOM")
	}
	counted := cluster || slices.ContainsFunc(list, func(r spec.RuntimeChoice) bool { return r.Workers > 0 })
	var sources []string
	for _, r := range list {
		source, _, _ := strings.Cut(r.Source, " ")
		verdict, workers := "suitable", ""
		switch {
		case r.Chosen && r.Crowded != "" && r.HeadRoom != nil:
			verdict = "chosen for its headroom, although " + r.Crowded
		case r.Chosen && r.Crowded != "":
			verdict = "chosen, although " + r.Crowded
		case r.Chosen:
			verdict = "chosen"
		case r.Unasked:
			continue
		case r.Out != "":
			verdict = "ruled out: " + r.Out
		case counted && r.Workers == 0:
			verdict = "suitable, but no worker has it"
		case r.Crowded != "":
			verdict = "suitable, but " + r.Crowded
		}
		if r.Workers > 0 {
			workers = strconv.Itoa(r.Workers)
		}
		row := []string{"  " + r.Runtime, string(r.Isolation), r.Memory.String() + ", " + source, workers, clean(verdict)}
		if rated {
			at, left := "not known", ""
			if r.Saturation > 0 && r.HeadRoom != nil {
				kind, _, _ := strings.Cut(r.Processor.Source, " ")
				at, left = fmt.Sprintf("%.3g/s, %s", r.Saturation, strings.TrimSuffix(kind, ":")), fmt.Sprintf("%.0f %%", 100**r.HeadRoom)
				sources = append(sources, fmt.Sprintf("  %s takes %.2f times as long for the same work as a container; %s", r.Runtime, r.Processor.CPU, r.Processor.Source))
			}
			row = slices.Insert(row, 4, at, left)
		}
		t.add("", row)
	}
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintln(w)
	t.print(w, false, true)
	if rated {
		fmt.Fprintln(w, "  A request is assumed to need as much processor time as one of the reference image service, and at most latencyObjective.")
	}
	for _, line := range sources {
		fmt.Fprintln(w, clean(line))
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
