package bench

import (
	"fmt"
	"slices"
)

// networkPlots draws the results; the keys are file names without their ending.
func networkPlots(n *Network) map[string]string {
	out := map[string]string{}
	note := fmt.Sprintf("two hosts in namespaces of one machine, in turns; %s, %s cores, Linux %s", n.Machine["cpu"], n.Machine["cores"],
		n.Machine["kernel"])
	bars := func(file, title, y string, goal float64, goalText string, metrics ...string) {
		c := chart{title: title, note: note, yLabel: y, goal: goal, goalText: goalText}
		for _, w := range n.Wires {
			for _, m := range metrics {
				s := series{name: w.Wire, bars: true}
				if len(metrics) > 1 {
					s.name += ", " + m
				}
				for _, k := range w.Cases {
					f, ok := k.Figures[m]
					if !ok || k.Name == caseDirect {
						continue
					}
					at := slices.Index(c.ticks, k.Name)
					if at < 0 {
						at = len(c.ticks)
						c.ticks = append(c.ticks, k.Name)
					}
					s.points = append(s.points, [2]float64{float64(at), f.Ratio})
				}
				if len(s.points) > 0 {
					c.series = append(c.series, s)
				}
			}
		}
		if len(c.series) > 0 {
			out[file] = c.svg()
		}
	}
	bars("network-tcp", "One TCP stream between instances", "of direct", 0.5, "goal, sealed", "tcp1")
	bars("network-rtt", "Round trip of 64 bytes by UDP", "times direct", 1.3, "goal, plain", "udp64")
	bars("network-cpu", "Processor time for each Gbit", "times direct", 0, "", "cpu")
	lines := func(file, title, x, y string, logX bool, each func(add func(name string, x, y float64))) {
		c := chart{title: title, note: note, xLabel: x, yLabel: y, logX: logX}
		each(func(name string, x, y float64) {
			i := slices.IndexFunc(c.series, func(s series) bool { return s.name == name })
			if i < 0 {
				i = len(c.series)
				c.series = append(c.series, series{name: name})
			}
			c.series[i].points = append(c.series[i].points, [2]float64{x, y})
		})
		if len(c.series) > 0 {
			out[file] = c.svg()
		}
	}
	lines("network-replicas", "Connect, ask, answer by a service address", "instances behind it", "microseconds, median", false,
		func(add func(string, float64, float64)) {
			for _, r := range n.Replicas {
				add(r.Case, float64(r.Replicas), r.Median)
			}
		})
	lines("network-download", "A download of 100 MB", "round trip in ms", "seconds, median", true, func(add func(string, float64, float64)) {
		for _, d := range n.Downloads {
			add(d.Case, d.Delay, d.Seconds)
		}
	})
	return out
}
