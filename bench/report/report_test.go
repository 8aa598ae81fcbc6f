package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/quiet"
)

// sample is a report of two places in six rounds, of which others disturbed the last, and of a goal.
func sample() *Report {
	r := New("network", "Ways <there>", "--quick")
	r.Quiet = &quiet.Record{Limit: 0.3, Waited: 12, For: []quiet.Use{{Name: "cc1", Seconds: 20}}}
	r.Machine = map[string]string{"cpu": "fast | slow", "kernel": "6.1"}
	r.Baseline, r.Places = "direct", []Place{{Name: "direct", Text: "the wire"}, {Name: "plain"}, {Name: "kernel", Skip: "no WireGuard"}}
	for round := range 6 {
		x := float64(10 + round%3)
		for i, v := range []float64{x, x / 2} {
			f := r.Figure("mtu", "stream", r.Places[i].Name)
			f.Unit, f.Better = "Gbit/s", Higher
			if round == 5 {
				v = 1000
			}
			r.Add(f, v)
			r.Add(f, math.NaN())
		}
		r.Add(r.Figure("", "agent.mem", ""), 20+x/10)
		r.Rounds++
	}
	goal := 25.0
	f := r.Find("", "agent.mem", "")
	f.Unit, f.Goal, f.About = "MiB", &goal, "PSS"
	late := r.Figure("", "agent.mem.p99", "")
	late.Rounds, late.Samples, late.Quantile = f.Rounds, f.Samples, 0.99
	r.Figure("", "agent.disk", "").Skip = "--quick leaves it out"
	r.Disturbed, r.Unfinished = []Mark{{Round: 6, By: "others used 1.90 processors: cc1"}}, false
	r.Fold()
	return r
}

func TestFold(t *testing.T) {
	r := sample()
	plain := r.Find("mtu", "stream", "plain")
	if len(plain.Samples) != 6 || plain.Value.N != 5 || plain.Value.Value != 5.5 || plain.Value.Low < 5 || plain.Value.High > 6 {
		t.Errorf("of %d samples the value is %+v", len(plain.Samples), plain.Value)
	}
	if a := plain.Against; a == nil || a.Times != 0.5 || a.Low != 0.5 || a.High != 0.5 || !a.Significant {
		t.Errorf("half is told as %+v", a)
	}
	if direct := r.Find("mtu", "stream", "direct"); direct.Against != nil {
		t.Errorf("the baseline is compared with itself: %+v", direct.Against)
	}
	mem, late := r.Find("", "agent.mem", ""), r.Find("", "agent.mem.p99", "")
	if !mem.Met() || late.Value.Value <= mem.Value.Value || late.Met() {
		t.Errorf("the memory is %+v, met %v, and its p99 %+v, met %v", mem.Value, mem.Met(), late.Value, late.Met())
	}
	// Two rounds tell nothing for sure; and rounds that only one has do not count.
	r.Disturbed = nil
	for round := range 4 {
		r.drop(Mark{Round: round + 3})
	}
	r.Fold()
	if a := plain.Against; a.Times != 0.5 || a.Significant {
		t.Errorf("of two rounds it is sure: %+v", a)
	}
	plain.Rounds = []int{7, 8}
	r.Fold()
	if plain.Against != nil {
		t.Errorf("without a round in common it is %+v", plain.Against)
	}
}

// The interval of a median is that of the samples, and narrow where they are.
func TestInterval(t *testing.T) {
	if low, high := interval([]float64{7}, 0.5); low != 7 || high != 7 {
		t.Errorf("of one value the interval is %v to %v", low, high)
	}
	values := []float64{1, 9, 10, 10, 10, 11, 11, 12, 12, 13, 100}
	if low, high := interval(values, 0.5); low < 9 || low > 11 || high < 11 || high > 13 {
		t.Errorf("the interval is %v to %v", low, high)
	}
	if v := Quantile([]float64{4, 1, 3, 2}, 0.5); v != 2.5 || !math.IsNaN(Median(nil)) {
		t.Errorf("the median of 1 to 4 is %v, of nothing %v", v, Median(nil))
	}
}

