package orchestrator

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"skerry.dev/skerry/bench/report"
)

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

// WriteHTML writes one file that needs nothing else, has no script, and prints.
func (r *LabReport) WriteHTML(w io.Writer) error {
	_, err := io.WriteString(w, r.page().String())
	return err
}

// Drawings gives the plots of the page, as SVG, by name.
func (r *LabReport) Drawings() map[string]string { return r.page().Drawings() }

func (r *LabReport) page() *report.Page {
	p := report.NewPage("What orchestration costs")
	p.Element("p", fmt.Sprintf("%s UTC, %d cells in %.0f s. Real processes of Skerry in network namespaces of one machine; settings take turns within each round. Bars are means with their 95 %% intervals.",
		r.Began.Format("2006-01-02 15:04"), len(r.Cells), r.Seconds))
	for _, line := range r.remarks() {
		p.Element(`p class="warn"`, line)
	}
	p.Facts("Machine", r.Machine)
	for _, part := range LabParts() {
		rows := slices.DeleteFunc(slices.Clone(r.Rows), func(x LabRow) bool { return x.Part != part })
		if len(rows) == 0 {
			continue
		}
		p.Element("h2", part)
		p.Element("p", labAbout(part))
		for _, m := range labMetrics() {
			var names []string
			var values, low, high []float64
			for _, row := range rows {
				if row.Metric == m[0] && len(row.Samples) > 0 {
					names, values = append(names, short(row.Setting)), append(values, row.Summary.Mean)
					low, high = append(low, row.Summary.Low), append(high, row.Summary.High)
				}
			}
			if len(values) > 1 {
				p.Bars(part+": "+m[0], m[1], "", names, values, low, high)
			}
		}
		if part == "deploy" {
			p.Lines("deploy: share of deployments that were ready", "s", "share", "", shares(rows))
		}
		p.Raw("<table>")
		p.Row("th", "setting", "measured", "median", "mean", "n", "against the first", "published")
		for _, row := range rows {
			median, mean := "–", "–"
			if len(row.Samples) > 0 {
				median = fmt.Sprintf("%.4g %s", row.Median, row.Unit)
				mean = fmt.Sprintf("%.4g ±%.1f %%", row.Summary.Mean, row.Summary.RSD)
			}
			n := fmt.Sprint(len(row.Samples))
			if row.Failed > 0 {
				n += fmt.Sprintf(", %d failed", row.Failed)
			}
			p.Row("td", row.Setting, row.Metric, median, mean, n, row.Ratio.told(), told(row.Published))
		}
		p.Raw("</table>")
	}
	return p
}

// short is a setting that fits below a bar.
func short(setting string) string {
	return strings.NewReplacer(" instances on each of ", " on ", " workers", "w", " clusters of 2", "c", " instances on each", "i", ", ",
		" ").Replace(setting)
}

// shares gives for each setting how many of its deployments were ready by when.
func shares(rows []LabRow) (out []report.Line) {
	for _, row := range rows {
		if row.Metric != "ready" || len(row.Samples) == 0 {
			continue
		}
		l := report.Line{Name: short(row.Setting)}
		for i, v := range slices.Sorted(slices.Values(row.Samples)) {
			l.Points = append(l.Points, [2]float64{v, float64(i+1) / float64(len(row.Samples))})
		}
		out = append(out, l)
	}
	return out
}
