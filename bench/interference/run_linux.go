package interference

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// Options say what to measure. The zero value is the matrix of the thesis, with its times.
type Options struct {
	Choice
	Places []string // names; empty: all
	Quick  bool
	// Warm, Load and Settle are the times of a row; 0: those of the thesis (30 s, 5 min, 2 min), or of Quick (2 s, 6 s, 1 s).
	Warm, Load, Settle time.Duration
	// Find searches where places are full. P99 is what an answer in a hundred may take longer than; 0: half a second.
	Find bool
	P99  time.Duration
	// Program and Neighbour are programs, the first one that of all services; empty: compiled from the source tree.
	Program, Neighbour string
	Machines           node.Machines
	report.Measuring
}

const defaultP99 = 500 * time.Millisecond

// Times that bound what waits for a service.
const (
	readyTime   = 2 * time.Minute
	requestTime = 30 * time.Second // of one request, as vegeta has it
)

// measuring is one call of Run.
type measuring struct {
	o         Options
	dir, root string
	places    []place
	cpus      []int
	nice      int
	all, done int                 // rows of the matrix
	settled   bool                // nothing ran since the last pause
	sums      map[string][]string // of the answers of each service
	messages  []string            // of sensors, to the MQTT stream service
	published *published.Set
	r         *report.Report
}

// Run measures. When ctx ends it returns the rows that are complete, and no error.
func Run(ctx context.Context, opt Options) (_ *report.Report, err error) {
	groups, err := opt.groups()
	if err != nil {
		return nil, err
	}
	warm, load, settle := 30*time.Second, 5*time.Minute, 2*time.Minute
	if opt.Quick {
		warm, load, settle = 2*time.Second, 6*time.Second, time.Second
	}
	for _, t := range []struct{ to, from *time.Duration }{{&opt.Warm, &warm}, {&opt.Load, &load}, {&opt.Settle, &settle}} {
		if *t.to == 0 {
			*t.to = *t.from
		}
	}
	if opt.P99 == 0 {
		opt.P99 = defaultP99
	}
	m := &measuring{o: opt, settled: true, r: report.New("interference", "What neighbours cost a service", opt.words())}
	m.r.Baseline = Bare
	m.r.Note("Each row: a fresh instance, then what the options say. Latency counts from when a request was due; overhead is the mean less what the service itself tells.")
	if opt.Quick {
		m.r.Note("Quick: the thesis took 30 s of warm-up, 300 s of load and 120 s to settle.")
	}
	if m.cpus, err = processors(); err != nil {
		return nil, err
	}
	turned, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // the kernel gives 20 less niceness
	if err != nil {
		return nil, err
	}
	m.nice = 20 - turned
	if m.published, err = published.Load(); err != nil {
		return nil, err
	}
	if m.dir, err = os.MkdirTemp("", "skerry-bench-interference-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir)) }()
	// Tasks in user namespaces, or of other users, must be able to enter.
	if err := os.Chmod(m.dir, 0o755); err != nil {
		return nil, err
	}
	if err := m.prepare(ctx, groups); err != nil {
		return nil, err
	}
	shut, err := m.open(ctx)
	defer func() { err = errors.Join(err, shut()) }()
	if err != nil {
		return nil, err
	}
	if err := m.r.Continue(opt.Measuring); err != nil {
		return nil, err
	}
	if err = m.o.Quiet.Begin(ctx); err == nil {
		err = m.groups(ctx, groups)
	}
	if ctx.Err() != nil {
		err = nil // what is complete is told
	}
	m.r.Finish(ctx, opt.Measuring)
	return m.r, err
}

// words are the options that change what figures mean.
func (o *Options) words() string {
	text := fmt.Sprintf("(%v of warm-up, %v of load, %v to settle)", o.Warm, o.Load, o.Settle)
	if o.Quick {
		text = "--quick " + text
	}
	return text
}

// prepare makes the root file system, and asks the services for the sums of their answers.
func (m *measuring) prepare(ctx context.Context, groups []group) error {
	beside := slices.ContainsFunc(groups, func(g group) bool { return g.Interference > 0 })
	m.root = filepath.Join(m.dir, "root")
	for _, d := range []string{"root/bin", "root/etc", "root/tmp", "root/proc", "root/sys", "root/dev", "root/data", "files", "net"} {
		if err := os.MkdirAll(filepath.Join(m.dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(m.root, "tmp"), 0o1777),
		os.WriteFile(filepath.Join(m.root, "etc/passwd"), []byte("root:x:0:0:root:/:/none\n"), 0o644)); err != nil {
		return err
	}
	// Who runs as a module, under any user, keeps its files there.
	if err := os.Chmod(filepath.Join(m.dir, "files"), 0o1777); err != nil {
		return err
	}
	for _, p := range []struct{ name, given, source string }{{servicesProgram, m.o.Program, "skerry.dev/skerry/examples/services"},
		{neighbour, m.o.Neighbour, "skerry.dev/skerry/bench/neighbour"}} {
		if p.name == neighbour && !beside {
			continue
		}
		to := filepath.Join(m.root, "bin", p.name)
		if p.given != "" {
			data, err := os.ReadFile(p.given)
			if err == nil {
				err = files.Program(to, bytes.NewReader(data), 0o755)
			}
			if err != nil {
				return err
			}
			continue
		}
		built := [][2]string{{to, ""}}
		if m.wanted(spec.RuntimeWasm) {
			built = append(built, [2]string{to + module, "GOOS=wasip1 GOARCH=wasm"})
		}
		for _, b := range built {
			cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b[0], p.source)
			cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), strings.Fields(b[1])...)
			if out, err := cmd.CombinedOutput(); err != nil {
				return skerry.Errorf(skerry.CodeUnavailable, "compile %s: %v: %s", p.name, err, strings.TrimSpace(string(out))).
					WithHint("run it in a checkout with Go installed, or give it static programs by --service-program and --neighbour-program")
			}
		}
	}
	m.sums = map[string][]string{}
	for _, g := range groups {
		if m.sums[g.Service] != nil {
			continue
		}
		sums, err := Sums(ctx, filepath.Join(m.root, "bin", servicesProgram), g.Service)
		if err != nil {
			return err
		}
		m.sums[g.Service] = sums
		if g.Service != MQTT {
			continue
		}
		if m.messages, err = lines(ctx, filepath.Join(m.root, "bin", servicesProgram), "messages", MQTT); err != nil {
			return err
		}
		if len(m.messages) != len(sums) {
			return skerry.Errorf(skerry.CodeUnavailable, "there are %d messages, and %d answers are known", len(m.messages), len(sums))
		}
	}
	return nil
}

