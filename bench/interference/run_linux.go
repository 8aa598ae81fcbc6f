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
	"skerry.dev/skerry/bench/quiet"
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
	// Resume is a report to go on from; nil: none. What ran in it and is valid is not run again.
	Resume *Report
	// Quiet waits for a quiet machine before the first row and after each; nil: it does not wait.
	Quiet *quiet.Watch
	// Progress is told what is being done; Keep is given the report after each row.
	Progress func(string)
	Keep     func(*Report) error
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
	all       int                 // rows of the matrix
	sums      map[string][]string // of the answers of each service
	messages  []string            // of sensors, to the MQTT stream service
	published *published.Set
	r         *Report
}

func (m *measuring) say(format string, args ...any) {
	if m.o.Progress != nil {
		m.o.Progress(fmt.Sprintf(format, args...))
	}
}

// Run measures. When ctx ends it returns the rows that are complete, and no error.
func Run(ctx context.Context, opt Options) (_ *Report, err error) {
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
	m := &measuring{o: opt, r: &Report{Schema: Schema, Began: time.Now().UTC().Truncate(time.Second), Machine: report.MachineFacts(),
		Quick: opt.Quick, Warm: opt.Warm.Seconds(), Load: opt.Load.Seconds(), Settle: opt.Settle.Seconds()}}
	before := 0.0
	if was := opt.Resume; was != nil {
		if was.Warm != m.r.Warm || was.Load != m.r.Load || was.Settle != m.r.Settle || was.Quick != opt.Quick {
			return nil, skerry.Errorf(skerry.CodeConflict, "the report to go on from has rows of %g, %g and %g s and quick %v, and this run others", was.Warm, was.Load, was.Settle, was.Quick)
		}
		m.r.Began, m.r.Noise, m.r.Missing, before = was.Began, slices.Clone(was.Noise), slices.Clone(was.Missing), was.Seconds
		opt.Quiet.Resume(was.Quiet)
	}
	began := time.Now()
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
	if err = m.o.Quiet.Begin(ctx); err == nil {
		err = m.groups(ctx, groups)
	}
	m.r.Quiet = m.o.Quiet.Record()
	m.r.Seconds = before + time.Since(began).Seconds()
	slices.Sort(m.r.Missing)
	m.r.Missing = slices.Compact(m.r.Missing)
	if ctx.Err() != nil {
		m.r.Unfinished, err = true, nil
	}
	return m.r, err
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
	var skipped []Told
	for _, d := range drivers {
		known = append(known, d.Name())
		if !m.wanted(d.Name()) {
			continue
		}
		p := &driven{d: d, text: "runtime " + d.Name(), root: m.root, files: files, dir: filepath.Join(m.dir, "net")}
		m.say("self-test of runtime %s", d.Name())
		rep := d.Check(ctx)
		if ctx.Err() != nil {
			return shut, ctx.Err()
		}
		if why := m.cannot(d.Name(), rep); why != "" {
			skipped = append(skipped, Told{Name: d.Name(), Text: p.text, Skip: why})
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
	for _, g := range groups {
		m.all += len(g.rates) * len(m.places)
	}
	for _, g := range groups {
		for _, rate := range g.rates {
			for _, p := range m.places {
				row := &Row{Place: p.told().Name, Setting: g.Setting, Rate: rate, Published: beside(m.published, p.told().Name, g.Setting, rate)}
				if was := m.o.Resume.row(row); was != nil {
					row = was
				} else if err := m.row(ctx, p, row); err != nil {
					return err
				}
				m.r.Rows = append(m.r.Rows, row)
				m.r.Changes, m.r.Quiet = changes(m.r.Rows), m.o.Quiet.Record()
				if m.o.Keep != nil {
					if err := m.o.Keep(m.r); err != nil {
						return err
					}
				}
			}
		}
		if !m.o.Find {
			continue
		}
		for _, p := range m.places {
			if was := m.o.Resume.found(p.told().Name, g.Setting, ms(m.o.P99)); was != nil {
				m.r.Found = append(m.r.Found, was)
				continue
			}
			if err := m.find(ctx, p, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// find searches where a place is full.
func (m *measuring) find(ctx context.Context, p place, g group) error {
	f := &Found{Place: p.told().Name, Setting: g.Setting}
	skip := ""
	var err error
	f.Saturation, err = search(g.rates[0], ms(m.o.P99), func(rate float64) (Outcome, error) {
		row := &Row{Place: f.Place, Setting: g.Setting, Rate: rate}
		if err := m.row(ctx, p, row); err != nil {
			return Outcome{}, err
		}
		if row.Skip != "" {
			skip = row.Skip
			return Outcome{}, errSkipped
		}
		return *row.Outcome, nil
	})
	if f.Skip = skip; err != nil && !errors.Is(err, errSkipped) {
		return err
	}
	m.r.Found = append(m.r.Found, f)
	return nil
}

var errSkipped = errors.New("skipped")

// row runs one load, in a fresh instance. What a place cannot do is the row's reason for not having run.
func (m *measuring) row(ctx context.Context, p place, row *Row) (err error) {
	pinned := row.Pin == PinBoth || row.Pin == PinOne && p.machine()
	l, why := arrange(m.cpus, row.Setting, pinned)
	if why == "" {
		why = p.lacks(row.Service)
	}
	if why != "" {
		row.Skip = why
		return nil
	}
	left := ""
	if n := len(m.r.Rows); n < m.all { // a search takes as long as it takes
		left = fmt.Sprintf("row %d of %d, about %v left: ", n+1, m.all,
			(time.Duration(m.all-n) * (m.o.Warm + m.o.Load + m.o.Settle)).Round(time.Second))
	}
	m.say(left+"%s in %s, %g CPU, pin %s, beside %s, %g requests per second", row.Service, row.Place, row.CPU, row.Pin, row.interference(),
		row.Rate)
	clean := context.WithoutCancel(ctx)
	defer func() {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return
		}
		came, e := m.o.Quiet.Round(ctx)
		if err = e; came != "" && row.Outcome != nil {
			row.Outcome.Invalid = cmp.Or(row.Outcome.Invalid, came)
		}
		sleep(ctx, time.Now().Add(m.o.Settle))
	}()
	fail := func(what string, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		row.Skip = what + ": " + err.Error()
		return nil
	}
	service, err := p.start(ctx, limits{row.CPU, row.Memory, list(l.service)}, true, servicesProgram, "serve", row.Service, listenHere)
	if err != nil {
		return fail("the service does not start", err)
	}
	defer func() { err = errors.Join(err, service.stop(clean)) }()
	c := m.asker(service.addr(), row)
	defer c.close()
	if err := c.ready(ctx, service.alive); err != nil {
		return fail("the service does not answer", err)
	}
	var other task
	if row.Interference > 0 {
		n := int(math.Ceil(row.Interference))
		if other, err = p.start(ctx, limits{row.Interference, 1 << 30, list(l.neighbour)}, false, neighbour, row.Neighbour,
			strconv.Itoa(n)); err != nil {
			return fail("the neighbour does not start", err)
		}
		defer func() { err = errors.Join(err, other.stop(clean)) }()
	}
	if err := stay([]int{l.generator}, eager); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stay(m.cpus, m.nice)) }()
	g := generator{rate: row.Rate, time: m.o.Warm, timeout: requestTime}
	if _, err := g.run(ctx, c.get); err != nil {
		return err
	}
	g.time = m.o.Load
	used := m.busy(ctx, row, other)
	shots, err := m.load(ctx, row, g, service, c)
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
	row.Outcome = &o
	return nil
}

// busy looks at a neighbour, and gives what looks again and tells how much it used.
func (m *measuring) busy(ctx context.Context, row *Row, other task) func() {
	if other == nil {
		return func() {}
	}
	before, err := other.stats(ctx)
	return func() {
		after, again := other.stats(ctx)
		if err := errors.Join(err, again); err != nil {
			m.r.Missing = append(m.r.Missing, row.Place+" does not tell what a neighbour uses: "+err.Error())
			return
		}
		v := percent(before, after, row.Interference)
		row.System.Neighbour = &v
	}
}

// load sends what counts, and watches the machine meanwhile.
func (m *measuring) load(ctx context.Context, row *Row, g generator, service task, c asker) ([]shot, error) {
	row.System = &System{}
	before, unknown := service.stats(ctx)
	w := newWatch()
	// A point a second, or sixty of them.
	step := max(time.Second, g.time/60)
	tick, stop := time.NewTicker(step), make(chan struct{})
	defer tick.Stop()
	var points sampler
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		if unknown != nil {
			return
		}
		points.run(ctx, service, before, row.CPU, func() bool {
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
	<-sampled
	if err := errors.Join(err, w.end(row.System)); err != nil {
		return nil, err
	}
	m.r.Missing = append(m.r.Missing, w.missing...)
	if err := errors.Join(unknown, unread); err != nil {
		m.r.Missing = append(m.r.Missing, row.Place+" does not tell what it uses: "+err.Error())
	} else {
		row.System.used(before, after, row.CPU)
	}
	row.Series = series(shots, step, g.time, points)
	return shots, nil
}

// series tells how many of the requests that were due in each part of a load succeeded, and the processor time in it.
func series(shots []shot, step, all time.Duration, s sampler) (out []Point) {
	for from := time.Duration(0); from < all; from += step {
		p := Point{At: min(from+step, all).Seconds()}
		due, ok := 0.0, 0.0
		for _, shot := range shots {
			if shot.due >= from && shot.due < from+step {
				due++
				if shot.err == nil {
					ok++
				}
			}
		}
		if due == 0 {
			continue
		}
		p.Success = 100 * ok / due
		for i, at := range s.at { // the look that is nearest to the part's end
			if math.Abs(at-p.At) < step.Seconds()/2 {
				p.CPU = &s.cpu[i]
			}
		}
		out = append(out, p)
	}
	return out
}
