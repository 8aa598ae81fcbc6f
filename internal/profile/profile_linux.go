// Package profile measures what work costs in each runtime of a machine, for placement. It knows no role.
package profile

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// requestsEach take about a second of a processor.
const requestsEach = 8000

// workTime bounds the work in one runtime.
const workTime = 10 * time.Minute

// Options say how a profile is taken.
type Options struct {
	Drivers  []runtime.Driver // that have tested themselves, and pass
	Program  string           // that runs WorkMain as WorkCommand, and passes CheckStatic
	Dir      string           // where an image for it is made
	Rounds   int              // 3 takes less than a minute without machines that are emulated
	Progress func(string)
}

// CheckStatic reports, as CodeUnsupported, a program that needs shared libraries: it works where it was built and not in the image that
// Take makes of it, which has nothing else.
func CheckStatic(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("program %s: %w", program, err)
	}
	defer f.Close()
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("program %s: %w", program, err)
	}
	return skerry.Errorf(skerry.CodeUnsupported, "a profile is taken of %s in containers of its own, where the shared libraries that it needs are not: %s", program, strings.Join(libraries, ", ")).
		WithHint("use a released program, or build it statically, as `make build` does: CGO_ENABLED=0 go build ./cmd/skerry")
}

// Take measures how much processor time the same work takes in each runtime, as a multiple of what it takes in a
// container: as the runtime's own counters tell it, so that what sandboxes and machines do beside the work counts, and
// the load of the machine hardly. What starting takes is measured by itself and left out. Beside it stands how many
// requests were answered in a second by the clock, in which the load does count. All take turns; the median of the
// rounds counts. Reasons tell of runtimes that could not be measured.
func Take(ctx context.Context, o Options) (_ map[string]wire.RuntimeProfile, reasons map[string]string, err error) {
	if !slices.ContainsFunc(o.Drivers, func(driver runtime.Driver) bool { return driver.Name() == spec.RuntimeOCI }) {
		return nil, nil, skerry.Errorf(skerry.CodeUnsupported, "a profile compares with containers, and runtime %s does not work here",
			spec.RuntimeOCI).WithHint("skerry worker check tells why")
	}
	if err := CheckStatic(o.Program); err != nil {
		return nil, nil, err
	}
	root := filepath.Join(o.Dir, "work")
	for _, d := range []string{"tmp", "proc", "dev", "sys"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return nil, nil, err
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(root, "tmp"), 0o1777), copyProgram(filepath.Join(root, "skerry"), o.Program)); err != nil {
		return nil, nil, err
	}
	reasons = map[string]string{}
	times, rates, shares := map[string][]float64{}, map[string][]float64{}, map[string][]float64{} // by runtime; times in seconds
	answer := ""
	for round := range o.Rounds {
		for k := range o.Drivers {
			driver := o.Drivers[(k+round)%len(o.Drivers)]
			name := driver.Name()
			if reasons[name] != "" {
				continue
			}
			if o.Progress != nil {
				o.Progress(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, name))
			}
			idle, err := workIn(ctx, driver, root, 0)
			var busy worked
			if err == nil {
				busy, err = workIn(ctx, driver, root, requestsEach)
			}
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			if answer == "" {
				answer = busy.said
			}
			switch {
			case err != nil:
				reasons[name] = err.Error()
			case busy.said != answer:
				reasons[name] = fmt.Sprintf("it answered %q, others %q", busy.said, answer)
			case busy.cpu <= idle.cpu || busy.clock <= 0:
				reasons[name] = "its counters do not tell the work"
			default:
				cpu, clock := (busy.cpu - idle.cpu).Seconds(), busy.clock.Seconds()
				times[name], rates[name], shares[name] = append(times[name], cpu), append(rates[name], requestsEach/clock),
					append(shares[name], cpu/clock)
			}
		}
	}
	container := median(times[spec.RuntimeOCI])
	if why := reasons[spec.RuntimeOCI]; why != "" || !(container > 0) {
		return nil, reasons, skerry.Errorf(skerry.CodeUnavailable, "the work could not be done in a container: %s", why)
	}
	out, at := map[string]wire.RuntimeProfile{}, time.Now().UTC().Truncate(time.Second)
	for name, list := range times {
		if reasons[name] == "" {
			rate := median(rates[name])
			out[name] = wire.RuntimeProfile{CPU: median(list) / container, At: at, Rate: rate, Share: median(shares[name]),
				Spread: (slices.Max(rates[name]) - slices.Min(rates[name])) / rate}
		}
	}
	return out, reasons, nil
}

// worked is what a runtime did of the work.
type worked struct {
	cpu   time.Duration // processor time, with what starting takes
	clock time.Duration // that the requests took, as the work itself saw it
	said  string        // at its end
}

func workIn(ctx context.Context, driver runtime.Driver, root string, requests int) (out worked, err error) {
	counters, ok1 := driver.(runtime.Statser)
	logs, ok2 := driver.(runtime.Logger)
	if !ok1 || !ok2 {
		return out, errors.New("it does not count processor time, or keeps no output")
	}
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	id := fmt.Sprintf("profile-%d-%d", os.Getpid(), time.Now().UnixNano())
	task := runtime.Spec{ID: runtime.TaskID(id + ".main.1"), Instance: skerry.InstanceID(id), Container: spec.MainContainer, Dir: "/tmp",
		Env: []string{"PATH=/", "TMPDIR=/tmp", "GOMAXPROCS=1"}, Resources: runtime.Resources{Memory: 256 * skerry.MiB, CPU: 1000}}
	args := []string{WorkCommand, strconv.Itoa(requests)}
	if driver.Name() == spec.RuntimeNative {
		task.RootFS, task.Args = []runtime.Mount{{Type: "bind", Source: root}}, append([]string{filepath.Join(root, "skerry")}, args...)
	} else {
		task.RootFS, task.Args = []runtime.Mount{runtime.Overlay(root)}, append([]string{"/skerry"}, args...)
	}
	handle, err := driver.Start(ctx, task)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, driver.Remove(context.WithoutCancel(ctx), handle)) }()
	lines, err := logs.OpenLog(ctx, handle, runtime.LogOptions{Follow: true})
	if err != nil {
		return out, err
	}
	defer lines.Close()
	for !strings.HasPrefix(out.said, "done ") {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return out, fmt.Errorf("it ended without an answer: %s", out.said)
		}
		if err != nil {
			return out, err
		}
		if text, ok := strings.CutPrefix(l.Line, "took "); ok {
			ns, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return out, fmt.Errorf("it tells %q as its time", text)
			}
			out.clock = time.Duration(ns)
			continue
		}
		out.said = l.Line
	}
	st, err := counters.Stats(ctx, handle) // while it still runs, as its group may go with it
	out.cpu = st.CPU
	return out, err
}

func copyProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return files.Program(to, in, 0o755)
}

// median is NaN for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
