package interference

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/spec"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Without choices the matrix is that of the thesis, and all of its figures stand beside it.
func TestMatrix(t *testing.T) {
	groups, err := Choice{}.groups()
	if err != nil {
		t.Fatal(err)
	}
	all, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range groups {
		for _, rate := range g.rates {
			for _, place := range []string{spec.RuntimeOCI, spec.RuntimeMicroVM, Bare} {
				p := beside(all, place, g.Setting, rate)
				if p == nil {
					continue
				}
				n++
				if p.Mean == nil || p.Overhead == nil {
					t.Errorf("%+v", p)
				}
			}
		}
	}
	if n != 7*4*2 {
		t.Errorf("%d figures", n)
	}
	p := beside(all, spec.RuntimeMicroVM, newGroup(Image, 0.5, PinNone, 0, "", nil).Setting, 8)
	if p == nil || p.Table != "5.1" || *p.Mean != 117.794 || *p.Overhead != 38 {
		t.Errorf("%+v", p)
	}
	if groups, err = (Choice{Services: []string{Video, Database, Video}}).groups(); err != nil || len(groups) != 18 || !slices.Equal(groups[9].rates, []float64{60, 120, 180, 240}) || beside(all, spec.RuntimeOCI, groups[9].Setting, 60) != nil || beside(all, spec.RuntimeOCI, groups[0].Setting, 4) != nil {
		t.Errorf("%+v %v", groups, err)
	}
	groups, err = Choice{CPU: []float64{1, 0.5}, Neighbours: []string{"cpu", "cache"}, Rates: []float64{3}}.groups()
	if err != nil || len(groups) != 6 { // alone, and beside each of two
		t.Errorf("%+v %v", groups, err)
	}
	for _, bad := range []Choice{{CPU: []float64{0}}, {Rates: []float64{-1}}, {Services: []string{"tea"}}, {Pin: []string{"all"}}, {Neighbours: []string{"moon"}}, {Interference: []float64{-1}}} {
		if _, err := bad.groups(); err == nil {
			t.Errorf("%+v", bad)
		}
	}
}

// The generator has a processor of its own, a pinned service has others than its neighbour, and what does not fit is told.
func TestArrange(t *testing.T) {
	for _, c := range []struct {
		cpus         []int
		cpu, beside  float64
		pinned       bool
		service, too string // or the reason
	}{
		{[]int{0, 1}, 0.5, 0, false, "1", "0,1"},
		{[]int{0, 1}, 1, 1.5, false, "1", "0,1"},
		{[]int{0, 1}, 1, 1, true, "1", "0"},
		{[]int{0, 1}, 1, 1.5, true, "", "a neighbour of 1.5 processors needs 2, and 1 are left"},
		{[]int{0, 1}, 1.5, 0, false, "", "the service needs 2 processors and may have 1 of 2"},
		{[]int{2, 3, 5, 7}, 1.5, 1.5, true, "5,7", "2,3"},
		{[]int{0}, 0.5, 0, false, "", "may have 0 of 1"},
	} {
		l, why := arrange(c.cpus, Setting{CPU: c.cpu, Interference: c.beside}, c.pinned)
		if c.service == "" {
			if !strings.Contains(why, c.too) {
				t.Errorf("%+v: %q", c, why)
			}
			continue
		}
		if why != "" || l.generator != c.cpus[0] || list(l.service) != c.service || list(l.neighbour) != c.too {
			t.Errorf("%+v: %+v %s", c, l, why)
		}
	}
}

