package interference

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// events of perf that the thesis counted.
const events = "cycles,instructions,context-switches,cpu-migrations,cache-references,cache-misses"

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
	w.perf = exec.Command(path, "stat", "-a", "-x,", "-e", events)
	w.perf.Stderr = &w.counts
	if err := w.perf.Start(); err != nil {
		w.missing, w.perf = append(w.missing, "perf does not start: "+err.Error()), nil
	}
	return w
}

// end stops counting.
func (w *watch) end(s *System) error {
	if now := pressure(); len(w.pressure) > 0 {
		s.Pressure = map[string]float64{}
		for k, v := range w.pressure {
			s.Pressure[k] = now[k] - v
		}
	}
	if w.perf == nil {
		return nil
	}
	if err := w.perf.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = w.perf.Wait() // it ends by the signal, or with what is in counts
	var missing []string
	s.Counters, missing = parsePerf(w.counts.String())
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
	for _, name := range []string{"cpu", "memory", "io"} {
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
func (s *System) used(before, after runtime.Stats, cpu float64) {
	share := percent(before, after, cpu)
	throttled, waiting := ms(after.Throttled-before.Throttled), ms(after.Waiting-before.Waiting)
	s.CPU, s.Throttled = &share, &throttled
	if waiting >= 0 { // threads that have ended may have taken theirs with them
		s.Waiting = &waiting
	}
	if n := after.Periods - before.Periods; n > 0 {
		periods := 100 * float64(after.ThrottledPeriods-before.ThrottledPeriods) / float64(n)
		s.Periods = &periods
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

// sample looks at a service until ctx ends, at each of some moments, and gives the processor time between them in percent of its limit.
type sampler struct {
	at  []float64
	cpu []float64
}

func (s *sampler) run(ctx context.Context, t task, first runtime.Stats, cpu float64, tick func() bool) {
	last := first
	for tick() {
		now, err := t.stats(ctx)
		if err != nil {
			return
		}
		s.at = append(s.at, now.At.Sub(first.At).Seconds())
		s.cpu = append(s.cpu, percent(last, now, cpu))
		last = now
	}
}
