package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

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
	r.Disturbed = []quiet.Mark{{Round: 6, By: "others used 1.90 processors: cc1"}}
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
	r.Rounds, r.Disturbed = 2, nil
	r.Fold()
	if a := plain.Against; a.Times != 0.5 || a.Significant {
		t.Errorf("of two rounds it is sure: %+v", a)
	}
	plain.Rounds = []int{7, 8, 9, 10, 11, 12}
	r.Rounds = 12
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
			"Round 6 was disturbed and does not count: others used 1.90 processors: cc1", "skerry bench network --quick, "},
		"markdown": {"| stream | Gbit/s | higher | 11 [10, 12] | 5.5 [5, 6] (0.50x) |", "- Round 6 was disturbed"},
		"csv":      {"mtu,stream,plain,Gbit/s,higher,6,1000,true\n", "mtu,stream,plain,Gbit/s,higher,1,5,false\n"},
		"html":     {"<h1>Ways &lt;there&gt;</h1>", "<td>5.5 [5, 6] (0.50x)</td>", "<svg"},
	} {
		var out bytes.Buffer
		if err := Ways()[name](r, &out); err != nil {
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
		r.Disturbed = append(r.Disturbed, quiet.Mark{Round: round + 1, By: "others"})
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
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("what is read is not what was written: %v\n%+v\n%+v", err, back, r)
	}
	lie := strings.Replace(text, `"value": 5.5`, `"value": 99`, 1)
	if back, err := Read(strings.NewReader(lie)); err != nil || back.Find("mtu", "stream", "plain").Value.Value != 5.5 {
		t.Errorf("a file's own median is taken, %v", err)
	}
	for _, bad := range []string{"", "{}", `{"schema":"skerry.bench/9"}`, `{"schema":"skerry.bench/1","figures":[null]}`,
		`{"schema":"skerry.bench/1","figures":[{"name":"a","samples":[1]}]}`, `{"schema":"skerry.bench/1","figures":[{"name":"a","quantile":7}]}`,
		`{"schema":"skerry.bench/1","figures":[{"name":"a"},{"name":"a"}]}`} {
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
		for name, write := range Ways() {
			if err := write(r, &out); err != nil && !isNumber(err) {
				t.Errorf("%s: %v", name, err)
			}
			out.Reset()
		}
	})
}

// isNumber reports whether something is no number that JSON has: a quotient of extremes may be infinite.
func isNumber(err error) bool {
	_, ok := err.(*json.UnsupportedValueError)
	return ok
}

var update = flag.Bool("update", false, "rewrite the sample of the dashboard's tests")

// TestDashboardSample keeps what the dashboard's tests read what this package writes.
func TestDashboardSample(t *testing.T) {
	r := sample()
	r.Began, r.Version = time.Unix(1764000000, 0).UTC(), "0123456789ab"
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	const file = "../../web/src/bench/testdata/report.json"
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, out.Bytes()) {
		t.Errorf("%s is not what the code gives: run the test with -update, and the dashboard's tests (%v)", file, err)
	}
}
