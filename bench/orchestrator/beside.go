package orchestrator

import (
	"fmt"
	"strings"

	"skerry.dev/skerry/bench/published"
)

// Beside is what 002 claims of an orchestrator: so many times, or per cent, against another.
type Beside struct {
	System string            `json:"system"` // as an adapter of it is called
	Claim  string            `json:"claim"`  // in words
	Figure *published.Figure `json:"figure"`
}

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

// beside finds what was published for a row.
func beside(set *published.Set, metric string, replicas int) (out []Beside) {
	for _, c := range claims() {
		if c.metric != metric || c.replicas != replicas {
			continue
		}
		for _, f := range set.Find(published.Query{Document: "002", Table: c.table, Row: c.row}) {
			out = append(out, Beside{c.system, fmt.Sprintf(c.words, f.Words()), f})
		}
	}
	return out
}

// told says what was published in a few words.
func told(list []Beside) string {
	var words []string
	for _, b := range list {
		words = append(words, fmt.Sprintf("%s: %s (%s)", b.System, b.Claim, b.Figure.Table))
	}
	return strings.Join(words, "; ")
}
