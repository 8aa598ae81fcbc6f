package orchestrator

import (
	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
)

// labMetrics are all metrics in the order of reports, with their units. Lower is better in all.
func labMetrics() [][2]string {
	return [][2]string{
		{"ready", "s"}, {"all.ready", "s"}, {"each.ready", "ms/instance"}, {"ask", "ms"}, {"replaced", "s"}, {"p50", "ms"}, {"p99", "ms"},
		{"unanswered", "%"}, {"late", "% of requests"}, {"on.slow", "% of instances"},
		{"worker.messages", "1/min"}, {"cluster.messages", "1/min"}, {"root.messages", "1/min"}, {"peer.messages", "1/min"},
		{"worker.bytes", "B/min"}, {"cluster.bytes", "B/min"}, {"root.bytes", "B/min"},
		{"deploy.root.cpu", "ms/instance"}, {"deploy.cluster.cpu", "ms/instance"}, {"deploy.worker.cpu", "ms/instance"},
		{"control.cpu", "% of a core"}, {"root.cpu", "% of a core"}, {"cluster.cpu", "% of a core"}, {"worker.cpu", "% of a core"},
		{"control.memory", "MiB"}, {"root.memory", "MiB"}, {"cluster.memory", "MiB"}, {"worker.memory", "MiB"},
		{"instance.memory", "MiB/instance"},
	}
}

// cellFigures adds what was found of a part in a setting, by metric, to the present round.
func cellFigures(r *report.Report, set *published.Set, part, setting string, values map[string]float64) {
	about := labAbout(part)
	for _, m := range labMetrics() {
		v, ok := values[m[0]]
		if !ok {
			continue
		}
		f := r.Figure(part, m[0], setting)
		f.Unit, f.About, f.Published, f.Skip = m[1], about, labBeside(set, part, setting, m[0]), ""
		r.Add(f, v)
		about = "" // it is said of the first
	}
}

// labAbout says what each part is.
func labAbout(part string) string {
	switch part {
	case "deploy":
		return "From when the root is asked to deploy one instance until it shows it as ready, where the scheduler chooses the worker and where the manifest names it."
	case "delay":
		return "The same, with the round trip between each worker and all others longer by so much."
	case "loss":
		return "The same, with so much of the packets lost on each worker's cable, each way."
	case "stress":
		return "Until all instances are ready, for each of them too, and the processor time that Skerry's own processes take for that; each instance is an HTTP server that answered its worker, and then at its service address an instance on another worker (ask: the second time). Then messages a minute, and what those processes use while nothing is to be done: of root, cluster, and all workers together. No service has more than 32 instances, of which every worker is told."
	case "sizes":
		return "A root, a cluster and a worker, each in a host whose cgroup has no more processors and memory than the virtual machines of 002, for the role and all that it runs together. What the processes use at rest, until one instance is ready, and until several are; what the worker says that it has is not limited."
	case "messages":
		return "Messages a minute on the wire while nothing is to be done: records of TLS and datagrams. Worker: one worker with its cluster; peer: with other workers; cluster: with all its workers; root: with all clusters."
	case "failover":
		return "From when a worker ends with all that it runs until what it ran is ready elsewhere. Killed: its connections are closed by its system; silent: it is cut off before, as when power fails."
	case "clusters":
		return "The same for several clusters below one root: one instance, then one on each worker (all), and what control costs."
	case "crowded":
		return "An image service of two instances (policy spread) with an expected rate, on two workers that say the same of themselves. One of them has neighbours of which Skerry knows nothing: they compute in its cgroup, which is given one processor. Requests go out when they are due, to both instances in turn; p50 and p99 are of those answered within 10 s, from when they were due. Without profiles, and with those that skerry worker profile takes there."
	case "uncrowded":
		return "The same without the neighbours: what profiles change where they have nothing to tell."
	}
	return ""
}
