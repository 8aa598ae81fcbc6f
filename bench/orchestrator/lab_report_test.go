package orchestrator

import (
	"bytes"
	"encoding/csv"
	"maps"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/bench/published"
)

func labReport(t *testing.T) *LabReport {
	t.Helper()
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	r := &LabReport{Schema: LabSchema, Rounds: 3, Machine: map[string]string{"cpu": "<fast>"}, Unfinished: true}
	cell := func(part, setting string, round int, ready float64) {
		r.Cells = append(r.Cells, LabCell{Part: part, Setting: setting, Round: round, Values: map[string]float64{"ready": ready}})
	}
	// The second and third round begin elsewhere.
	cell("deploy", "2 workers", 1, 1)
	cell("deploy", "10 workers", 1, 2)
	cell("delay", "0s", 1, 1)
	cell("deploy", "10 workers", 2, 4)
	cell("delay", "0s", 2, 1)
	cell("deploy", "2 workers", 2, 2)
	cell("deploy", "2 workers", 3, 3)
	r.Cells = append(r.Cells, LabCell{Part: "deploy", Setting: "10 workers", Round: 3, Failed: "broke, \"here\" <b>"},
		LabCell{Part: "loss", Setting: "50 %", Round: 1, Failed: "0 of 1 were ready within 1m0s"})
	r.fold(set)
	return r
}

func TestLabFold(t *testing.T) {
	r := labReport(t)
	var got []string
	for _, row := range r.Rows {
		got = append(got, row.Part+" "+row.Setting)
	}
	if want := []string{"deploy 2 workers", "deploy 10 workers", "delay 0s", "loss 50 %"}; !slices.Equal(got, want) {
		t.Fatalf("%q", got)
	}
	two, ten, none := r.Rows[0], r.Rows[1], r.Rows[3]
	if two.Median != 2 || two.Summary.Mean != 2 || two.Ratio != nil || two.Failed != 0 || len(two.Published) != 2 {
		t.Errorf("%+v", two)
	}
	// Over the rounds that both have: 2 + 4 against 1 + 2.
	if ten.Ratio == nil || ten.Ratio.Times != 2 || ten.Failed != 1 || ten.Why == "" || !slices.Equal(ten.Rounds, []int{1, 2}) {
		t.Errorf("%+v, %+v", ten, ten.Ratio)
	}
	if len(none.Samples) != 0 || none.Failed != 1 || len(none.Published) != 1 || none.Published[0].System != "oakestra" {
		t.Errorf("%+v", none)
	}
}

func TestLabOutputs(t *testing.T) {
	r := labReport(t)
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	again, err := ReadLabReport(&b)
	if err != nil || len(again.Cells) != len(r.Cells) || !again.Unfinished {
		t.Fatal(err, again)
	}
	for _, bad := range []string{"", "[]", `{"schema":"skerry.bench.orchestrator/1"}`} {
		if _, err := ReadLabReport(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	b.Reset()
	if err := r.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(lines) != 1+len(r.Cells) || lines[0][0] != "part" || lines[8][6] != "broke, \"here\" <b>" || lines[1][5] != "1" {
		t.Errorf("%v, %q", err, lines)
	}
	b.Reset()
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if strings.Contains(text, "<b>") || strings.Contains(text, "<fast>") || !strings.Contains(text, "&lt;fast&gt;") || !strings.Contains(text, "</html>") || strings.Count(text, "<svg") != 2 || strings.Contains(text, "<script") {
		t.Error(text)
	}
	if drawings := r.Drawings(); len(drawings) != 2 || !strings.HasPrefix(drawings["deploy-ready"], "<svg") {
		t.Errorf("%d plots: %v", len(drawings), slices.Sorted(maps.Keys(drawings)))
	}
	b.Reset()
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2, 1 failed", "2.00x", "failed: loss, 50 %, in 1 rounds", "2-3 times as long as oakestra", "--resume"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}
