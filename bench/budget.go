// Package bench measures what Skerry costs and what it gives, beside what a user would run instead. It drives the real
// binary in network namespaces of its own. The command and tests import it.
package bench

import (
	"skerry.dev/skerry/bench/report"
)

// budget is a goal for one figure; docs/BENCHMARKS.md has them all ("Goals").
type budget struct {
	name, unit, better string
	goal               float64
	quantile           float64 // of the samples, that counts; 0: the median
}

// budgets lists the goals in the order of the design. Those of 0 have none, and are there beside those that have.
func budgets() []budget {
	const lower, higher = report.Lower, report.Higher
	return []budget{
		{"agent.mem", "MiB", lower, 25, 0},
		{"agent.mem.rss", "MiB", lower, 0, 0},
		{"agent.mem.tables", "MiB", lower, 0, 0},
		{"agent.cpu", "% of a core", lower, 0.05, 0},
		{"agent.disk", "MB/day", lower, 50, 0},
		{"agent.disk.hourly", "MB/day", lower, 50, 0},
		{"agent.syncs", "1/day", lower, 100, 0},
		{"agent.syncs.hourly", "1/day", lower, 300, 0},
		{"control.mem", "MiB", lower, 50, 0},
		{"control.mem.rss", "MiB", lower, 0, 0},
		{"control.cpu", "% of a core", lower, 0.3, 0},
		{"control.disk", "MB/day", lower, 100, 0},
		{"control.disk.hourly", "MB/day", lower, 100, 0},
		{"control.syncs", "1/day", lower, 2000, 0},
		{"control.syncs.hourly", "1/day", lower, 2400, 0},
		{"container.mem", "MiB", lower, 2, 0},
		{"deploy.ratio", "x", lower, 2, 0},
		{"deploy.line", "ms", lower, 0, 0},
		{"deploy.line.p99", "ms", lower, 0, 0.99},
		{"deploy.bare", "ms", lower, 0, 0},
		{"deploy.ctr", "ms", lower, 0, 0},
		{"deploy.visible", "ms", lower, 40, 0},
		{"deploy.visible.p99", "ms", lower, 80, 0.99},
		{"deploy.hundred", "s", lower, 2, 0},
		{"deploy.hundred.ratio", "x", lower, 1.8, 0},
		{"deploy.hundred.bare", "s", lower, 0, 0},
		{"delete.hundred", "s", lower, 4, 0},
		{"binary.size", "MB", lower, 48, 0},
		{"failover.median", "s", lower, 0, 0},
		{"failover.p99", "s", lower, 5, 0.99},
		{"control.wire.fast", "kbit/s", lower, 1.5, 0},
		{"control.wire.metered", "kbit/s", lower, 0.25, 0},
		{"overlay.tcp.gso", "x", higher, 0.95, 0},
		{"overlay.tcp.mtu", "x", higher, 0.75, 0},
		{"overlay.tcp.default", "x", higher, 0.5, 0},
		{"overlay.tcp.wireguard", "x", higher, 2, 0},
		{"overlay.rtt", "x", lower, 1.3, 0},
		{"place.ldp", "ms", lower, 1, 0},
		{"place.ldp.p99", "ms", lower, 0, 0},
		{"place.rate", "1/s", higher, 10000, 0},
		{"sim.fleet", "workers", higher, 100000, 0},
	}
}

// newBudgets is a report of them without samples.
func newBudgets(options string) *report.Report {
	r := report.New("budget", "The goals of the design", options)
	for _, b := range budgets() {
		f := r.Figure("", b.name, "")
		f.Unit, f.Better, f.Quantile = b.unit, b.better, b.quantile
		if b.goal != 0 {
			goal := b.goal
			f.Goal = &goal
		}
	}
	return r
}

// unmeasured gives the figures that have no samples their reason.
func unmeasured(r *report.Report, why string) {
	for _, f := range r.Figures {
		if len(f.Samples) == 0 && f.Skip == "" {
			f.Skip = why
		}
	}
}
