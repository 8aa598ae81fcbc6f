package orchestrator

import (
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/bench/published"
)

// Every row of 002 is measured, or has the reason why it is not: by the metric of a part, or of an adapter, or another benchmark.
func TestPublishedRows(t *testing.T) {
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	measured := func(by string) bool {
		f := strings.Fields(by)
		switch {
		case f[0] == "lab" && len(f) == 3:
			return slices.Contains(LabParts(), f[1]) && slices.ContainsFunc(labMetrics(), func(m [2]string) bool { return m[0] == f[2] })
		case f[0] == "adapter" && len(f) == 2:
			return slices.ContainsFunc(metrics(), func(m metric) bool { return m.name == f[1] })
		}
		return by == "bench schedule" || by == "bench network"
	}
	const summed = "a summary of the figures, each of which is measured"
	for _, problem := range set.Document("002").Uncovered([]published.Cover{
		{Table: "testbed", By: []string{"lab sizes ready"}}, {Table: "summary", Why: summed},
		{Table: "figure 2", By: []string{"bench schedule"}}, {Table: "figure 5a", By: []string{"adapter ready", "lab deploy ready"}},
		{Table: "figure 5b", By: []string{"adapter idle.cpu.worker", "adapter idle.cpu.control"}},
		{Table: "figure 6", By: []string{"lab stress all.ready", "lab stress worker.cpu", "lab stress cluster.cpu", "lab stress worker.memory",
			"lab stress cluster.memory"}},
		{Table: "figure 7", By: []string{"lab delay ready", "lab loss ready"}}, {Table: "figure 8", By: []string{"bench network"}},
		{Table: "figure 9", Why: "examples/video is its pipeline, and no benchmark runs it yet"}, {Table: "figure 10", By: []string{"bench schedule"}},
		{Table: "figure 11", By: []string{"lab messages worker.messages", "lab messages cluster.messages"}}, {Table: "figure 12", By: []string{"bench network"}},
	}, measured) {
		t.Errorf("not tied to a case: %s", problem)
	}
}
