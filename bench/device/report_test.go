package device

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/quiet"
	"skerry.dev/skerry/bench/report"
)

func TestStats(t *testing.T) {
	s := report.Summarise([]float64{9, 10, 11})
	if s.Mean != 10 || math.Abs(s.RSD-10) > 1e-9 || s.N != 3 || s.Low < 9 || s.Low >= 10 || s.High > 11 || s.High <= 10 {
		t.Errorf("%+v", s)
	}
	if one := report.Summarise([]float64{7}); one.Mean != 7 || one.RSD != 0 || one.Low != 7 || one.High != 7 {
		t.Errorf("%+v", one)
	}
	// The sign of the RISC-V paper: a loss is less than 0, whatever the direction.
	bare := []float64{100, 101, 99, 100, 100, 101}
	slow := []float64{200, 202, 198, 200, 200, 202}
	if o := report.Compare(Lower, bare, slow); math.Abs(o.Percent+50) > 1e-9 || !o.Significant {
		t.Errorf("%+v", o)
	}
	if o := report.Compare(Higher, bare, slow); math.Abs(o.Percent-100) > 1e-9 || !o.Significant {
		t.Errorf("%+v", o)
	}
	// A difference within what the samples vary may be chance; so is anything told by two rounds.
	if o := report.Compare(Lower, []float64{100, 120, 90, 110, 95}, []float64{110, 100, 105, 98, 104}); o.Significant {
		t.Errorf("%+v", o)
	}
	if o := report.Compare(Lower, bare[:2], slow[:2]); o.Significant {
		t.Errorf("%+v", o)
	}
	if report.Compare(Lower, nil, slow) != nil || report.Compare(Lower, []float64{0}, []float64{1}) != nil {
		t.Error("there is nothing to compare")
	}
	if v := report.Relative([]*report.Overhead{{Percent: -50}, nil, {Percent: 100}}); math.Abs(v-1) > 1e-9 {
		t.Errorf("twice as slow and twice as fast is %v", v)
	}
}

// sample is a report of one case in two places.
func sample(bare, oci []float64) *Report {
	r := &Report{Schema: Schema, Rounds: 5, Done: len(bare), Machine: map[string]string{"kernel": "6.1"}, Places: []Told{{Name: Bare}, {Name: "oci"}, {Name: "gvisor", Skip: "runsc is not installed"}},
		Cases:  []Measured{{Case: Case{ID: "os.fork", Group: "os", Class: System, Unit: "us", Better: Lower}, Results: map[string]*Result{Bare: {Samples: bare}, "oci": {Samples: oci}}}},
		Starts: []Start{{Place: "oci", Samples: []float64{20, 22}}}}
	r.fold()
	return r
}

