package interference

import (
	"fmt"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/spec"
)

// Published is what the thesis found of the same load, in ms.
type Published struct {
	Table    string   `json:"table"`
	Row      string   `json:"row"`
	Mean     *float64 `json:"mean,omitempty"`
	Overhead *float64 `json:"overhead,omitempty"`
}

// beside gives the published figures of a row, or nil. The thesis has containers by runc, and Kata with Firecracker.
func beside(all *published.Set, place string, s Setting, rate float64) *Published {
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
	p := &Published{Table: fmt.Sprintf("5.%d", first), Row: fmt.Sprintf("%g %s", rate, kind)}
	value := func(table int, column string) *float64 {
		for _, f := range all.Find(published.Query{Document: "004", Table: fmt.Sprintf("5.%d", table), Row: p.Row, Column: column}) {
			return f.Value
		}
		return nil
	}
	p.Mean, p.Overhead = value(first, "latency"), value(first+2, "overhead")
	if p.Mean == nil && p.Overhead == nil {
		return nil
	}
	return p
}
