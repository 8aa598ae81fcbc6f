package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Command gives `skerry sim`.
func Command() *cobra.Command {
	var seed uint64
	var seeds, until, parallel, tries int
	var length time.Duration
	var replay []string
	var save, keep, output string
	var trace, minimise bool
	cmd := &cobra.Command{
		Use: "sim", Short: "Test on a simulated fleet that nothing is lost", Args: cobra.NoArgs,
		Long: `Run the real cores of root, clusters and workers on a simulated network, clock and disk. Users change their minds, and processes,
machines, links (in one or both directions), disks and clocks fail. After every step it checks that nothing acknowledged is lost,
nothing is over-committed, no token goes back, no address is shared and the root sees no details of workers. When the faults have
ended, it checks that everything requested runs exactly once. It touches nothing on this machine except the scenarios that it saves.

Without --seed or --replay, it generates and runs --seeds scenarios from fresh seeds. A scenario that breaks an invariant is reported
at once and saved in the directory --keep as sim-SEED.txt, first in full and then minimised; the last lines list all of them again.
--seed N generates and runs one scenario, with the same steps each time; --until STEP ends it there and shows its events. --replay
FILE runs a scenario in its text form. The exit status is 1 if an invariant was broken.`,
		Example: `  skerry sim                                       # 200 fresh seeds
  skerry sim --for 1h                              # as many as an hour allows
  skerry sim --seed 4711 --trace
  skerry sim --seed 4711 --until 1200              # what happened up to that step
  skerry sim --seed 4711 --minimise --save small.txt
  skerry sim --replay small.txt`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "table" && output != "json" {
				return skerry.Errorf(skerry.CodeInvalid, "unknown output %q: table or json", output)
			}
			one := cmd.Flags().Changed("seed")
			if one && len(replay) > 0 {
				return skerry.Errorf(skerry.CodeInvalid, "--seed and --replay exclude each other")
			}
			p := &printer{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), json: output == "json"}
			if !one && len(replay) == 0 {
				if until > 0 || save != "" || trace {
					return skerry.Errorf(skerry.CodeInvalid, "--until, --trace and --save are for one scenario").WithHint("name it with --seed or --replay")
				}
				opt := SweepOptions{First: fresh(time.Now()), Seeds: seeds, Parallel: parallel, Minimise: tries, Progress: p.progress(seeds)}
				if length > 0 {
					opt.Seeds, opt.For = 0, length
				}
				if keep != "" {
					if err := os.MkdirAll(keep, 0o777); err != nil {
						return skerry.Errorf(skerry.CodeInvalid, "--keep: %v", err)
					}
					opt.Found = func(f Failure) string { return p.keep(keep, f) }
				}
				return p.sweep(Sweep(cmd.Context(), opt))
			}
			var list []named
			if one {
				list = append(list, named{fmt.Sprintf("seed %d", seed), Generate(seed)})
			}
			for _, file := range replay {
				s, err := readScenario(file)
				if err != nil {
					return err
				}
				list = append(list, named{file, s})
			}
			if save != "" && len(list) != 1 {
				return skerry.Errorf(skerry.CodeInvalid, "--save takes one scenario, not %d", len(list))
			}
			opt := RunOptions{Until: until}
			if trace || until > 0 {
				opt.Trace = p.trace
			}
			for _, n := range list {
				r := Run(n.s, opt)
				if minimise && r.Broken != nil {
					n.s = Minimise(n.s, opt, r.Broken.Invariant, tries, func(left, runs int) {
						fmt.Fprintf(p.err, "%d actions are left after %d runs\n", left, runs)
					})
				}
				if save != "" {
					if err := os.WriteFile(save, []byte(n.s.String()), 0o666); err != nil {
						return fmt.Errorf("save the scenario: %w", err)
					}
				}
				p.result(n, r, minimise)
			}
			return p.verdict()
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&seed, "seed", 0, "make and run the scenario of this seed")
	f.IntVar(&seeds, "seeds", 200, "number of fresh seeds to run")
	f.DurationVar(&length, "for", 0, "run fresh seeds for this long instead")
	f.IntVar(&until, "until", 0, "end after this step, and show the events")
	f.StringSliceVar(&replay, "replay", nil, "run the scenario in this file (- is standard input)")
	f.BoolVar(&trace, "trace", false, "show the events")
	f.BoolVar(&minimise, "minimise", false, "find the smallest scenario that breaks the same invariant")
	f.IntVar(&tries, "tries", 1000, "largest number of runs for --minimise")
	f.StringVar(&save, "save", "", "write the scenario to this file")
	f.StringVar(&keep, "keep", ".", "directory for scenarios of failing fresh seeds (empty: do not save)")
	f.IntVar(&parallel, "parallel", runtime.GOMAXPROCS(0), "scenarios at the same time")
	f.StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// fresh makes a first seed of the time, so that no two days try the same.
