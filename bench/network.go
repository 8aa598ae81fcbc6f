package bench

import (
	"errors"
	"fmt"
	"math"
)

// NetworkOptions say how much to measure. The zero value takes about eight minutes.
type NetworkOptions struct {
	Program     string // the skerry binary: datapaths and what is measured beside are child processes of it
	Quick, Full bool
	Small       bool     // durations for a test of the benchmark itself
	Cases       []string // empty: all
	Budget      bool     // what the budgets need, and no more
	Progress    func(string)
}

// Network is what the benchmark of the overlay found.
type Network struct {
	Machine   map[string]string `json:"machine"`
	LoadAfter string            `json:"loadAfter"`
	Wires     []NetWire         `json:"wires"`
	Loss      []NetLoss         `json:"loss,omitempty"`      // one TCP stream at 1 % of packets lost, on the 1500-byte wire
	Replicas  []NetReplicas     `json:"replicas,omitempty"`  // the paper's figure 8
	Downloads []NetDownload     `json:"downloads,omitempty"` // the paper's figure 12
	Routes    *NetRoutes        `json:"routes,omitempty"`
	Flows     []*NetFlows       `json:"flows,omitempty"`
	Skipped   []string          `json:"skipped,omitempty"` // what was not measured, and why
	Duration  float64           `json:"duration"`          // seconds
}

// NetWire is one kind of wire between the two hosts.
type NetWire struct {
	Wire  string    `json:"wire"` // gso: passes large segments; mtu: only packets of 1500 bytes
	Cases []NetCase `json:"cases"`
}

// NetCase is one way of sending over a wire.
type NetCase struct {
	Name    string            `json:"name"`
	Skip    string            `json:"skip,omitempty"` // why it was not measured
	Figures map[string]Figure `json:"figures,omitempty"`

	samples map[string][]float64 // by metric and round; NaN: it did not work
}

// Figure sums up rounds.
type Figure struct {
	Median float64 `json:"median"`
	Spread float64 `json:"spread"`          // half the distance between the quartiles
	Ratio  float64 `json:"ratio,omitempty"` // median over the rounds of this value over the direct one of the same round
	N      int     `json:"n"`

	ratios []float64
}

// NetLoss is a stream that loses packets.
type NetLoss struct {
	Case string `json:"case"`
	Gbit Figure `json:"gbit"`
}

// NetReplicas is the time of a request (connect, ask, answer) to a service address that leads to so many instances.
type NetReplicas struct {
	Case     string  `json:"case"`
	Replicas int     `json:"replicas"`
	Median   float64 `json:"median"` // microseconds
	P99      float64 `json:"p99"`
	N        int     `json:"n"`
	Least    int     `json:"least"` // requests that the instance with the fewest, and the one with the most, answered
	Most     int     `json:"most"`
}

// NetDownload is the time that a download takes over a way with delay.
type NetDownload struct {
	Case    string  `json:"case"`
	Delay   float64 `json:"delay"`   // ms, both ways together
	Seconds float64 `json:"seconds"` // median
	Spread  float64 `json:"spread"`
	N       int     `json:"n"`
}

// NetRoutes is how long a worker's data plane takes to take service addresses over, in ms.
type NetRoutes struct {
	Services int    `json:"services"`
	First    Figure `json:"first"`  // all are new
	Update   Figure `json:"update"` // each leads elsewhere
	Same     Figure `json:"same"`   // nothing changes
	MapBytes int64  `json:"mapBytes"`
}

// NetFlows is a table filled and emptied again and again.
type NetFlows struct {
	Protocol string     `json:"protocol"`
	Asked    int        `json:"asked"`
	Cycles   []NetCycle `json:"cycles"`
}

// NetCycle is one filling.
type NetCycle struct {
	Flows   int     `json:"flows"`   // at once
	Seconds float64 `json:"seconds"` // to fill
	Kernel  int64   `json:"kernel"`  // growth of the kernel's memory when full, in bytes
	Refused int64   `json:"refused"` // packets that would have begun one more
	Sweep   float64 `json:"sweep"`   // seconds: the longest look at all of them
	Left    int     `json:"left"`    // flows after expiry
	After   int64   `json:"after"`   // growth of the kernel's memory after expiry
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
		{"tcp1", "1 STREAM", "Gbit/s", false},
		{"tcp8", "8 STREAMS", "Gbit/s", false},
		{"cpu", "CPU", "s/Gbit", true},
		{"udp", "UDP", "Gbit/s", false},
		{"conns", "CONNECTIONS", "1/s", false},
		{"udp64", "UDP 64 B", "us", true},
		{"udp64.p99", "P99", "us", true},
	}
	for _, n := range messageSizes() {
		out = append(out, metric{fmt.Sprint("tcp", n, "b"), fmt.Sprint("TCP ", n, " B"), "us", true},
			metric{fmt.Sprint("tcp", n, "b.p99"), "P99", "us", true})
	}
	return out
}