func TestOutputs(t *testing.T) {
	r := sample()
	for name, wants := range map[string][]string{
		"table": {"NAME    UNIT    BETTER  DIRECT       PLAIN\n", "5.5 [5, 6] (0.50x)", "≤ 25  yes  PSS", "Not run: kernel: no WireGuard",
			"Not measured: agent.disk: --quick leaves it out", "It waited 12 s until the machine was quiet, for cc1 (20.0 s of a processor).",
			"Disturbed, and does not count: round 6: others used 1.90 processors: cc1", "skerry bench network --quick, "},
		"markdown": {"| stream | Gbit/s | higher | 11 [10, 12] | 5.5 [5, 6] (0.50x) |", "- Disturbed, and does not count: round 6: others"},
		"csv":      {"mtu,stream,plain,Gbit/s,higher,6,1000,true\n", "mtu,stream,plain,Gbit/s,higher,1,5,false\n"},
		"html":     {"<h1>Ways &lt;there&gt;</h1>", "<td>5.5 [5, 6] (0.50x)</td>", "<svg"},
	} {
		var out bytes.Buffer
		if err := ways()[name](r, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s has no %q:\n%s", name, want, out.String())
			}
		}
	}
	for name, drawing := range r.Drawings() {
		if err := xml.Unmarshal([]byte(drawing), new(struct{ XMLName xml.Name })); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.Baseline = ""
	r.Fold()
	if d := r.Drawings()["mtu-stream"]; !strings.Contains(d, "<title>stream: 5.5</title>") {
		t.Errorf("without a baseline it draws %s", d)
	}
	for round := range 5 {
		r.Disturbed = append(r.Disturbed, Mark{Round: round + 1, By: "others"})
	}
	r.Fold()
	if text := strings.Join(r.Remarks(), "\n"); !strings.Contains(text, "mtu stream in plain, agent.mem, agent.mem.p99: all their rounds were disturbed") {
		t.Errorf("without a quiet round it remarks %q", text)
	}
	r.Quiet = nil
	if text := strings.Join(r.Remarks(), "\n"); !strings.Contains(text, "Nobody knows whether the machine was quiet") {
		t.Errorf("of a report from before it remarks %q", text)
	}
}

// What follows from samples is made of them, whatever a file says.
func TestRead(t *testing.T) {
	r := sample()
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	back, err := Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := back.WriteJSON(&out); err != nil || out.String() != text {
		t.Errorf("what is read is not what was written: %v\n%s\n%s", err, out.String(), text)
	}
	lie := strings.Replace(text, `"value": 5.5`, `"value": 99`, 1)
	if back, err := Read(strings.NewReader(lie)); err != nil || back.Find("mtu", "stream", "plain").Value.Value != 5.5 {
		t.Errorf("a file's own median is taken, %v", err)
	}
	for _, bad := range []string{"", "{}", `{"schema":"skerry.bench/9"}`, `{"schema":"skerry.bench/1","figures":[null]}`,
		`{"schema":"skerry.bench/1","figures":[{"name":"a","samples":[1]}]}`, `{"schema":"skerry.bench/1","figures":[{"name":"a","quantile":7}]}`,
		`{"schema":"skerry.bench/1","figures":[{"name":"a"},{"name":"a"}]}`, `{"schema":"skerry.bench/1","rounds":-1}`} {
		if _, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is a report", bad)
		}
	}
}

func TestChanges(t *testing.T) {
	was, is := sample(), sample()
	f := is.Find("mtu", "stream", "plain")
	for i := range f.Samples {
		f.Samples[i] *= 2
	}
	is.Machine["kernel"] = "6.12"
	is.Fold()
	var out bytes.Buffer
	if err := WriteChanges(&out, was, is, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mtu stream in plain", "+100.0%", "1 of 4 figures changed", `kernel was "6.1", is "6.12"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it has no %q:\n%s", want, out.String())
		}
	}
}