func fresh(now time.Time) uint64 { return uint64(now.UnixMilli()) * 1000 }

type named struct {
	name string
	s    *Scenario
}

func readScenario(file string) (*Scenario, error) {
	if file == "-" {
		return ParseScenario(os.Stdin)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := ParseScenario(f)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s: %v", file, err)
	}
	return s, nil
}

// printer tells people or programs what came of scenarios.
type printer struct {
	out, err io.Writer
	json     bool
	broken   int
}

func (p *printer) progress(of int) func(int, int) {
	return func(done, failed int) {
		if done%50 == 0 && done != of {
			fmt.Fprintf(p.err, "%d seeds, %d failed\n", done, failed)
		}
	}
}

// keep writes the scenario of a seed that failed where it outlives the run, and says so. It gives the file, or nothing when that cannot
// be written: the seed and the reason are told, and the others go on.
func (p *printer) keep(dir string, f Failure) string {
	file := filepath.Join(dir, fmt.Sprintf("sim-%d.txt", f.Seed))
	if err := replace(file, f.Scenario); err != nil {
		fmt.Fprintf(p.err, "seed %d breaks %s, and is not kept: %v\n", f.Seed, f.Broken.Invariant, err)
		return ""
	}
	fmt.Fprintf(p.err, "seed %d breaks %s: %s\n", f.Seed, f.Broken.Invariant, file)
	return file
}

// replace writes a file in one piece: whoever is killed meanwhile leaves the old or the new one.
func replace(file, text string) error {
	if err := os.WriteFile(file+".new", []byte(text), 0o666); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (p *printer) trace(step int, at time.Duration, text string) {
	fmt.Fprintf(p.err, "%7d %12s %s\n", step, at.Round(time.Microsecond), text)
}

func (p *printer) encode(v any) {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}

func (p *printer) sweep(r Swept) error {
	p.broken = len(r.Failures)
	if p.json {
		p.encode(r)
		return p.verdict()
	}
	for _, f := range r.Failures {
		fmt.Fprintf(p.out, "seed %d: %v\nreplay it with `skerry sim --seed %d --until %d`; a smaller scenario that does it, too:\n\n%s\n", f.Seed, f.Broken, f.Seed, f.Broken.Step, indent(f.Scenario))
	}
	fmt.Fprintf(p.out, "%d seeds from %d, %d actions, %d changes acknowledged, %d steps, %s simulated; %d failed\n",
		r.Seeds, r.First, r.Actions, r.Acked, r.Steps, r.Simulated.Round(time.Minute), len(r.Failures))
	fmt.Fprintf(p.out, "the slowest fleet had all that was asked for %s after its last fault (seed %d)\n", r.Converged, r.ConvergedSeed)
	for _, f := range r.Failures {
		where := "which is kept nowhere"
		if f.File != "" {
			where = "kept in " + f.File
		}
		fmt.Fprintf(p.out, "failed: seed %d, %s, %s\n", f.Seed, f.Broken.Invariant, where)
	}
	return p.verdict()
}

func (p *printer) result(n named, r Result, small bool) {
	if r.Broken != nil {
		p.broken++
	}
	if p.json {
		p.encode(r)
		return
	}
	if r.Broken != nil {
		fmt.Fprintf(p.out, "%s: %v\n", n.name, r.Broken)
		if small {
			fmt.Fprintf(p.out, "\n%s\n", indent(n.s.String()))
		}
		return
	}
	fmt.Fprintf(p.out, "%s: all held for %d steps, %s simulated, %d changes acknowledged; what was asked for ran %s after the last fault\n",
		n.name, r.Steps, r.Simulated.Round(time.Second), r.Acknowledged, r.Converged)
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") + "\n"
}

func (p *printer) verdict() error {
	if p.broken > 0 {
		return skerry.Errorf(skerry.CodeInternal, "%d scenarios broke an invariant", p.broken).WithHint("docs/SIMULATOR.md says how to find out why")
	}
	return nil
}
