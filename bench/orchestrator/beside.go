package orchestrator

import (
	"fmt"
	"strings"

	"skerry.dev/skerry/bench/published"
)

// claim ties a row of 002 to a metric.
type claim struct {
	metric     string
	replicas   int
	system     string
	table, row string
	words      string // with %s for the figure
}

// claims tie rows of 002 to what is measured here. Its text has no absolute times or loads, only comparisons. What it
// tells of stress (figure 6) is of whole machines with 100 services on each of ten, and of control messages (figure 11)
// of the wire: neither is what is measured here.
func claims() []claim {
	return []claim{
		{"ready", 1, "kubernetes", "figure 5a", "Kubernetes, of Oakestra", "%s times as long as oakestra"},
		{"ready", 1, "microk8s", "figure 5a", "MicroK8s, of Oakestra", "%s times as long as oakestra"},
		{"idle.cpu.worker", 0, "oakestra", "figure 5b", "worker of Oakestra, reduced", "%s times less than others"},
		{"idle.cpu.worker", 0, "k3s", "figure 5b", "worker of K3s, below Kubernetes", "%s %% less than kubernetes"},
		{"idle.cpu.control", 0, "oakestra", "figure 5b", "master of Oakestra, reduced", "%s times less than others"},
	}
}

// beside says what was published of a metric: words of figures and prose of 002, from its machines.
func beside(set *published.Set, metric string, replicas int) string {
	var out []string
	for _, c := range claims() {
		if c.metric == metric && c.replicas == replicas {
			out = append(out, c.text(set))
		}
	}
	return strings.Join(out, "; ")
}

// text is a claim in words.
func (c *claim) text(set *published.Set) string {
	var out []string
	for _, f := range set.Find(published.Query{Document: "002", Table: c.table, Row: c.row}) {
		out = append(out, fmt.Sprintf("%s: %s (%s)", c.system, fmt.Sprintf(c.words, f.Words()), c.table))
	}
	return strings.Join(out, "; ")
}