// wanted reports whether a place was asked for.
func (m *measuring) wanted(name string) bool {
	return len(m.o.Places) == 0 || slices.Contains(m.o.Places, name)
}

// open makes the places, and has every runtime test itself.
func (m *measuring) open(ctx context.Context) (shut func() error, err error) {
	files := filepath.Join(m.dir, "files")
	known := []string{Bare}
	if m.wanted(Bare) {
		m.places = append(m.places, &process{root: m.root, files: files})
	}
	name := fmt.Sprintf("skerry-bench-%d", os.Getpid())
	drivers, err := node.OpenDrivers(node.WorkerConfig{Common: node.Common{Dir: filepath.Join(m.dir, "drivers")},
		Join: node.Join{Name: name}, CgroupParent: name, Machines: m.o.Machines})
	shut = func() (err error) {
		for _, d := range drivers {
			err = errors.Join(err, d.Close())
		}
		return errors.Join(err, removeGroups(name))
	}
	if err != nil {
		return shut, err
	}
	var skipped []report.Place
	for _, d := range drivers {
		known = append(known, d.Name())
		if !m.wanted(d.Name()) {
			continue
		}
		p := &driven{d: d, text: "runtime " + d.Name(), root: m.root, files: files, dir: filepath.Join(m.dir, "net")}
		m.o.Say("self-test of runtime %s", d.Name())
		rep := d.Check(ctx)
		if ctx.Err() != nil {
			return shut, ctx.Err()
		}
		if why := m.cannot(d.Name(), rep); why != "" {
			skipped = append(skipped, report.Place{Name: d.Name(), Text: p.text, Skip: why})
			continue
		}
		if rep.Version != "" {
			p.text += ", " + rep.Version
		}
		m.places = append(m.places, p)
	}
	for _, p := range m.places {
		m.r.Places = append(m.r.Places, p.told())
	}
	m.r.Places = append(m.r.Places, skipped...)
	for _, name := range m.o.Places {
		if !slices.Contains(known, name) {
			return shut, skerry.Errorf(skerry.CodeInvalid, "--in: there is no place %q", name).WithHint("there are %s", strings.Join(known, ", "))
		}
	}
	return shut, nil
}