// messageSizes are those of request and response, in bytes.
func messageSizes() []int { return []int{64, 256, 1024, 4096} }

// figureOf sums up values; base are those of the direct way in the same rounds.
func figureOf(values, base []float64) Figure {
	var good []float64
	f := Figure{}
	for i, v := range values {
		if math.IsNaN(v) {
			continue
		}
		good = append(good, v)
		if i < len(base) && base[i] > 0 {
			f.ratios = append(f.ratios, v/base[i])
		}
	}
	if f.N = len(good); f.N == 0 {
		return f
	}
	f.Median, f.Spread = Median(good), spread(good)
	if len(f.ratios) > 0 {
		f.Ratio = Median(f.ratios)
	}
	return f
}

func spread(v []float64) float64 { return (Quantile(v, 0.75) - Quantile(v, 0.25)) / 2 }

// fold works the figures out.
func (w *NetWire) fold() {
	var base map[string][]float64
	for _, c := range w.Cases {
		if c.Name == caseDirect {
			base = c.samples
		}
	}
	for i := range w.Cases {
		c := &w.Cases[i]
		c.Figures = map[string]Figure{}
		for name, values := range c.samples {
			if f := figureOf(values, base[name]); f.N > 0 {
				c.Figures[name] = f
			}
		}
	}
}

// find gives a figure; false: it was not measured.
func (n *Network) find(wire, name, metric string) (Figure, bool) {
	for _, w := range n.Wires {
		for _, c := range w.Cases {
			if w.Wire == wire && c.Name == name {
				f, ok := c.Figures[metric]
				return f, ok
			}
		}
	}
	return Figure{}, false
}

// networkBudgets takes the overlay's budgets out of a run.
func networkBudgets(n *Network) map[string]sample {
	out := map[string]sample{}
	of := func(budget, wire, name, metric string) {
		f, ok := n.find(wire, name, metric)
		if !ok || len(f.ratios) == 0 {
			why := errors.New("see what was skipped in `skerry bench network`")
			if len(n.Skipped) > 0 {
				why = errors.New(n.Skipped[0])
			}
			out[budget] = sample{err: why}
			return
		}
		d, _ := n.find(wire, caseDirect, metric)
		unit := "Gbit/s"
		if budget == "overlay.rtt" {
			unit = "us"
		}
		out[budget] = sample{values: f.ratios, context: fmt.Sprintf("%s %.3g %s, direct %.3g, in the same rounds", name, f.Median, unit,
			d.Median)}
	}
	of("overlay.tcp.gso", "gso", casePlain, "tcp1")
	of("overlay.tcp.mtu", "mtu", casePlain, "tcp1")
	of("overlay.tcp.default", "mtu", caseSealed, "tcp1")
	of("overlay.rtt", "mtu", casePlain, "udp64")
	if s := out["overlay.tcp.default"]; s.err == nil {
		if w, ok := n.find("mtu", caseWireguard, "tcp1"); ok && w.Median > 0 {
			f, _ := n.find("mtu", caseSealed, "tcp1")
			times := f.Median / w.Median
			s.context += fmt.Sprintf("; %.2g x wireguard-go (%.3g; goal 2)", times, w.Median)
			s.unmet = times < 2
		}
		out["overlay.tcp.default"] = s
	}
	if s := out["overlay.rtt"]; s.err == nil {
		s.context = "UDP of 64 bytes, 1500-byte wire; " + s.context
		if f, ok := n.find("mtu", casePlain, "tcp64b"); ok {
			s.context += fmt.Sprintf("; TCP %.2g x", f.Ratio)
		}
		if f, ok := n.find("mtu", caseSealed, "udp64"); ok {
			s.context += fmt.Sprintf("; sealed %.2g x", f.Ratio)
		}
		out["overlay.rtt"] = s
	}
	return out
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
