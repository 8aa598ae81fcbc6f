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
	for _, m := range r.Cases {
		if res := m.Results[Orchestrated]; res == nil || res.Skip != "" || len(res.Samples) != 1 || res.Samples[0] <= 0 {
			t.Errorf("%s: %+v", m.ID, res)
		}
	}
	if len(r.Starts) != 2 || len(r.Starts[1].Samples) != 1 || r.Starts[1].Samples[0] <= 0 {
		t.Errorf("%+v", r.Starts)
	}
	// What is no skerry is a place that cannot be, with the reason.
	r, err = Run(t.Context(), Options{Rounds: 1, Quick: true, Program: "/bin/false", Places: []string{Orchestrated}, Only: []string{startCase}})
	if err != nil || len(r.Places) != 2 || r.Places[1].Skip == "" {
		t.Errorf("%v %+v", err, r)
	}
}
