package orchestrator

import (
	"strings"

	"skerry.dev/skerry/bench/published"
)

// LabParts are what is measured in labs, in the order of reports.
func LabParts() []string {
	return []string{"deploy", "delay", "loss", "stress", "sizes", "messages", "failover", "clusters", "crowded", "uncrowded"}
}

// labBeside says what 002 claims of something like a figure. Its text compares alone; what is not compared there
// (failover, clusters) has nothing.
func labBeside(set *published.Set, part, setting, metric string) string {
	var out []string
	add := func(system, table, row, words string) {
		c := claim{system: system, table: table, row: row, words: words}
		out = append(out, c.text(set))
	}
	switch {
	case part == "deploy" && metric == "ready":
		add("kubernetes", "figure 5a", "Kubernetes, of Oakestra", "%s times as long as oakestra")
		add("microk8s", "figure 5a", "MicroK8s, of Oakestra", "%s times as long as oakestra")
	case part == "delay" && metric == "ready" && setting != "0s":
		add("oakestra", "figure 7", "less at high delay", "%s %% less time than k3s at high delay")
	case part == "loss" && metric == "ready" && strings.HasPrefix(setting, "20 "):
		add("oakestra", "figure 7", "less at 20 % loss", "%s %% less time than k3s")
	case part == "loss" && metric == "ready" && strings.HasPrefix(setting, "50 "):
		add("oakestra", "figure 7", "less at 50 % loss", "%s %% less time than k3s")
	case part == "stress" && metric == "all.ready":
		add("oakestra", "figure 6", "services that Oakestra deployed", "%s services on each worker")
		add("k3s", "figure 6", "services when a worker of K3s is exhausted", "%s services on a worker, then it was exhausted")
	case part == "stress" && metric == "worker.cpu":
		add("oakestra", "figure 6", "CPU that Oakestra left then", "%s %% of a worker's left with 100 services")
	case part == "stress" && metric == "cluster.cpu":
		add("oakestra", "figure 6", "CPU of a cluster of Oakestra, growth", "%s %% more from none to 100 services on each worker")
	case part == "stress" && metric == "worker.memory":
		add("oakestra", "figure 6", "memory of a worker, below K3s", "%s %% less than k3s")
	case part == "stress" && metric == "cluster.memory":
		add("oakestra", "figure 6", "memory of the master, below K3s", "%s %% less than k3s")
	case (part == "messages" || part == "stress") && (metric == "worker.messages" || metric == "cluster.messages"):
		add("k3s", "figure 11", "K3s, of Oakestra", "%s times as many as oakestra")
	}
	return strings.Join(out, "; ")
}
