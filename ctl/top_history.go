package ctl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// historyStep is the time that one sign of a row of bars stands for.
const historyStep = time.Hour

// bars are the signs of a row, from nothing to all of it.
const bars = "▁▂▃▄▅▆▇█"

// topHistory shows what the site and its workers used in the last day. For other formats, which people do not read as rows of bars, the
// steps are finer.
func (a *app) topHistory(cmd *cobra.Command, client *api.Client, kind, format string, given []string) error {
	if len(given) > 0 && kind != "workers" {
		return skerry.Errorf(skerry.CodeInvalid, "there is no history of %s, only of workers and their site", kind).
			WithHint("leave the word out; the dashboard shows what one instance uses while you watch")
	}
	if a.cluster != "" {
		return skerry.Errorf(skerry.CodeUnsupported, "a site's history does not leave the site").
			WithHint("choose the cluster's context (`skerry context use NAME`)")
	}
	query := view.HistoryQuery{Workers: true, Span: 24 * time.Hour, Step: historyStep}
	if !slices.Contains([]string{"", formatTable, formatWide, formatName}, format) {
		query.Step = 10 * time.Minute
	}
	shown, err := client.History(cmd.Context(), query)
	if err != nil {
		return err
	}
	err = printList(cmd, format, shown.Series, historyTable(shown.Series, time.Now()))
	if err == nil && shown.Left > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d more workers have no history of their own; the site's has them\n", shown.Left)
	}
	return err
}

func historyTable(list []view.HistorySeries, now time.Time) *table {
	out := &table{head: []string{"NAME", "CPU, 24 HOURS", "LAST", "MOST", "MEMORY, 24 HOURS", "LAST", "MOST", "STORAGE",
		"INSTANCES", "RESTARTS", "RTT"}}
	for _, series := range list {
		name, ref := string(series.Worker), "worker/"+string(series.Worker)
		if name == "" {
			name, ref = "(site)", "site"
		}
		if len(series.Points) == 0 {
			out.add(ref, append([]string{name}, make([]string, len(out.head)-1)...))
			continue
		}
		cpu := func(p *view.HistoryPoint) int64 { return int64(p.CPU) }
		memory := func(p *view.HistoryPoint) int64 { return int64(p.Memory) }
		last, restarts, rtt := series.Points[len(series.Points)-1], 0, ""
		for _, p := range series.Points {
			restarts += p.Restarts
		}
		if last.RTTMs > 0 {
			rtt = strconv.FormatFloat(last.RTTMs, 'f', 1, 64) + "ms"
		}
		row := []string{name, drawBars(series.Points, cpu, int64(series.Capacity.CPU), now), cores(last.CPU),
			cores(skerry.MilliCPU(most(series.Points, cpu))), drawBars(series.Points, memory, int64(series.Capacity.Memory), now),
			size(last.Memory), size(skerry.Bytes(most(series.Points, memory))), size(last.Storage),
			strconv.Itoa(last.Instances), strconv.Itoa(restarts), rtt}
		if last.At.Before(now.Truncate(historyStep).Add(-historyStep)) { // it is away, and what it used then is not of now
			for _, n := range []int{2, 5, 7, 8, 10} {
				row[n] = ""
			}
		}
		out.add(ref, row)
	}
	return out
}

func most(points []view.HistoryPoint, of func(*view.HistoryPoint) int64) (out int64) {
	for n := range points {
		out = max(out, of(&points[n]))
	}
	return out
}

// drawBars draws a sign for each step of the last day, the last one for now: its height is the share of the capacity, or of the most if
// that is more. A step without a point is a dot.
func drawBars(points []view.HistoryPoint, of func(*view.HistoryPoint) int64, capacity int64, now time.Time) string {
	signs, all := []rune(bars), max(capacity, most(points, of), 1)
	const steps = int(24 * time.Hour / historyStep)
	row := []rune(strings.Repeat("·", steps))
	for n := range points {
		at := steps - 1 - int(now.Truncate(historyStep).Sub(points[n].At)/historyStep)
		if at >= 0 && at < steps {
			share := float64(max(of(&points[n]), 0)) / float64(all)
			row[at] = signs[min(int(share*float64(len(signs))), len(signs)-1)]
		}
	}
	return string(row)
}

// usedStorage is what is taken on a worker's disk; an agent that does not say gives nothing.
func usedStorage(r spec.Resources) string {
	if r.Storage == 0 {
		return ""
	}
	return size(r.Storage)
}
