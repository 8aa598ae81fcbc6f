package device

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Used is what the whole machine used while a case ran once in a place, starting it and everything beside it included,
// in seconds of a processor.
type Used struct {
	Seconds float64  `json:"seconds"` // it took
	User    float64  `json:"user"`
	System  float64  `json:"system"`
	SoftIRQ float64  `json:"softirq"` // interrupts too
	Guest   float64  `json:"guest"`   // of virtual machines
	Joules  *float64 `json:"joules,omitempty"`
}

// CPU is the processor time of all categories.
func (u *Used) CPU() float64 { return u.User + u.System + u.SoftIRQ + u.Guest }

// Efficiency is the work for a processor second, and for a joule, beside the bare machine's, in percent; less than 0 is a loss.
type Efficiency struct {
	CPU    float64  `json:"cpu"`
	Joules *float64 `json:"joules,omitempty"`
}

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

// averageUsed is the mean of some runs. Joules are told where all runs have them.
func averageUsed(list []Used) *Used {
	if len(list) == 0 {
		return nil
	}
	var u Used
	joules, n := 0.0, float64(len(list))
	for _, x := range list {
		u.Seconds, u.User, u.System, u.SoftIRQ, u.Guest = u.Seconds+x.Seconds/n, u.User+x.User/n, u.System+x.System/n, u.SoftIRQ+x.SoftIRQ/n,
			u.Guest+x.Guest/n
		if x.Joules != nil {
			joules += *x.Joules / n
		}
	}
	if !slices.ContainsFunc(list, func(x Used) bool { return x.Joules == nil }) {
		u.Joules = &joules
	}
	return &u
}

// efficiency compares work for what it used with the bare machine's. A case of a fixed time does work in proportion to its figure; others
// do the same work everywhere. Nil: what was used is too little to be told.
func efficiency(timed bool, bare, measured *Result) *Efficiency {
	b, m := bare.Mean, measured.Mean
	if b == nil || m == nil || b.CPU() == 0 || m.CPU() == 0 || bare.Summary == nil || measured.Summary == nil {
		return nil
	}
	work := 1.0
	if timed {
		if bare.Summary.Mean == 0 {
			return nil
		}
		work = measured.Summary.Mean / bare.Summary.Mean
	}
	e := &Efficiency{CPU: 100 * (work*b.CPU()/m.CPU() - 1)}
	if b.Joules != nil && m.Joules != nil && *b.Joules > 0 && *m.Joules > 0 {
		v := 100 * (work**b.Joules / *m.Joules - 1)
		e.Joules = &v
	}
	return e
}

// timed says that a case's program works for a time, and not until something is done.
func (c *Case) timed() bool {
	return c.wired || c.Tool != toolKernels && c.Tool != "7za" && c.Tool != "dd"
}

// usedBy sums up a group of cases in a place: the mean of what a run used, and of the efficiencies.
func (r *Report) usedBy(group, place string) (u *Used, e *Efficiency) {
	var list []Used
	var cpu, joules []float64
	for i := range r.Cases {
		res := r.Cases[i].Results[place]
		if r.Cases[i].Group != group || res == nil || res.Mean == nil {
			continue
		}
		list = append(list, *res.Mean)
		if res.Efficiency != nil {
			cpu = append(cpu, res.Efficiency.CPU)
			if res.Efficiency.Joules != nil {
				joules = append(joules, *res.Efficiency.Joules)
			}
		}
	}
	if len(cpu) > 0 {
		e = &Efficiency{CPU: middle(cpu)}
		if len(joules) > 0 {
			v := middle(joules)
			e.Joules = &v
		}
	}
	return averageUsed(list), e
}

func middle(list []float64) float64 {
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// usedLines tells what the processors did, by group and place.
func (r *Report) usedLines() (out []string) {
	for _, g := range groups {
		for _, p := range r.Places {
			u, e := r.usedBy(g, p.Name)
			if u == nil || u.CPU() == 0 {
				continue
			}
			share := func(v float64) float64 { return 100 * v / u.CPU() }
			line := fmt.Sprintf("%s in %s: %.2f s a run of %.2f s: user %.0f %%, system %.0f %%, interrupts %.0f %%, guest %.0f %%", g, p.Name,
				u.CPU(), u.Seconds, share(u.User), share(u.System), share(u.SoftIRQ), share(u.Guest))
			if u.Joules != nil {
				line += fmt.Sprintf("; %.2f J", *u.Joules)
			}
			if e != nil {
				line += fmt.Sprintf("; work for a processor second %+.0f %% in the median case", e.CPU)
				if e.Joules != nil {
					line += fmt.Sprintf(", for a joule %+.0f %%", *e.Joules)
				}
			}
			out = append(out, line)
		}
	}
	return out
}

// groups of cases, in the order of the report.
var groups = []string{"cpu", "memory", "disk", "os", "ipc", "net"}

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
