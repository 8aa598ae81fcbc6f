package interference

import (
	"fmt"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/spec"
)

// beside says what the thesis has of a row, by metric. It has containers by runc, and Kata with Firecracker.
func beside(all *published.Set, place string, s Setting, rate float64) map[string]string {
	kinds := map[string]string{spec.RuntimeOCI: "Regular", spec.RuntimeMicroVM: "Kata"}
	tables := map[Setting]int{}
	for _, t := range []struct {
		cpu          float64
		pin          string
		interference float64
		first        int // of the setting's four tables: answers, times in the application, overhead, counters
	}{{0.5, PinNone, 0, 1}, {1, PinNone, 0, 5}, {1.5, PinNone, 0, 9}, {2, PinBoth, 1, 13}, {2, PinBoth, 1.5, 17}, {2, PinOne, 1, 22},
		{2, PinOne, 1.5, 26}} {
		tables[newGroup(Image, t.cpu, t.pin, t.interference, "cpu", nil).Setting] = t.first
	}
	first, kind := tables[s], kinds[place]
	if first == 0 || kind == "" {
		return nil
	}
	row, out := fmt.Sprintf("%g %s", rate, kind), map[string]string{}
	for metric, at := range map[string]struct {
		table  int
		column string
	}{meanLatency: {first, "latency"}, overhead: {first + 2, "overhead"}} {
		table := fmt.Sprintf("5.%d", at.table)
		for _, f := range all.Find(published.Query{Document: "004", Table: table, Row: row, Column: at.column}) {
			if f.Value != nil {
				out[metric] = fmt.Sprintf("%g in %s (004 table %s)", *f.Value, kind, table)
			}
		}
	}
	return out
}
