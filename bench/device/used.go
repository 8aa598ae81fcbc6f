package device

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry/bench/report"
)

// Used is what the whole machine used while a case ran once in a place, starting it and everything beside it included,
// in seconds of a processor.
type Used struct {
	User, System float64
	SoftIRQ      float64 // interrupts too
	Guest        float64 // of virtual machines
	Joules       float64 // NaN: nothing measures them
}

// CPU is the processor time of all categories.
func (u *Used) CPU() float64 { return u.User + u.System + u.SoftIRQ + u.Guest }

// ticks of /proc/stat in a second: USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// parseUsed reads the first line of /proc/stat.
func parseUsed(text string) (u Used, err error) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return u, fmt.Errorf("%q is not the processors' line of /proc/stat", line)
	}
	var v [10]float64 // user nice system idle iowait irq softirq steal guest guest_nice
	for i, s := range f[1:min(len(f), 11)] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc/stat: %w", err)
		}
		v[i] = float64(n) / ticks
	}
	guest := v[8] + v[9]
	return Used{User: max(0, v[0]+v[1]-guest), System: v[2], SoftIRQ: v[5] + v[6], Guest: guest}, nil // guests are counted as user, too
}

// since gives what was used from before until now.
func (u Used) since(before Used) Used {
	less := func(a, b float64) float64 { return max(0, math.Round((a-b)*ticks)/ticks) }
	return Used{User: less(u.User, before.User), System: less(u.System, before.System), SoftIRQ: less(u.SoftIRQ, before.SoftIRQ),
		Guest: less(u.Guest, before.Guest)}
}

// ran is one run of a case in the present round, as far as it gave a figure.
type ran struct {
	c     *Case
	place string
	value float64
	used  Used
}

// derived is a figure that follows from the runs of a round, for each place and each of some groups of cases.
type derived struct {
	unit, better string
	// of gives what a run has of it, with the bare machine's run of the same case, or nil; what is no number has no part in it.
	of   func(x, bare *ran) float64
	over func([]float64) float64 // of a group's runs
}

// add adds its figures; under names the groups of a case and the figure of each.
func (d derived) add(r *report.Report, runs []ran, bare map[string]*ran, under func(*Case) [][2]string) {
	var order []*report.Figure
	values := map[*report.Figure][]float64{}
	for i := range runs {
		x := &runs[i]
		v := d.of(x, bare[x.c.ID])
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		for _, name := range under(x.c) {
			f := r.Figure(name[0], name[1], x.place)
			if f.Unit, f.Better = d.unit, d.better; values[f] == nil {
				order = append(order, f)
			}
			values[f] = append(values[f], v)
		}
	}
	for _, f := range order {
		r.Add(f, d.over(values[f]))
	}
}

// derive adds what follows from the runs of the present round: the processor time of a run by group of cases, the work for a
// processor second and for a joule beside the bare machine's, and how many times as long work takes as there.
func derive(r *report.Report, runs []ran) {
	bare := map[string]*ran{}
	for i := range runs {
		if runs[i].place == Bare {
			bare[runs[i].c.ID] = &runs[i]
		}
	}
	seconds := func(of func(*Used) float64) derived {
		return derived{"s/run", report.Lower, func(x, _ *ran) float64 { return of(&x.used) }, mean}
	}
	perUse := func(of func(*Used) float64) derived {
		return derived{"times bare's", report.Higher, func(x, b *ran) float64 {
			if b == nil || x.place == Bare || x.c.killed {
				return math.NaN()
			}
			work := 1.0
			if x.c.timed() { // it does work in proportion to its figure; others do the same everywhere
				work = x.value / b.value
			}
			return work * of(&b.used) / of(&x.used)
		}, report.Median}
	}
	for _, x := range []struct {
		name string
		derived
	}{
		{"user", seconds(func(u *Used) float64 { return u.User })},
		{"system", seconds(func(u *Used) float64 { return u.System })},
		{"interrupts", seconds(func(u *Used) float64 { return u.SoftIRQ })},
		{"guest", seconds(func(u *Used) float64 { return u.Guest })},
		{workPerCPU, perUse((*Used).CPU)},
		{"energy", derived{"J/run", report.Lower, func(x, _ *ran) float64 { return x.used.Joules }, mean}},
		{"work for a joule", perUse(func(u *Used) float64 { return u.Joules })},
	} {
		x.add(r, runs, bare, func(c *Case) [][2]string { return [][2]string{{"whole machine, cases of " + c.Group, x.name}} })
	}
	times := derived{"times as long", report.Lower, func(x, b *ran) float64 {
		switch {
		case b == nil || x.place == Bare || x.c.killed:
			return math.NaN()
		case x.c.Better == report.Higher:
			return b.value / x.value
		}
		return x.value / b.value
	}, geometricMean}
	times.add(r, runs, bare, func(c *Case) [][2]string { return [][2]string{{profileGroup, c.Group}, {profileGroup, c.Class}} })
}

// Names of figures that are derived.
const (
	profileGroup = "profile: how many times as long work takes as on the bare machine"
	workPerCPU   = "work for a processor second"
)

func mean(list []float64) (v float64) {
	for _, x := range list {
		v += x / float64(len(list))
	}
	return v
}

func geometricMean(list []float64) (v float64) {
	for _, x := range list {
		v += math.Log(x) / float64(len(list))
	}
	return math.Exp(v)
}

// parseMeter reads what a meter has written until now: lines of a time in seconds since 1970 and the watts from then
// on. It gives the joules.
func parseMeter(in io.Reader, now time.Time) (joules float64, err error) {
	text, err := io.ReadAll(io.LimitReader(in, 64<<20))
	if err != nil {
		return 0, err
	}
	lines := strings.Split(string(text), "\n")
	lines = lines[:len(lines)-1] // the last one is not yet whole, or empty
	var at, watts float64
	n := 0
	for _, line := range lines {
		left, right, ok := strings.Cut(strings.TrimSpace(line), ",")
		t, err1 := number(strings.TrimSpace(left))
		w, err2 := number(strings.TrimSpace(right))
		if !ok || err1 != nil || err2 != nil {
			if n == 0 {
				continue // the names of the columns
			}
			return 0, fmt.Errorf("%q is not a time and watts", line)
		}
		if n > 0 {
			if t < at {
				return 0, fmt.Errorf("%q is before the line above", line)
			}
			joules += watts * (t - at)
		}
		at, watts = t, w
		n++
	}
	if n == 0 {
		return 0, errors.New("there is no line with a time and watts")
	}
	if rest := float64(now.UnixNano())/1e9 - at; rest > 0 {
		joules += watts * rest
	}
	return joules, nil
}