func FuzzRead(f *testing.F) {
	var out bytes.Buffer
	if err := sample().WriteJSON(&out); err != nil {
		f.Fatal(err)
	}
	f.Add(out.String())
	f.Add(`{"schema":"skerry.bench/1","rounds":3,"baseline":"a","figures":[{"name":"a","place":"b","samplesOfRounds":[1],"samples":[0]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Read(strings.NewReader(text))
		if err != nil || len(text) > 1<<14 {
			return
		}
		for name, write := range ways() {
			if err := write(r, &out); err != nil && !isNumber(err) {
				t.Errorf("%s: %v", name, err)
			}
			if name == "html" && strings.Contains(out.String(), "<script") {
				t.Error("it got a script into the page")
			}
			out.Reset()
		}
		if err := WriteChanges(&out, r, r, true); err != nil {
			t.Error(err)
		}
		next := New(r.Kind, "", r.Options)
		next.Version, next.Machine = r.Version, r.Machine
		if err := next.Continue(Measuring{Resume: r}); err != nil {
			t.Error(err)
		}
	})
}

// isNumber reports whether something is no number that JSON has: a quotient of extremes may be infinite.
func isNumber(err error) bool {
	_, ok := err.(*json.UnsupportedValueError)
	return ok
}

// A round in which others came is measured again, so often and no more; what is kept says so.
func TestRepeat(t *testing.T) {
	for _, c := range []struct{ disturbed, tries, repeated, marked int }{{0, 1, 0, 0}, {1, 2, 1, 0}, {2, 3, 2, 0}, {3, 3, 2, 1}} {
		r, kept := New("network", "", ""), 0
		m := Measuring{Keep: func(r *Report) error { kept++; return nil }}
		tries := 0
		measure := func() (string, error) {
			tries++
			r.Add(r.Figure("a", "x", "p"), float64(tries))
			r.Add(r.Figure("a", "y", "q"), 7)
			r.Fail("a", "p", "broke")
			if tries <= c.disturbed {
				return "others came", nil
			}
			return "", nil
		}
		if err := r.Part(t.Context(), m, "a", "p", measure); err != nil {
			t.Fatal(err)
		}
		r.Rounds++
		r.Finish(t.Context(), m)
		x, y := r.Find("a", "x", "p"), r.Find("a", "y", "q")
		if tries != c.tries || r.Repeated != c.repeated || len(r.Disturbed) != c.marked || kept != 1 {
			t.Errorf("%+v: measured %d times, %d repeated, marks %v, kept %d times", c, tries, r.Repeated, r.Disturbed, kept)
		}
		// Of the part its last samples alone are left; what is of another place stays.
		if len(x.Samples) != 1 || x.Samples[0] != float64(tries) || len(y.Samples) != tries || len(r.Failed) != 1 {
			t.Errorf("%+v: the samples are %v and %v, failed %v", c, x.Samples, y.Samples, r.Failed)
		}
		if (x.Value == nil) != (c.marked > 0) || y.Value == nil {
			t.Errorf("%+v: the values are %+v and %+v", c, x.Value, y.Value)
		}
	}
	// An error leaves nothing of its round.
	r, broke := New("network", "", ""), errors.New("broke")
	err := r.Round(t.Context(), Measuring{}, func() error { r.Add(r.Figure("a", "x", "p"), 1); return broke })
	if !errors.Is(err, broke) || r.Rounds != 0 || r.measured() {
		t.Errorf("%v, %d rounds, %+v", err, r.Rounds, r.Figures)
	}
	if err := r.WarmUp(t.Context(), Measuring{}, func() error { r.Add(r.Figure("a", "x", "p"), 1); return nil }); err != nil || r.measured() {
		t.Errorf("%v, %+v", err, r.Figures)
	}
}

// What is continued is the same measurement; what stayed disturbed in it is measured again.
func TestContinue(t *testing.T) {
	was := New("lab", "", "--quick")
	for _, place := range []string{"p", "q"} {
		was.Add(was.Figure("a", "x", place), 1)
	}
	was.Places, was.Rounds, was.Seconds = []Place{{Name: "p"}, {Name: "q"}}, 1, 100
	was.Disturbed = []Mark{{Round: 1, Group: "a", Place: "q", By: "others"}}
	r := New("lab", "", "--quick")
	r.Places = []Place{{Name: "p", Text: "new"}}
	if err := r.Continue(Measuring{Resume: was}); err != nil {
		t.Fatal(err)
	}
	if len(r.Find("a", "x", "p").Samples) != 1 || len(r.Find("a", "x", "q").Samples) != 0 || len(r.Disturbed) != 0 || len(r.Places) != 2 || r.Places[0].Text != "new" {
		t.Errorf("it continues with %+v, places %+v", r, r.Places)
	}
	if r.Finish(t.Context(), Measuring{}); r.Seconds < 100 || r.Rounds != 1 || r.Unfinished {
		t.Errorf("it took %g s for %d rounds", r.Seconds, r.Rounds)
	}
	for what, change := range map[string]func(*Report){"kind": func(r *Report) { r.Kind = "network" }, "options": func(r *Report) { r.Options = "" },
		"program": func(r *Report) { r.Version = "another" }, "processor": func(r *Report) { r.Machine = map[string]string{"cpu": "slow"} }} {
		r := New("lab", "", "--quick")
		change(r)
		if err := r.Continue(Measuring{Resume: was}); skerry.AsError(err) == nil || skerry.AsError(err).Code != skerry.CodeConflict || !strings.Contains(err.Error(), what) {
			t.Errorf("another %s is continued: %v", what, err)
		}
	}
}

// Figures that are joined to a curve are drawn as one, and what others published stands in the row.
func TestCurves(t *testing.T) {
	r := New("interference", "Neighbours", "")
	r.Baseline, r.Places = "bare", []Place{{Name: "bare"}, {Name: "oci"}}
	for _, rate := range []float64{8, 4} {
		for _, place := range []string{"bare", "oci"} {
			f := r.Figure("image", fmt.Sprintf("mean latency, %g/s", rate), place)
			f.Unit, f.Curve, f.At, f.About = "ms", "mean latency", rate, "from when it was due"
			if r.Add(f, 10*rate); place == "oci" {
				f.Published = fmt.Sprintf("%g in Regular (004 table 5.1)", rate)
			}
			late := r.Figure("image", fmt.Sprintf("sent late, %g/s", rate), place)
			late.Detail = true
			r.Add(late, 0)
		}
	}
	r.Rounds++
	r.Finish(t.Context(), Measuring{})
	drawings := r.Drawings()
	if d := drawings["mean-latency-image"]; len(drawings) != 1 || strings.Count(d, "<path") != 2 || !strings.Contains(d, ">oci: 80<") {
		t.Errorf("it draws %v", drawings)
	}
	var out bytes.Buffer
	if err := r.WriteMarkdown(&out); err != nil || !strings.Contains(out.String(), "| mean latency, 4/s | ms | lower | 40 | 40 (~1.00x) | 4 in Regular (004 table 5.1) |") ||
		strings.Contains(out.String(), "sent late") || !strings.Contains(out.String(), "HTML have more figures") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := r.WriteHTML(&out); err != nil || !strings.Contains(out.String(), "<td>mean latency, 4/s<br><small>from when it was due</small></td>") || !strings.Contains(out.String(), "sent late, 8/s") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// With the first place of each group as its baseline, every group is compared with its own.
func TestFirstPlace(t *testing.T) {
	r := New("lab", "", "")
	r.Baseline, r.Places = FirstPlace, []Place{{Name: "0s"}, {Name: "2 workers"}, {Name: "10 workers"}}
	for i, place := range []string{"10 workers", "2 workers"} {
		r.Add(r.Figure("deploy", "ready", place), float64(2-i))
	}
	r.Add(r.Figure("delay", "ready", "0s"), 5)
	r.Rounds++
	r.Fold()
	if a := r.Find("deploy", "ready", "10 workers").Against; a == nil || a.Times != 2 || r.Find("deploy", "ready", "2 workers").Against != nil {
		t.Errorf("ten workers are %+v", a)
	}
	if a := r.Find("delay", "ready", "0s").Against; a != nil {
		t.Errorf("the only one is %+v", a)
	}
}

// What failed is told once for each reason, with its rounds.
func TestRemarks(t *testing.T) {
	r := New("lab", "", "")
	for range 2 {
		r.Fail("loss", "50 %", "0 of 1 were ready")
		r.Rounds++
	}
	r.Note("one %d", 1)
	r.Note("one %d", 1)
	text := strings.Join(r.Remarks(), "\n")
	if !strings.Contains(text, "Failed: round 1 of loss in 50 %, round 2 of loss in 50 %: 0 of 1 were ready\none 1") || !strings.Contains(text, "interrupted") || len(r.Notes) != 1 {
		t.Errorf("it remarks %q", text)
	}
}

// Reports from before all benchmarks had one form are refused, with what to do.
func TestOldForms(t *testing.T) {
	for _, schema := range []string{"skerry.bench.runtime/1", "skerry.bench.interference/2", "skerry.bench.orchestrator/1", "skerry.bench.orchestrator.lab/1"} {
		_, err := Read(strings.NewReader(fmt.Sprintf(`{"schema":%q,"places":[],"cases":[]}`, schema)))
		if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeUnsupported || !strings.Contains(e.Message, schema) || !strings.Contains(e.Hint, "measure again") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the sample of the dashboard's tests")

// TestDashboardSample keeps what the dashboard's tests read what this package writes: two reports, and what it says of them.
func TestDashboardSample(t *testing.T) {
	was, is := sample(), sample()
	for _, r := range []*Report{was, is} {
		r.Began, r.Version = time.Unix(1764000000, 0).UTC(), "0123456789ab"
	}
	for i := range is.Find("mtu", "stream", "plain").Samples {
		is.Find("mtu", "stream", "plain").Samples[i] *= 1.5
	}
	few := is.Find("", "agent.mem", "")
	few.Rounds, few.Samples = few.Rounds[:2], []float64{30, 31}
	is.Fold()
	var a, b, c bytes.Buffer
	if err := errors.Join(was.WriteJSON(&a), is.WriteJSON(&b), WriteJSON(&c, Changes(was, is))); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]*bytes.Buffer{"report.json": &a, "later.json": &b, "changes.json": &c} {
		file := "../../web/src/bench/testdata/" + name
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, got.Bytes()) {
			t.Errorf("%s is not what the code gives: run the test with -update, and the dashboard's tests (%v)", file, err)
		}
	}
}
