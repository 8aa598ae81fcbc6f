package bench

import (
	"fmt"
)

// plots draws the results; the keys are file names without their ending.
func plots(s *Schedule) map[string]string {
	out := map[string]string{}
	note := fmt.Sprintf("simulated machines, the real scheduler, no network; %s, %s cores", s.Machine["cpu"], s.Machine["cores"])
	byTotal := map[int][]Split{}
	for _, x := range s.Splits {
		byTotal[x.Workers] = append(byTotal[x.Workers], x)
	}
	for total, list := range byTotal {
		c := chart{title: fmt.Sprintf("One decision: %d workers split into clusters", total), note: note, xLabel: "clusters x workers in each",
			yLabel: "microseconds, median", logY: total > 1000}
		root, cluster, both := series{name: "root"}, series{name: "cluster"}, series{name: "both"}
		for i, x := range list {
			c.ticks = append(c.ticks, fmt.Sprintf("%d x %s", x.Clusters, perCluster(x)))
			at := float64(i)
			root.points, cluster.points, both.points = append(root.points, [2]float64{at, x.Root.Median}),
				append(cluster.points, [2]float64{at, x.Cluster.Median}), append(both.points, [2]float64{at, x.Both.Median})
		}
		c.series = []series{root, cluster, both}
		out[fmt.Sprintf("schedule-split-%d", total)] = c.svg()
	}
	c := chart{title: "One decision in one cluster", note: note, xLabel: "workers", yLabel: "microseconds", logX: true, logY: true,
		goal: 1000, goalText: "goal at 10,000: 1 ms"}
	lines := []series{{name: "ROM, median"}, {name: "ROM, p99"}, {name: "LDP, median"}, {name: "LDP, p99"}}
	for _, x := range s.Sizes {
		for i, v := range []float64{x.ROM.Median, x.ROM.P99, x.LDP.Median, x.LDP.P99} {
			lines[i].points = append(lines[i].points, [2]float64{float64(x.Workers), v})
		}
	}
	c.series = append(lines, series{name: "Oakestra LDP, 100", dots: true, points: [][2]float64{{100, oakestraLDP}}})
	out["schedule-size"] = c.svg()

	bars := func(file, title, y string, goal float64, goalText string, list ...series) {
		c := chart{title: title, note: note, yLabel: y, goal: goal, goalText: goalText}
		for _, q := range s.Quality {
			c.ticks = append(c.ticks, q.Policy)
		}
		for i := range list {
			list[i].bars = true
		}
		c.series = list
		out[file] = c.svg()
	}
	of := func(name string, value func(Quality) float64) series {
		x := series{name: name}
		for i, q := range s.Quality {
			x.points = append(x.points, [2]float64{float64(i), value(q)})
		}
		return x
	}
	if len(s.Quality) == 0 {
		return out
	}
	best := s.Quality[0]
	for _, q := range s.Quality {
		best.Slowdown, best.Watts = max(best.Slowdown, q.Slowdown), max(best.Watts, q.Watts)
	}
	bars("schedule-objective", fmt.Sprintf("Services with a user: what each policy makes of them (%d machines)", s.Fleet),
		"% of services asked for", 0, "", of("placed", func(q Quality) float64 { return 200 * float64(q.Limited) / float64(q.Asked) }),
		of("within 20 ms, 120 km", func(q Quality) float64 { return 200 * float64(q.Limited) * q.Meet / float64(q.Asked) }))
	bars("schedule-cost", "What the placements cost", "% of the worst policy or of all", 0, "",
		of("workers used", func(q Quality) float64 { return 100 * float64(q.Used) / float64(s.Fleet) }),
		of("slow-down", func(q Quality) float64 { return 100 * q.Slowdown / max(best.Slowdown, 1e-9) }),
		of("watts", func(q Quality) float64 { return 100 * q.Watts / max(best.Watts, 1e-9) }))
	rate := series{name: "per second", bars: true}
	c = chart{title: fmt.Sprintf("Placements per second, one core, %d workers", rateWorkers(s)), note: note,
		yLabel: "decided and written down", goal: 10_000, goalText: "goal: 10,000"}
	for i, r := range s.Rates {
		c.ticks, rate.points = append(c.ticks, r.Policy), append(rate.points, [2]float64{float64(i), r.PerSecond})
	}
	c.series = []series{rate}
	out["schedule-rate"] = c.svg()
	return out
}

// oakestraLDP is the design's figure for Oakestra's own LDP over 100 workers, in microseconds; over 500 it gave no answer.
// It comes from another machine and may cover more than the decision.
const oakestraLDP = 59_000

func rateWorkers(s *Schedule) int {
	if len(s.Rates) == 0 {
		return 0
	}
	return s.Rates[0].Workers
}