// cannot tells why a runtime takes no part, or "".
func (m *measuring) cannot(name string, rep runtime.Report) string {
	switch {
	case !rep.Passed:
		return rep.Refusal()
	case name == spec.RuntimeWasm && m.o.Program+m.o.Neighbour != "":
		return "programs were given, which are no modules"
	case name == spec.RuntimeUnikernel || name == spec.RuntimeVM:
		return "its machines run a system of their own, not this service"
	}
	return ""
}

func (m *measuring) groups(ctx context.Context, groups []group) error {
	var places []string
	for _, p := range m.places {
		places = append(places, p.told().Name)
	}
	for _, g := range groups {
		m.all += len(g.rates) * len(m.places)
	}
	last := m.r.Rounds
	for i, g := range groups {
		for _, rate := range g.rates {
			round := m.round(g, rate)
			m.r.Rounds = round - 1
			for _, p := range m.places {
				x := &row{place: p.told().Name, Setting: g.Setting, rate: rate}
				if m.done++; len(x.ran(m.r).Samples) > 0 {
					continue // it was measured before
				}
				err := m.r.Part(ctx, m.o.Measuring, g.name(), x.place, func() (invalid string, err error) {
					if err = m.row(ctx, p, x); err == nil {
						x.add(m.r, m.published)
					}
					if x.outcome != nil {
						invalid = x.outcome.Invalid
					}
					return invalid, err
				})
				if err != nil {
					return err
				}
				change(m.r, groups[:i+1], places)
			}
			last = max(last, round)
			m.r.Rounds = last
		}
		if !m.o.Find {
			continue
		}
		for _, p := range m.places {
			if err := m.find(ctx, p, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// round is that of a load on a setting, in all places: the one that it has, or the next.
func (m *measuring) round(g group, rate float64) int {
	last := m.r.Rounds
	for _, f := range m.r.Figures {
		switch {
		case len(f.Rounds) == 0:
		case f.Group == g.name() && strings.HasSuffix(f.Name, atRate(rate)):
			return f.Rounds[0]
		default:
			last = max(last, f.Rounds[len(f.Rounds)-1])
		}
	}
	return last + 1
}

// find searches where a place is full, unless that is known.
func (m *measuring) find(ctx context.Context, p place, g group) error {
	place, of := p.told().Name, fmt.Sprintf("saturation: the rate that is done with a p99 of at most %v", m.o.P99)
	f := m.r.Figure(of, g.name(), place)
	if f.Unit, f.Better, f.Skip = "1/s", report.Higher, ""; len(f.Samples) > 0 {
		return nil
	}
	found, err := search(g.rates[0], ms(m.o.P99), func(rate float64) (Outcome, error) {
		x := &row{place: place, Setting: g.Setting, rate: rate}
		if err := m.row(ctx, p, x); err != nil {
			return Outcome{}, err
		}
		if x.skip != "" {
			f.Skip = x.skip
			return Outcome{}, errSkipped
		}
		came, err := m.o.Quiet.Round(ctx) // a disturbed try is repeated, not the search
		x.outcome.Invalid = cmp.Or(x.outcome.Invalid, came)
		return *x.outcome, err
	})
	switch {
	case errors.Is(err, errSkipped):
	case err != nil:
		return err
	case found.Low == 0:
		f.Skip = found.words()
	default:
		m.r.Add(f, found.Low)
		m.r.Note("Saturation of %s in %s: %s", g.name(), place, found.words())
	}
	return m.r.Keep(m.o.Measuring)
}

var errSkipped = errors.New("skipped")

// row runs one load, in a fresh instance. What a place cannot do is the row's reason for not having run.
func (m *measuring) row(ctx context.Context, p place, x *row) (err error) {
	x.skip, x.outcome, x.system = "", nil, map[string]float64{}
	pinned := x.Pin == PinBoth || x.Pin == PinOne && p.machine()
	l, why := arrange(m.cpus, x.Setting, pinned)
	if why == "" {
		why = p.lacks(x.Service)
	}
	if why != "" {
		x.skip = why
		return nil
	}
	if !m.settled {
		sleep(ctx, time.Now().Add(m.o.Settle))
	}
	m.settled = false
	m.o.Say("row %d of %d, about %v left: %s in %s, %g requests per second", m.done, m.all,
		(time.Duration(m.all-m.done+1) * (m.o.Warm + m.o.Load + m.o.Settle)).Round(time.Second), x.name(), x.place, x.rate)
	clean := context.WithoutCancel(ctx)
	fail := func(what string, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		x.skip = what + ": " + err.Error()
		return nil
	}
	service, err := p.start(ctx, limits{x.CPU, x.Memory, list(l.service)}, true, servicesProgram, "serve", x.Service, listenHere)
	if err != nil {
		return fail("the service does not start", err)
	}
	defer func() { err = errors.Join(err, service.stop(clean)) }()
	c := m.asker(service.addr(), x)
	defer c.close()
	if err := c.ready(ctx, service.alive); err != nil {
		return fail("the service does not answer", err)
	}
	var other task
	if x.Interference > 0 {
		n := int(math.Ceil(x.Interference))
		if other, err = p.start(ctx, limits{x.Interference, 1 << 30, list(l.neighbour)}, false, neighbour, x.Neighbour,
			strconv.Itoa(n)); err != nil {
			return fail("the neighbour does not start", err)
		}
		defer func() { err = errors.Join(err, other.stop(clean)) }()
	}
	if err := stay([]int{l.generator}, eager); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stay(m.cpus, m.nice)) }()
	g := generator{rate: x.rate, time: m.o.Warm, timeout: requestTime}
	if _, err := g.run(ctx, c.get); err != nil {
		return err
	}
	g.time = m.o.Load
	used := m.busy(ctx, x, other)
	shots, err := m.load(ctx, x, g, service, c)
	if err != nil {
		return err
	}
	used()
	if err := service.alive(ctx); err != nil {
		return fail("the service ended", err)
	}
	if other != nil {
		if err := other.alive(ctx); err != nil {
			return fail("the neighbour ended", err)
		}
	}
	o := g.fold(shots)
	x.outcome = &o
	return nil
}

// busy looks at a neighbour, and gives what looks again and tells how much it used.
func (m *measuring) busy(ctx context.Context, x *row, other task) func() {
	if other == nil {
		return func() {}
	}
	before, err := other.stats(ctx)
	return func() {
		after, again := other.stats(ctx)
		if err := errors.Join(err, again); err != nil {
			m.r.Note("Missing: %s does not tell what a neighbour uses: %v", x.place, err)
			return
		}
		x.system["processor time of the neighbour"] = percent(before, after, x.Interference)
	}
}

// load sends what counts, and watches the machine meanwhile.
func (m *measuring) load(ctx context.Context, x *row, g generator, service task, c asker) ([]shot, error) {
	before, unknown := service.stats(ctx)
	w := newWatch()
	step := max(time.Second, g.time/60) // of a part
	tick, stop := time.NewTicker(step), make(chan struct{})
	defer tick.Stop()
	parts := make(chan []float64, 1)
	go func() {
		if unknown != nil {
			parts <- nil
			return
		}
		parts <- sampled(ctx, service, before, x.CPU, func() bool {
			select {
			case <-tick.C:
				return true
			case <-stop:
				return false
			}
		})
	}()
	shots, err := g.run(ctx, c.get)
	after, unread := service.stats(ctx)
	close(stop)
	x.used = <-parts
	if err := errors.Join(err, w.end(x.system)); err != nil {
		return nil, err
	}
	for _, what := range w.missing {
		m.r.Note("Missing: %s", what)
	}
	if err := errors.Join(unknown, unread); err != nil {
		m.r.Note("Missing: %s does not tell what it uses: %v", x.place, err)
	} else {
		used(x.system, before, after, x.CPU)
	}
	x.parts = succeeded(shots, step, g.time)
	return shots, nil
}

// succeeded tells how many percent of the requests that were due in each part of a load succeeded.
func succeeded(shots []shot, step, all time.Duration) (out []float64) {
	for from := time.Duration(0); from < all; from += step {
		due, ok := 0.0, 0.0
		for _, shot := range shots {
			if shot.due >= from && shot.due < from+step {
				due++
				if shot.err == nil {
					ok++
				}
			}
		}
		if due > 0 {
			out = append(out, 100*ok/due)
		}
	}
	return out
}
