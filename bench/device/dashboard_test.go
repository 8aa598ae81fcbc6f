package device

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the samples of the dashboard's tests")

// TestDashboardSamples keeps what the dashboard's tests read what this package writes: two reports, and what it says of them.
func TestDashboardSamples(t *testing.T) {
	was, is := sample([]float64{100, 101, 99, 100, 100}, []float64{200, 202, 198, 200, 200}), sample([]float64{100, 100, 99, 101, 100}, []float64{100, 101, 99, 100, 100})
	more := func(r *Report, id, better string, oci []float64) {
		r.Cases = append(r.Cases, Measured{Case: Case{ID: id, Group: "cpu", Class: Application, Unit: "1/s", Better: better}, Results: map[string]*Result{"oci": {Samples: oci}, "gvisor": {Skip: "runsc is not installed"}}})
		r.fold()
	}
	more(was, "cpu.sure", Higher, []float64{10, 11, 10, 11})
	more(is, "cpu.sure", Higher, []float64{20, 21, 20, 21})
	more(was, "cpu.worse", Higher, []float64{10, 11, 10, 11})
	more(is, "cpu.worse", Higher, []float64{5, 6, 5, 6})
	more(was, "cpu.few", Higher, []float64{10, 10}) // too few to be sure of
	more(is, "cpu.few", Higher, []float64{20, 20})
	more(was, "cpu.same", Lower, []float64{10, 12, 9, 11})
	more(is, "cpu.same", Lower, []float64{11, 10, 12, 10})
	more(is, "cpu.new", Lower, []float64{1, 1, 1})
	var a, b, c bytes.Buffer
	for r, w := range map[*Report]*bytes.Buffer{was: &a, is: &b} {
		if err := r.WriteJSON(w); err != nil {
			t.Fatal(err)
		}
	}
	e := json.NewEncoder(&c)
	e.SetIndent("", " ")
	if err := e.Encode(Changes(was, is)); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]*bytes.Buffer{"was.json": &a, "is.json": &b, "changes.json": &c} {
		file := filepath.Join("..", "..", "web", "src", "bench", "testdata", name)
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, got.Bytes()) {
			t.Errorf("%s is not what the code gives: run the test with -update, and the dashboard's tests (%v)", name, err)
		}
	}
}
