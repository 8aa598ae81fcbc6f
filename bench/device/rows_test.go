package device

import (
	"slices"
	"testing"

	"skerry.dev/skerry/bench/published"
)

// Every row of the documents about devices is measured by a case, or has the reason why it is not.
func TestPublishedRows(t *testing.T) {
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	cases := []string{startCase, footprintCase, reachCase, "profile", "whole machine"}
	for _, c := range Catalogue() {
		cases = append(cases, c.ID)
	}
	measured := func(by string) bool { return slices.Contains(cases, by) }
	const board = "a property of the paper's boards"
	const orchestrator = "of other orchestrators, which `bench orchestrator` measures where they run"
	of := map[string][]published.Cover{
		"000": {
			{Table: "1", Rows: []string{"Average"}, By: []string{"profile"}}, {Table: "2", Rows: []string{"Average"}, By: []string{"profile"}},
			{Table: "3", Rows: []string{"Average"}, By: []string{"profile"}},
			{Table: "4", Rows: []string{"system call time"}, By: []string{"os.syscall"}},
			{Table: "4", Rows: []string{"OOM kill"}, By: []string{"os.oom"}},
			{Table: "5", Rows: []string{"KubeEdge", "EdgeMesh", "cri-o"}, Why: orchestrator},
			{Table: "5", Rows: []string{"runc"}, By: []string{footprintCase}},
			{Table: "6", By: []string{footprintCase}},
			{Table: "7", Rows: []string{"Native - 1T", "1 cont. - 1T"}, By: []string{"memory.sysbench.1"}},
			{Table: "7", Rows: []string{"Native - 4T", "1 cont. - 4T"}, By: []string{"memory.sysbench.4"}},
			{Table: "7", Rows: []string{"4 cont. - 1T"}, By: []string{"memory.sysbench.4x1"}},
			{Table: "prose", Rows: []string{"memory bandwidth in theory, RISC-V", "memory bandwidth in theory, ARM64"}, Why: board},
			{Table: "prose", Rows: []string{"overhead on RISC-V less than on ARM64, Phoronix"}, Why: "a comparison of its two boards"},
			{Table: "prose", Rows: []string{"context switch overhead, RISC-V", "context switch overhead again, RISC-V",
				"context switch overhead, ARM64"},
				By: []string{"os.stress-ng.context"}},
			{Table: "prose", Rows: []string{"system calls take longer in the context switch test, RISC-V"}, By: []string{"os.syscall"}},
			{Table: "prose", Rows: []string{"memory of KubeEdge, EdgeMesh and cri-o"}, Why: orchestrator},
			{Table: "prose", Rows: []string{"memory per container, 4 containers", "memory per container, 64 containers", "memory of runc per container",
				"memory of 64 containers"}, By: []string{footprintCase}},
		},
		"001": {
			{Table: "footprint", Rows: []string{"deployed on a server"}, Why: "told of servers in general, and not measured"},
			{Table: "footprint", Rows: []string{"boot time"}, By: []string{startCase}},
			{Table: "I", By: []string{"cpu.index.memory", "cpu.index.integer", "cpu.index.floating"}},
			{Table: "II", By: []string{"cpu.sysbench.large.events", "cpu.sysbench.large.latency"}},
			{Table: "III", By: []string{"memory.copy.n", "memory.scale.n", "memory.add.n", "memory.triad.n", "memory.large"}},
		},
		"003": {
			{Table: "devices", Why: board}, {Table: "techniques", Why: "what is compared, without a figure"},
			{Table: "benchmarks", Rows: []string{"file, small"}, By: []string{"disk.read.seq.mount", "disk.write.seq.mount", "disk.read.random.mount",
				"disk.write.random.mount"}},
			{Table: "benchmarks", Rows: []string{"file, large"}, By: []string{"disk.mixed.mount"}},
			{Table: "benchmarks", Rows: []string{"network"}, By: []string{"net.stream.64", "net.stream.4096"}},
			{Table: "benchmarks", Rows: []string{"power"}, Why: "it needs a meter: --meter"},
			{Table: "benchmarks", Rows: []string{"CPU"}, By: []string{"whole machine"}},
			{Table: "sequential", Rows: []string{"size of a read"}, By: []string{"sweep.read.524288"}},
			{Table: "sequential", Rows: []string{"RC over KC, read of 256 B, worst"}, Why: "it needs Kata with a device mapper"},
			{Table: "random", Rows: []string{"size of a read"}, By: []string{"sweep.randread.4096"}},
			{Table: "random", Rows: []string{"FC, of RC, write of 2 KB"}, By: []string{"sweep.randwrite.2048"}},
			{Table: "summary", Rows: []string{"power of microVMs, more"}, Why: "it needs a meter: --meter"},
			{Table: "summary", Rows: []string{"network of microVMs, of containers"}, By: []string{"net.stream.4096"}},
			{Table: "summary", Rows: []string{"security of microVMs, of containers, by another study"}, By: []string{reachCase}},
		},
	}
	for _, c := range Catalogue() {
		if table, row := published000(c.ID); table != "" {
			of["000"] = append(of["000"], published.Cover{Table: table, Rows: []string{row}, By: []string{c.ID}})
		}
	}
	for document, list := range of {
		for _, problem := range set.Document(document).Uncovered(list, measured) {
			t.Errorf("not tied to a case: %s", problem)
		}
	}
}
