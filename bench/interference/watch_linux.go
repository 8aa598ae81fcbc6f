package interference

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// watch follows the machine during a load.
type watch struct {
	pressure map[string]float64
	perf     *exec.Cmd
	counts   bytes.Buffer
	missing  []string
}

// newWatch starts to count. What the machine does not tell is in missing.
func newWatch() *watch {
	w := &watch{pressure: pressure()}
	if len(w.pressure) == 0 {
		w.missing = append(w.missing, "pressure: the kernel has no PSI")
	}
	path, err := exec.LookPath("perf")
	if err != nil {
		w.missing = append(w.missing, "cycles, instructions, context switches, migrations, cache misses: perf is not installed")
		return w
	}
	w.perf = exec.Command(path, "stat", "-a", "-x,", "-e", strings.Join(counters(), ","))
	w.perf.Stderr = &w.counts
	if err := w.perf.Start(); err != nil {
		w.missing, w.perf = append(w.missing, "perf does not start: "+err.Error()), nil
	}
	return w
}

// end stops counting.
func (w *watch) end(system map[string]float64) error {
	now := pressure()
	for k, v := range w.pressure {
		system["pressure, "+k] = now[k] - v
	}
	if w.perf == nil {
		return nil
	}
	if err := w.perf.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = w.perf.Wait() // it ends by the signal, or with what is in counts
	counted, missing := parsePerf(w.counts.String())
	maps.Copy(system, counted)
	w.missing = append(w.missing, missing...)
	return nil
}

// parsePerf reads what perf stat -x, prints: VALUE,UNIT,EVENT,...
func parsePerf(text string) (counters map[string]float64, missing []string) {
	counters = map[string]float64{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ",")
		if len(f) < 3 || f[2] == "" {
			continue
		}
		v, err := strconv.ParseFloat(f[0], 64)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s: perf says %s", f[2], f[0]))
			continue
		}
		counters[f[2]] = v
	}
	if len(counters) == 0 && len(missing) == 0 {
		missing = []string{"perf counts nothing: " + strings.TrimSpace(text)}
	}
	return counters, missing
}

// pressure is how long some task of the machine has waited for each resource since it was started, in ms.
func pressure() map[string]float64 {
	out := map[string]float64{}
	for _, name := range pressures() {
		text, err := os.ReadFile(filepath.Join("/proc/pressure", name))
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(string(text), "\n")
		_, total, _ := strings.Cut(line, "total=")
		if us, err := strconv.ParseFloat(total, 64); err == nil && strings.HasPrefix(line, "some ") {
			out[name] = us / 1000
		}
	}
	return out
}

// used tells what a service used between two looks.
func used(system map[string]float64, before, after runtime.Stats, cpu float64) {
	system["processor time"], system["throttled"] = percent(before, after, cpu), ms(after.Throttled-before.Throttled)
	if waiting := ms(after.Waiting - before.Waiting); waiting >= 0 { // threads that have ended may have taken theirs with them
		system["waiting for a processor"] = waiting
	}
	if n := after.Periods - before.Periods; n > 0 {
		system["periods throttled"] = 100 * float64(after.ThrottledPeriods-before.ThrottledPeriods) / float64(n)
	}
}

func percent(before, after runtime.Stats, cpu float64) float64 {
	return 100 * (after.CPU - before.CPU).Seconds() / after.At.Sub(before.At).Seconds() / cpu
}

// processors gives those that this process may use, in order.
func processors() (out []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	for i := range 8 * len(set) * 8 {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out, nil
}

// eager is the niceness of the generator: it needs little, but at once, also where a neighbour has its processor.
const eager = -20

// stay binds every thread of this process to processors, with a niceness. Threads made later are as the one that makes them.
func stay(cpus []int, nice int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(filepath.Base(t))
		if err != nil {
			return err
		}
		if err := errors.Join(unix.SchedSetaffinity(id, &set), unix.Setpriority(unix.PRIO_PROCESS, id, nice)); err != nil &&
			!errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// sampled looks at a service at each tick, and gives the processor time between them in percent of its limit.
func sampled(ctx context.Context, t task, last runtime.Stats, cpu float64, tick func() bool) (out []float64) {
	for tick() {
		now, err := t.stats(ctx)
		if err != nil {
			break
		}
		out, last = append(out, percent(last, now, cpu)), now
	}
	return out
}