func TestReport(t *testing.T) {
	r := sample([]float64{100, 101, 99, 100, 100}, []float64{200, 202, 198, 200, 200})
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	back, err := ReadReport(&out)
	if err != nil {
		t.Fatal(err)
	}
	for name, has := range map[string]string{"table": "200 ±0.7% (-50.0%)", "csv": "os.fork,os,system,oci,us,lower,2,202,,,,,\n", "html": "-50.0 %"} {
		out.Reset()
		if err := outputs[name](back, &out); err != nil || !strings.Contains(out.String(), has) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
	if p := back.Profile; len(p) != 1 || p[0].Place != "oci" || math.Abs(p[0].Times["os"]-2) > 1e-9 || p[0].Start != 21 {
		t.Errorf("%+v", p)
	}
	if len(r.Noise) != 0 {
		t.Error(r.Noise)
	}
	if noisy := sample([]float64{100, 150, 60, 100, 140}, []float64{1, 1, 1, 1, 1}); len(noisy.Noise) != 1 {
		t.Error(noisy.Noise)
	}
	for _, bad := range []string{"", "{}", `{"schema":"skerry.bench.runtime/9"}`, `{"schema":"skerry.bench.runtime/1","done":-1}`} {
		if _, err := ReadReport(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is a report", bad)
		}
	}
}

func TestPlots(t *testing.T) {
	drawings := sample([]float64{100, 101, 99, 100, 100}, []float64{200, 202, 198, 200, 200}).Drawings()
	for name, has := range map[string]string{"os-1": "<title>oci: 0.5</title>", "start": "<title>start: 21</title>"} {
		if text := drawings[name]; !strings.Contains(text, has) || xml.Unmarshal([]byte(text), new(struct{ XMLName xml.Name })) != nil {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	if len(drawings) != 2 {
		t.Error(len(drawings))
	}
}

func TestCompareReports(t *testing.T) {
	was, is := sample([]float64{100, 101, 99, 100, 100}, []float64{200, 202, 198, 200, 200}), sample([]float64{100, 100, 99, 101, 100}, []float64{100, 101, 99, 100, 100})
	is.Machine["kernel"] = "6.12"
	var out bytes.Buffer
	if err := WriteChanges(&out, was, is, false); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "+100.0%") || !strings.Contains(text, "1 of 2 figures changed") || !strings.Contains(text, `kernel was "6.1", is "6.12"`) {
		t.Error(text)
	}
}

// Each case has a name, a direction and a place in the report of its own.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	s := size{seconds: 1, scale: 10, cores: 2, dir: "/data"}
	for _, c := range Catalogue() {
		if seen[c.ID] || c.Title == "" || c.Unit == "" || c.Better != Lower && c.Better != Higher || c.Class != Application && c.Class != System || c.parse == nil || len(c.args(s)) == 0 {
			t.Errorf("%+v", c)
		}
		if _, ok := known[c.Tool]; !ok && c.Tool != toolKernels {
			t.Errorf("%s: nobody knows where %s is", c.ID, c.Tool)
		}
		seen[c.ID] = true
	}
	if _, err := choose(Catalogue(), []string{"disc"}); err == nil || !strings.Contains(err.Error(), "disc") {
		t.Error(err)
	}
	if list, err := choose(Catalogue(), []string{"os.fork", "os", "start"}); err != nil || len(list) < 10 {
		t.Error(len(list), err)
	}
}

// What is said to have been published is in the documents, for both of their machines.
func TestBeside(t *testing.T) {
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range Catalogue() {
		table, row := published000(c.ID)
		if table == "" {
			continue
		}
		n++
		if list := beside(set, c.ID); len(list) != 2 || !strings.HasPrefix(told(list), "RISC-V ") {
			t.Errorf("%s: table %s, row %s: %+v", c.ID, table, row, list)
		}
	}
	if n < 25 {
		t.Errorf("%d cases have something beside them", n)
	}
	if text := told(beside(set, "os.stress-ng.context")); text != "RISC-V -21.4%, ARM64 -0.3% (000 table 3)" {
		t.Error(text)
	}
}

// A disturbed round stays in the samples, and counts in nothing that follows from them.
func TestDisturbedRound(t *testing.T) {
	r := sample([]float64{100, 101, 900, 100, 100}, []float64{200, 202, 4000, 200, 200})
	r.Quiet, r.Disturbed = &quiet.Record{Limit: 0.3}, []quiet.Mark{{Round: 3, By: "others used 1.90 processors: cc1"}}
	r.fold()
	oci := r.Cases[0].Results["oci"]
	if len(oci.Samples) != 5 || oci.Summary.N != 4 || oci.Summary.Mean != 200.5 || math.Abs(oci.Overhead.Percent+50) > 1 {
		t.Errorf("%d samples give %+v, %+v", len(oci.Samples), oci.Summary, oci.Overhead)
	}
	text, want := strings.Join(r.remarks(), "\n"), "Round 3 was disturbed and does not count: others used 1.90 processors: cc1"
	if !strings.Contains(text, want) {
		t.Errorf("it remarks %q", text)
	}
	r.Done = 2
	if r.trim(); len(r.Disturbed) != 0 {
		t.Errorf("a round that is not there is disturbed: %+v", r.Disturbed)
	}
}

// The commands read reports of either form, and compare those of one kind.
func TestCommandsReadEitherForm(t *testing.T) {
	dir := t.TempDir()
	keep := func(name string, write func(io.Writer) error) string {
		file := filepath.Join(dir, name)
		if err := report.ReplaceFile(file, write); err != nil {
			t.Fatal(err)
		}
		return file
	}
	device := keep("device.json", sample([]float64{100, 101, 99}, []float64{200, 202, 198}).WriteJSON)
	made := report.New("budget", "Goals", "")
	made.Add(made.Figure("", "agent.mem", ""), 21)
	made.Rounds++
	budget := keep("budget.json", made.WriteJSON)
	run := func(cmd *cobra.Command, args ...string) (string, error) {
		var out bytes.Buffer
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(args)
		err := cmd.Execute()
		return out.String(), err
	}
	for _, c := range []struct {
		args []string
		want string
	}{{[]string{device}, "os.fork"}, {[]string{budget}, "agent.mem"}, {[]string{budget, "-o", "markdown"}, "| agent.mem | 21 |"}} {
		if out, err := run(reportCommand(), c.args...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%v shows %q, %v", c.args, out, err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{{[]string{device, device}, "0 of 2 figures changed"}, {[]string{budget, budget}, "0 of 1 figures changed"}} {
		if out, err := run(compareCommand(), c.args...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%v compares as %q, %v", c.args, out, err)
		}
	}
	if _, err := run(compareCommand(), device, budget); err == nil {
		t.Error("reports of two kinds are compared")
	}
	if _, err := run(reportCommand(), device, "-o", "markdown"); err == nil {
		t.Error("a report of runtimes is shown as what it has no form for")
	}
}