func sample() *Report {
	v := func(f float64) *float64 { return &f }
	half := newGroup(Image, 0.5, PinNone, 0, "", nil).Setting
	crowded := newGroup(Image, 1, PinBoth, 1.5, "cache", nil).Setting
	return &Report{Schema: Schema, Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 20, Machine: map[string]string{"cpu": "A processor", "cores": "2"}, Quick: true, Warm: 2, Load: 6, Settle: 1,
		Noise: []string{"its load was 3.0 before"}, Missing: []string{"cycles: perf says <not supported>"},
		Places: []Told{{Name: "bare", Text: "a process in a cgroup"}, {Name: "oci", Text: "runtime oci"}, {Name: "microvm", Text: "runtime microvm", Skip: "no guest kernel is given"}},
		Rows: []*Row{
			{Place: "bare", Setting: half, Rate: 4, Outcome: &Outcome{Sent: 24, Success: 100, Throughput: 4, Latency: &Latency{46, 45, 51, 60, 61}, Application: &Application{5, 39, 44}, Overhead: 2}, System: &System{CPU: v(35), Throttled: v(120), Waiting: v(9)}},
			{Place: "oci", Setting: half, Rate: 4, Outcome: &Outcome{Sent: 24, Success: 100, Throughput: 4, Latency: &Latency{48, 46, 53, 63, 64}, Application: &Application{5, 40, 45}, Overhead: 3}, System: &System{CPU: v(36)}, Published: &Published{"5.1", "4 Regular", v(41.592), v(2.6)}},
			{Place: "oci", Setting: half, Rate: 8, Outcome: &Outcome{Sent: 48, Late: 10, Invalid: "10.0 % of the requests were sent more than 10ms late; up to 1 % may be"}, System: &System{}},
			{Place: "oci", Setting: crowded, Rate: 4, Skip: "a neighbour of 1.5 processors needs 2, and 1 are left beside the service's"},
			{Place: "oci", Setting: half, Rate: 99, Outcome: &Outcome{Sent: 594, Error: "refused"}, System: &System{}},
		},
		Found: []*Found{{Place: "oci", Setting: half, Saturation: Saturation{Low: 11.5, High: 12, P99: 500, Tries: []Try{{Rate: 12, Full: "p99 812 ms"}}}}, {Place: "bare", Setting: half, Saturation: Saturation{Stopped: "two runs at 2 requests per second were invalid"}}},
	}
}

// Rows are compared that differ in one thing alone.
func TestChanges(t *testing.T) {
	row := func(pin string, load float64, neighbour string, mean float64) *Row {
		return &Row{Place: "oci", Setting: newGroup(Image, 1, pin, load, neighbour, nil).Setting, Rate: 4, Outcome: &Outcome{Latency: &Latency{Mean: mean, P99: 2 * mean}, Application: &Application{Total: mean / 2}, Overhead: mean / 2}}
	}
	late := row(PinNone, 1, "disk", 999)
	late.Outcome.Invalid = "late"
	rows := []*Row{row(PinNone, 0, "", 40), row(PinNone, 1, "cpu", 60), row(PinNone, 1, "cache", 80), row(PinNone, 1.5, "cpu", 90), row(PinBoth, 1, "cpu", 45), late, {Place: "oci", Setting: late.Setting, Rate: 4, Skip: "no"}}
	want := []string{
		"beside cpu 1, pin none against alone, pin none: +50 +50 +50 +10", "beside cache 1, pin none against alone, pin none: +100 +100 +100 +20",
		"beside cpu 1.5, pin none against alone, pin none: +125 +125 +125 +25", "beside cpu 1.5, pin none against beside cpu 1, pin none: +50 +50 +50 +15",
		"beside cpu 1, pin both against beside cpu 1, pin none: -25 -25 -25 -8",
	}
	got := changes(rows)
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, c := range got {
		if text := fmt.Sprintf("%s against %s: %+.0f %+.0f %+.0f %+.0f", c.Of, c.Against, c.Mean, c.P99, c.Application, c.Overhead); text != want[i] {
			t.Error(text)
		}
	}
}

// A report is written for people, tables and programs.
func TestReport(t *testing.T) {
	r := sample()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.txt": func(b *bytes.Buffer) error { return r.WriteTable(b) }, "report.csv": func(b *bytes.Buffer) error { return r.WriteCSV(b) }} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		file := "testdata/" + name
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != b.String() {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
	var b bytes.Buffer
	var again Report
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), &again); err != nil || again.Schema != Schema || len(again.Rows) != len(r.Rows) || *again.Rows[1].Published.Mean != 41.592 {
		t.Errorf("%+v %v", again, err)
	}
}

