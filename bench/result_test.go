package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestQuantiles(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	if Median(v) != 2.5 || Quantile(v, 0) != 1 || Quantile(v, 1) != 4 {
		t.Error(Median(v), Quantile(v, 0), Quantile(v, 1))
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("nothing has a median")
	}
}

func TestFold(t *testing.T) {
	list := fold(map[string]sample{
		"agent.mem":   {values: []float64{20, 22, 21}, context: "10 instances"},
		"control.mem": {values: []float64{80}},
		"agent.disk":  {err: errors.New("the window is too short")},
	}, "--quick leaves it out")
	by := map[string]Result{}
	for _, r := range list {
		by[r.Name] = r
		if r.Value == nil && !strings.HasPrefix(r.Context, "not measured: ") {
			t.Errorf("%s has neither value nor reason", r.Name)
		}
	}
	if r := by["agent.mem"]; *r.Value != 21 || !*r.Met || r.N != 3 {
		t.Errorf("%+v", r)
	}
	if r := by["control.mem"]; *r.Met {
		t.Errorf("%+v", r)
	}
	if len(list) != len(budgets()) {
		t.Errorf("%d results", len(list))
	}
	var out bytes.Buffer
	if err := WriteJSON(&out, list); err != nil {
		t.Fatal(err)
	}
	var back []Result
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back) != len(list) {
		t.Error(err)
	}
	out.Reset()
	if err := WriteTable(&out, list); err != nil || !strings.Contains(out.String(), "agent.mem") {
		t.Error(err, out.String())
	}
}
