package interference

import (
	"slices"
	"testing"

	"skerry.dev/skerry/bench/published"
)

// Every row of the thesis is measured by a metric, or has the reason why it is not.
func TestPublishedRows(t *testing.T) {
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	measured := func(by string) bool {
		return slices.ContainsFunc(metrics(), func(m metric) bool { return m.name == by }) || by == "bench runtime"
	}
	var list []published.Cover
	for _, x := range thesisTables() {
		for i, by := range [][]string{{meanLatency, "answers", success}, {"loading in it", "processing in it", inService}, {overhead},
			{"cycles", "instructions", perCycle, "context-switches", "cpu-migrations", missed}} {
			list = append(list, published.Cover{Table: thesisTable(x.first + i), By: by})
		}
	}
	const groups = "a range over rows of the tables, each of which is measured"
	list = append(list,
		published.Cover{Table: "5.21", By: []string{meanLatency, overhead, "processing in it", perCycle, missed}},
		published.Cover{Table: "5.30", Rows: []string{"latency at 15 RPS", "latency at 30 RPS"}, By: []string{meanLatency}},
		published.Cover{Table: "5.30", Rows: []string{"overhead at 15 RPS", "overhead at 30 RPS"}, By: []string{overhead}},
		published.Cover{Table: "5.30", Rows: []string{"processing at 30 RPS"}, By: []string{"processing in it"}},
		published.Cover{Table: "5.30", Rows: []string{"IPC at 30 RPS", "cache misses at 30 RPS", "migrations at 30 RPS"}, By: []string{perCycle, missed,
			"cpu-migrations"}},
		published.Cover{Table: "5.30", Rows: []string{"CPU use"}, By: []string{"processor time"}},
		published.Cover{Table: "prose use", By: []string{"processor time"}},
		published.Cover{Table: "section 2.3", Rows: []string{"start of runc", "start of Kata", "memory of a pod, runc", "memory of a pod, Kata on Firecracker",
			"memory of a pod, Kata on QEMU", "computing in Kata, below runc"}, By: []string{"bench runtime"}},
		published.Cover{Table: "section 2.3", Rows: []string{"pods of a node of Kubernetes, at most"}, Why: "a limit of Kubernetes, and not measured"},
		published.Cover{Table: "prose", Why: groups})
	for _, problem := range set.Document("004").Uncovered(list, measured) {
		t.Errorf("not tied to a case: %s", problem)
	}
}