// A page has a plot for each limit with rows that tell of their service, says what is missing, and shows what others wrote as text.
func TestHTML(t *testing.T) {
	r := sample()
	r.Machine["cpu"] = "A <b>processor</b>"
	v := func(at, ok float64) Point { return Point{At: at, Success: ok} }
	r.Rows = append(r.Rows, &Row{Place: "oci", Setting: r.Rows[1].Setting, Rate: 6, Outcome: &Outcome{Sent: 36, Success: 90, Throughput: 5, Latency: &Latency{148, 146, 153, 963, 964}, Application: &Application{5, 40, 45}, Overhead: 103},
		Series: []Point{v(3, 100), v(6, 80)}})
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"mean latency, image, 0.5 processors", "p99, image, 0.5 processors", "requests that succeeded, image, 0.5 processors", "oci, 6/s", "A &lt;b&gt;processor", "Not run: microvm: no guest kernel is given", "not run: a neighbour of 1.5", "invalid: 10.0 %", "11.5 requests per second are done, 12 are not"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not there", want)
		}
	}
	if strings.Contains(text, "<b>processor") || strings.Contains(text, "<script") || strings.Count(text, "<svg") != 4 || strings.Contains(text, "NaN") {
		t.Errorf("%d plots: %s", strings.Count(text, "<svg"), text)
	}
	r.Rows = r.Rows[3:4] // of which none ran
	b.Reset()
	if err := r.WriteHTML(&b); err != nil || strings.Contains(b.String(), "<svg") {
		t.Error(err, b.String())
	}
}

// What was measured is read again, and what ran and was valid is known by all that it was run with.
func TestGoOn(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	r, err := ReadReport(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for n, row := range r.Rows {
		was := r.row(&Row{Place: row.Place, Setting: row.Setting, Rate: row.Rate})
		if ran := n != 2 && n != 3; ran != (was != nil) { // the one invalid, the other not run
			t.Errorf("row %d: %+v", n, was)
		}
	}
	like := *r.Rows[0]
	like.Pin = PinBoth
	if r.row(&like) != nil || (*Report)(nil).row(&like) != nil {
		t.Error("a row of another setting was taken")
	}
	if f := r.found("oci", r.Found[0].Setting, 500); f != r.Found[0] || r.found("oci", r.Found[0].Setting, 400) != nil || (*Report)(nil).found("oci", r.Found[0].Setting, 500) != nil {
		t.Errorf("%+v", f)
	}
	old, err := ReadReport(strings.NewReader(`{"schema":"skerry.bench.interference/1","rows":[{"place":"oci","cpu":1,"rate":4}],"saturation":[{"place":"oci"}]}`))
	if err != nil || old.Rows[0].Service != Image || old.Found[0].Service != Image {
		t.Errorf("a report of the image service alone: %+v %v", old, err)
	}
	for _, bad := range []string{"", "[]", `{"schema":"skerry.bench.interference/3"}`, `{"schema":"skerry.bench.interference/1","rows":[null]}`, `{"schema":"skerry.bench.interference/1","saturation":[null]}`,
		`{"schema":"skerry.bench.interference/1","rows":[{"outcome":{"latency":{"mean":1}}}]}`} {
		if _, err := ReadReport(strings.NewReader(bad)); skerry.AsError(err).Code != skerry.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzReadReport: whatever a file says, it is refused or can be shown and gone on from.
func FuzzReadReport(f *testing.F) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema":"skerry.bench.interference/1","rows":[{"outcome":{}}],"saturation":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ReadReport(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, row := range r.Rows {
			r.row(row)
		}
		if err := r.WriteHTML(io.Discard); err != nil {
			t.Error(err)
		}
		if err := r.WriteTable(io.Discard); err != nil {
			t.Error(err)
		}
	})
}
