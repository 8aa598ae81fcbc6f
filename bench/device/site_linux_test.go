package device

import (
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// The same programs run as jobs of a whole Skerry, with the limits, files and network that they have elsewhere.
func TestOrchestrated(t *testing.T) {
	program := testenv.Program(t)
	r, err := Run(t.Context(), Options{Rounds: 1, Quick: true, Program: program, Places: []string{Orchestrated}, Only: []string{"os.oom", "disk.files.empty.mount", "net.rr.64.plain", startCase}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"os", "oom"}, {"disk", "files.empty.mount"}, {"net", "rr.64.plain"}, {startCase, "from the call to the first line"}} {
		if f := r.Find(c[0], c[1], Orchestrated); f == nil || f.Skip != "" || len(f.Samples) != 1 || f.Samples[0] <= 0 {
			t.Errorf("%s: %+v", c, f)
		}
	}
	// What is no skerry is a place that cannot be, with the reason.
	r, err = Run(t.Context(), Options{Rounds: 1, Quick: true, Program: "/bin/false", Places: []string{Orchestrated}, Only: []string{startCase}})
	if err != nil || len(r.Places) != 2 || r.Places[1].Skip == "" {
		t.Errorf("%v %+v", err, r)
	}
}
