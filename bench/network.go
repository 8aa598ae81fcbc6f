package bench

import (
	"fmt"
	"slices"

	"skerry.dev/skerry/bench/report"
)

// NetworkOptions say how much to measure. The zero value takes about ten minutes.
type NetworkOptions struct {
	Program     string // the skerry binary: datapaths and what is measured beside are child processes of it
	Quick, Full bool
	Small       bool     // durations for a test of the benchmark itself
	Cases       []string // empty: all
	Budget      bool     // what the budgets need, and no more
	report.Measuring
}

// metric is something that is measured of each case.
type metric struct {
	name, title, unit string
	lower             bool // is better
}

const caseDirect = "direct"

// metrics lists what is measured of each case, in the order of the table.
func metrics() []metric {
	out := []metric{
		{"tcp1", "1 TCP stream", "Gbit/s", false},
		{"tcp8", "8 TCP streams", "Gbit/s", false},
		{"cpu", "processor time of 1 stream", "s/Gbit", true},
		{"udp", "UDP, 1200 B, 0.1 % lost at most", "Gbit/s", false},
		{"conns", "connections", "1/s", false},
		{"udp64", "round trip, UDP, 64 B", "us", true},
		{"udp64.p99", "p99, UDP, 64 B", "us", true},
	}
	for _, n := range messageSizes() {
		out = append(out, metric{fmt.Sprint("tcp", n, "b"), fmt.Sprintf("round trip, TCP, %d B", n), "us", true},
			metric{fmt.Sprint("tcp", n, "b.p99"), fmt.Sprintf("p99, TCP, %d B", n), "us", true})
	}
	return out
}

// messageSizes are those of request and response, in bytes.
func messageSizes() []int { return []int{64, 256, 1024, 4096} }

// writeSizes are those of the writes of a stream, in bytes.
func writeSizes() []int { return []int{16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10} }

// figure is a metric of a case on a wire.
func (m metric) figure(r *report.Report, group, place string) *report.Figure {
	f := r.Figure(group, m.title, place)
	f.Unit, f.Better = m.unit, report.Higher
	if m.lower {
		f.Better = report.Lower
	}
	return f
}

// metricOf gives a metric by its name.
func metricOf(name string) metric {
	all := metrics()
	return all[slices.IndexFunc(all, func(m metric) bool { return m.name == name })]
}

// networkBudgets takes the overlay's budgets out of a run, whose rounds become the next of the budgets'.
func networkBudgets(n, to *report.Report) {
	of := func(budget, wire, metric, place, against string) {
		f, base := n.Find(wire, metricOf(metric).title, place), n.Find(wire, metricOf(metric).title, against)
		goal := to.Find("", budget, "")
		if f == nil || base == nil || f.Value == nil || base.Value == nil {
			goal.Skip = "see what was skipped in `skerry bench network`"
			if len(n.Notes) > 0 {
				goal.Skip = n.Notes[0]
			}
			return
		}
		rounds, ratios := report.Ratios(base, f)
		for i, v := range ratios {
			goal.Rounds, goal.Samples = append(goal.Rounds, to.Rounds+rounds[i]), append(goal.Samples, v)
		}
		goal.About = fmt.Sprintf("%s %.3g %s, %s %.3g, in the same rounds", place, f.Value.Value, f.Unit, against, base.Value.Value)
	}
	of("overlay.tcp.gso", "gso", "tcp1", casePlain, caseDirect)
	of("overlay.tcp.mtu", "mtu", "tcp1", casePlain, caseDirect)
	of("overlay.tcp.default", "mtu", "tcp1", caseSealed, caseDirect)
	of("overlay.tcp.wireguard", "mtu", "tcp1", caseSealed, caseWireguard)
	of("overlay.rtt", "mtu", "udp64", casePlain, caseDirect)
	for _, m := range n.Disturbed {
		to.Disturbed = append(to.Disturbed, report.Mark{Round: to.Rounds + m.Round, By: m.By})
	}
	to.Rounds, to.Repeated = to.Rounds+n.Rounds, to.Repeated+n.Repeated
}

// Names of cases.
const (
	caseRouted    = "routed"
	caseNFT       = "nftables"
	caseVXLAN     = "vxlan"
	caseWireguard = "wireguard-go"
	caseKernel    = "kernel"
	caseSealed    = "sealed"
	casePlain     = "plain"
	caseRelayed   = "relayed"
	caseFallback  = "fallback"
)

// cases tells what each case is, in the order in which they take turns.
func cases() [][2]string {
	return [][2]string{
		{caseDirect, "from host to host by the wire, nothing between"},
		{caseRouted, "instance to instance by bridges and routes, no service address"},
		{caseNFT, "service address by nftables (DNAT, masquerade), bridges and routes"},
		{caseVXLAN, "service address by nftables (DNAT), VXLAN device of the kernel"},
		{caseWireguard, "instance to instance by wireguard-go, no service address"},
		{caseKernel, "Skerry as shipped where the kernel has WireGuard: service address, encrypted by that"},
		{caseSealed, "Skerry as shipped elsewhere: service address, sealed"},
		{casePlain, "Skerry: service address on a trusted network, not sealed"},
		{caseRelayed, "Skerry: service address, sealed, the direct way blocked"},
		{caseFallback, "Skerry where BPF is not to be had: service address by nftables, sealed"},
	}
}
