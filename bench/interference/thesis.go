package interference

import (
	"fmt"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/spec"
)

// thesisSetting is a setting of the thesis.
type thesisSetting struct {
	cpu          float64
	pin          string
	interference float64
	first        int // of its four tables: answers, times in the application, overhead, counters
}

func thesisTables() []thesisSetting {
	return []thesisSetting{{0.5, PinNone, 0, 1}, {1, PinNone, 0, 5}, {1.5, PinNone, 0, 9}, {2, PinBoth, 1, 13}, {2, PinBoth, 1.5, 17},
		{2, PinOne, 1, 22}, {2, PinOne, 1.5, 26}}
}

func thesisTable(n int) string { return fmt.Sprintf("5.%d", n) }

// beside says what the thesis has of a row, by metric. It has containers by runc, and Kata with Firecracker.
func beside(all *published.Set, place string, s Setting, rate float64) map[string]string {
	kind, first := map[string]string{spec.RuntimeOCI: "Regular", spec.RuntimeMicroVM: "Kata"}[place], 0
	for _, t := range thesisTables() {
		if newGroup(Image, t.cpu, t.pin, t.interference, "cpu", nil).Setting == s {
			first = t.first
		}
	}
	if first == 0 || kind == "" {
		return nil
	}
	row, out := fmt.Sprintf("%g %s", rate, kind), map[string]string{}
	for metric, at := range map[string]struct {
		table        int // after the first
		column, unit string
	}{meanLatency: {0, "latency", ""}, "answers": {0, "throughput", ""}, success: {0, "success", ""}, "loading in it": {1, "load", " s"},
		"processing in it": {1, "processing", " s"}, inService: {1, "total", " s"}, overhead: {2, "overhead", ""}, "cycles": {3, "cycles", "e9"},
		"instructions": {3, "instructions", "e9"}, perCycle: {3, "IPC", ""}, "context-switches": {3, "context switches", "e6"},
		"cpu-migrations": {3, "migrations", "e3"}, missed: {3, "cache misses", ""}} {
		table := thesisTable(first + at.table)
		for _, f := range all.Find(published.Query{Document: "004", Table: table, Row: row, Column: at.column}) {
			if f.Value != nil {
				out[metric] = fmt.Sprintf("%g%s in %s (004 table %s)", *f.Value, at.unit, kind, table)
			}
		}
	}
	return out
}
