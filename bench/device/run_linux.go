package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// Options say what to measure. The zero value takes everything, 15 times.
type Options struct {
	Rounds int      // default 15
	Quick  bool     // a tenth of the work of each case
	Only   []string // groups, or IDs of cases as far as they are given; empty: all
	Places []string // names; empty: all but those of the ablation
	// Ablation adds one ingredient of a container at a time (the question of Table 4 of the RISC-V paper).
	Ablation bool
	Machines node.Machines
	// Containerd is one to measure; the zero value: none.
	Containerd node.Containerd
	// Meter is a command that prints the joules that the machine has used until now, MeterCSV a file to which a meter writes lines of a time and
	// watts; empty: what the machine has itself.
	Meter, MeterCSV string
	// Program is the skerry that runs the place Orchestrated; empty: the one that this is.
	Program string
	Dir     string // for tools and files, on the disk that is to be measured; empty: a temporary directory
	report.Measuring
}

// runTime bounds one run of one program.
const runTime = 10 * time.Minute

// machineMemory is what a task may use where the case does not say: enough for all of them.
const machineMemory = 1536 * skerry.MiB

// Run measures. When ctx ends it returns what is complete, and no error.
func Run(ctx context.Context, opt Options) (_ *report.Report, err error) {
	if opt.Rounds == 0 {
		opt.Rounds = 15
	}
	cases, err := choose(Catalogue(), opt.Only)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(opt.Dir, "skerry-bench-runtime-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Tasks in user namespaces, or of other users, must be able to enter.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	m := &measuring{o: opt, cases: cases, dir: dir, sized: size{seconds: 5, scale: 1, cores: goruntime.NumCPU(), dir: dirHere}}
	if opt.Quick {
		m.sized.seconds, m.sized.scale = 1, 10
	}
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o777); err != nil {
		return nil, err
	}
	if err := os.Chmod(files, 0o777); err != nil { // whatever the umask is: some tasks are of other users
		return nil, err
	}
	if m.tools, err = findTools(ctx, dir, cases); err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	if err := makeRoot(ctx, root, m.tools); err != nil {
		return nil, err
	}
	if m.published, err = published.Load(); err != nil {
		return nil, err
	}
	m.newReport()
	if m.meter, err = openMeter("/sys", opt.Meter, opt.MeterCSV); err != nil {
		if opt.Meter != "" || opt.MeterCSV != "" {
			return nil, err
		}
		m.r.Note("Not measured: energy: %v", err)
	} else {
		defer m.meter.close()
		if _, err := m.meter.read(ctx); err != nil {
			return nil, err
		}
		m.r.Machine["meter"] = m.meter.name
	}
	close, err := m.open(ctx, root, files)
	defer func() { err = errors.Join(err, close()) }()
	if err != nil {
		return nil, err
	}
	if k := m.tools[toolKernels]; k.missing == nil && slices.ContainsFunc(cases, func(c Case) bool { return c.wired }) {
		if m.station, err = newStation(dir, k); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, m.station.close()) }()
	}
	if err := m.r.Continue(opt.Measuring); err != nil {
		return nil, err
	}
	if err = m.rounds(ctx); ctx.Err() != nil {
		err = nil // what is complete is told
	}
	m.r.Finish(ctx, opt.Measuring)
	return m.r, err
}

// measuring is one call of Run.
type measuring struct {
	o         Options
	cases     []Case
	published *published.Set
	dir       string
	sized     size
	tools     map[string]*tool
	places    []place
	// station is the other machine of network cases; nil where there are none.
	station *station
	// meter is what measures energy; nil where nothing does.
	meter *meter
	r     *report.Report
	ran   []ran // in the present round
}

// choose picks cases by group or ID.
func choose(all []Case, only []string) (out []Case, err error) {
	if len(only) == 0 {
		return slices.DeleteFunc(all, func(c Case) bool { return c.Group == sweepGroup }), nil
	}
	for _, word := range only {
		n := len(out)
		for _, c := range all {
			if (c.Group == word || c.ID == word || strings.HasPrefix(c.ID, word+".")) && !slices.ContainsFunc(out, func(d Case) bool { return d.ID == c.ID }) {
				out = append(out, c)
			}
		}
		if word != startCase && word != footprintCase && word != reachCase && n == len(out) {
			var ids []string
			for _, c := range all {
				ids = append(ids, c.ID)
			}
			known := append(ids, "cpu", "memory", "disk", "os", "ipc", "net", sweepGroup, startCase, footprintCase, reachCase)
			return nil, skerry.Errorf(skerry.CodeInvalid, "--only: there is no case or group %q", word).WithHint("%s", spec.Suggest(word, known))
		}
	}
	return out, nil
}

// words are the options that change what figures mean.
func (o *Options) words() (out string) {
	if o.Quick {
		out = "--quick"
	}
	for _, l := range []struct {
		flag string
		list []string
	}{{"only", o.Only}, {"in", o.Places}} {
		if len(l.list) > 0 {
			out += " --" + l.flag + " " + strings.Join(l.list, ",")
		}
	}
	return strings.TrimSpace(out)
}

func (m *measuring) newReport() {
	r := report.New("runtime", "What isolation costs", m.o.words())
	m.r, r.Baseline = r, Bare
	for name, t := range m.tools {
		if t.missing == nil {
			r.Machine["program "+name] = t.version
		}
	}
	r.Machine["arch"] = goruntime.GOARCH
	for key, file := range map[string]string{"governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "clock": "/sys/devices/system/clocksource/clocksource0/current_clocksource"} {
		if text, err := os.ReadFile(file); err == nil {
			r.Machine[key] = strings.TrimSpace(string(text))
		}
	}
	holes, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*")
	mitigated := 0
	for _, f := range holes {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), "Mitigation") {
			mitigated++
		}
	}
	if len(holes) > 0 {
		r.Machine["mitigations"] = fmt.Sprint(mitigated)
	}
}

// open makes the places, and has every runtime test itself.
func (m *measuring) open(ctx context.Context, root, files string) (close func() error, err error) {
	wanted := func(name string) bool {
		return len(m.o.Places) == 0 || name == Bare || slices.Contains(m.o.Places, name)
	}
	add := func(p place) {
		t := p.told()
		if wanted(t.Name) {
			m.places, m.r.Places = append(m.places, p), append(m.r.Places, t)
		}
	}
	const apart = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	var n atomic.Int64 // copies are made at once
	groups := func(memory int64) (*group, error) {
		return newGroup(fmt.Sprintf("skerry-bench-%d-%d", os.Getpid(), n.Add(1)), memory)
	}
	add(&process{name: Bare, text: "a process of the machine", root: root, dir: files})
	if m.o.Ablation {
		add(&process{name: "ns", text: "namespaces of mounts, processes, IPC and name, nothing else", root: root, dir: files, flags: apart})
		add(&process{name: "cgroup", text: "a cgroup, nothing else", root: root, dir: files, groups: groups})
	}
	add(&process{name: "manual", text: "namespaces of mounts, processes, IPC and name, and a cgroup, made by hand", root: root, dir: files, flags: apart, groups: groups})
	drivers, err := m.drivers()
	close = func() (err error) {
		for _, driver := range drivers {
			if x, ok := driver.(interface{ CleanUp(context.Context) error }); ok { // the group of its tasks' cgroups
				err = errors.Join(err, x.CleanUp(context.WithoutCancel(ctx)))
			}
			err = errors.Join(err, driver.Close())
		}
		return err
	}
	if err != nil {
		return close, err
	}
	for _, driver := range drivers {
		p := &driven{d: driver, name: driver.Name(), text: "runtime " + driver.Name(), root: root, host: files, memory: machineMemory, cores: m.sized.cores, hosts: driver.Name() == spec.RuntimeNative, modules: driver.Name() == spec.RuntimeWasm}
		if !wanted(p.name) {
			continue
		}
		m.o.Say("self-test of runtime %s", driver.Name())
		rep := driver.Check(ctx)
		if ctx.Err() != nil {
			return close, ctx.Err()
		}
		if why := cannot(driver.Name(), rep); why != "" {
			m.r.Places = append(m.r.Places, report.Place{Name: p.name, Text: p.text, Skip: why})
			continue
		}
		if rep.Version != "" {
			p.text += ", " + rep.Version
		}
		if m.o.Ablation && driver.Name() == spec.RuntimeOCI {
			q := &driven{d: driver, name: "oci-unfiltered", text: p.text + ", without seccomp", root: root, host: files, memory: machineMemory, cores: m.sized.cores, seccomp: runtime.SeccompUnconfined}
			add(q)
		}
		add(p)
	}
	m.r.Places = append(m.r.Places, slices.DeleteFunc(m.others(drivers), func(t report.Place) bool { return !wanted(t.Name) })...)
	if wanted(Orchestrated) {
		end, err := m.orchestrate(ctx, root, files)
		if alone := close; end != nil {
			close = func() error { return errors.Join(end(), alone()) }
		}
		if err != nil {
			return close, err
		}
	}
	for _, name := range m.o.Places {
		if !slices.ContainsFunc(m.r.Places, func(t report.Place) bool { return t.Name == name }) {
			var names []string
			for _, t := range m.r.Places {
				names = append(names, t.Name)
			}
			return close, skerry.Errorf(skerry.CodeInvalid, "--in: there is no place %q", name).WithHint("there are bare, manual, orchestrated and the runtimes; with --ablation ns, cgroup and oci-unfiltered as well: %s", strings.Join(names, ", "))
		}
	}
	return close, nil
}

// drivers opens those of this build, and one for each other monitor of machines that is installed.
func (m *measuring) drivers() ([]runtime.Driver, error) {
	config := node.WorkerConfig{Common: node.Common{Dir: filepath.Join(m.dir, "drivers")},
		Join: node.Join{Name: fmt.Sprint("bench-", os.Getpid())}, Machines: m.o.Machines, Containerd: m.o.Containerd}
	drivers, err := node.OpenDrivers(config)
	if err != nil {
		return drivers, err
	}
	for _, p := range [][2]string{{firecracker, m.o.Machines.Firecracker}, {cloudHypervisor, m.o.Machines.CloudHypervisor}} {
		if lookPath(cmp.Or(p[1], p[0])) == "" {
			continue
		}
		d, err := node.OpenMonitor(config, p[0])
		if err != nil {
			return drivers, err
		}
		drivers = append(drivers, d)
	}
	return drivers, nil
}

// others gives a row for each runtime of the documents that is not measured.
func (m *measuring) others(drivers []runtime.Driver) []report.Place {
	var opened []string
	for _, d := range drivers {
		opened = append(opened, d.Name())
	}
	for _, c := range m.o.Containerd.Classes {
		opened = append(opened, c.Shim)
	}
	return notRun(opened, lookPath)
}

// lookPath finds a program; empty: it is not there.
func lookPath(program string) string {
	path, _ := exec.LookPath(program)
	return path
}

// orchestrate adds the place of a whole Skerry, where containers run at all.
func (m *measuring) orchestrate(ctx context.Context, root, files string) (end func() error, err error) {
	for _, t := range m.r.Places {
		if t.Name == spec.RuntimeOCI && t.Skip != "" {
			m.r.Places = append(m.r.Places, report.Place{Name: Orchestrated, Text: "a whole Skerry", Skip: "it runs containers: " + t.Skip})
			return nil, nil
		}
	}
	program, err := ownProgram(m.o.Program)
	if err != nil {
		return nil, err
	}
	m.o.Say("starting a root, a cluster and a worker")
	p, err := orchestrate(ctx, program, root, files, m.sized.cores)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		m.r.Places = append(m.r.Places, report.Place{Name: Orchestrated, Text: "a whole Skerry", Skip: err.Error()})
		return nil, nil
	}
	m.places, m.r.Places = append(m.places, p), append(m.r.Places, p.told())
	return p.site.Close, nil
}

// cannot tells why a runtime takes no part, or "".
func cannot(name string, rep runtime.Report) string {
	switch {
	case !rep.Passed:
		return rep.Refusal()
	case name == spec.RuntimeUnikernel || name == spec.RuntimeVM:
		return "its machines run a system of their own, not these programs"
	}
	return ""
}

// rounds runs each case in each place, once a round, after one that warms up and is not counted.
func (m *measuring) rounds(ctx context.Context) error {
	first := m.r.Rounds
	if first >= m.o.Rounds {
		return nil
	}
	if err := m.o.Quiet.Begin(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := m.r.WarmUp(ctx, m.o.Measuring, func() error { return m.round(ctx, first, began) }); err != nil {
		return err
	}
	for m.r.Rounds < m.o.Rounds {
		err := m.r.Round(ctx, m.o.Measuring, func() error {
			if err := m.round(ctx, first, began); err != nil {
				return err
			}
			derive(m.r, m.ran)
			for _, more := range []func(context.Context) error{m.footprints, m.reach, m.backings} {
				if err := more(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// round runs each case in each place, of which another is first in each round.
func (m *measuring) round(ctx context.Context, first int, began time.Time) error {
	m.ran = nil
	for i, n := 0, 0; i < len(m.cases); i += n {
		n = m.together(i)
		m.o.Say("%s  %s", m.where(first, i, began), m.cases[i].ID)
		for k := range m.places {
			m.samples(ctx, m.cases[i:i+n], m.places[(k+m.r.Rounds)%len(m.places)])
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return m.starts(ctx)
}

// where tells how far it is, and how long it will take as it went so far.
func (m *measuring) where(first, i int, began time.Time) string {
	text := fmt.Sprintf("round %d of %d", m.r.Rounds+1, m.o.Rounds)
	if done := (m.r.Rounds-first)*len(m.cases) + i; done > 0 && m.r.Rounds > first {
		left := (m.o.Rounds-first)*len(m.cases) - done
		text += ", " + (time.Since(began) / time.Duration(done) * time.Duration(left)).Round(time.Second).String() + " left"
	}
	return text
}

// together is how many cases from the ith on are figures of one run.
func (m *measuring) together(i int) int {
	first, n := m.cases[i], 1
	for ; i+n < len(m.cases); n++ {
		c := m.cases[i+n]
		if c.Tool != first.Tool || c.copies != first.copies || c.mount != first.mount || c.memory != first.memory || c.room != first.room || c.wired || first.wired || c.killed || first.killed ||
			!slices.Equal(c.args(m.sized), first.args(m.sized)) {
			break
		}
	}
	return n
}

// samples runs a program once, for all the cases that read its output.
func (m *measuring) samples(ctx context.Context, cases []Case, p place) {
	name := p.told().Name
	var figures []*report.Figure
	for i := range cases {
		f := cases[i].figure(m.r, name)
		f.Published = beside(m.published, &cases[i])
		figures = append(figures, f)
	}
	if !slices.ContainsFunc(figures, func(f *report.Figure) bool { return f.Skip == "" }) {
		return
	}
	var outs []outcome
	used, failed := m.using(ctx, func() (err error) {
		outs, err = m.outcomes(ctx, &cases[0], p)
		return err
	})
	if ctx.Err() != nil {
		return
	}
	for i := range cases {
		v, err := 0.0, failed
		if err == nil {
			v, err = cases[i].value(outs)
		}
		if m.sample(figures[i], v, err) {
			m.ran = append(m.ran, ran{&cases[i], name, v, used})
		}
	}
}

// sample adds a sample to a figure, unless there is none; of what fails at times nothing is told.
func (m *measuring) sample(f *report.Figure, v float64, err error) bool {
	switch {
	case f.Skip != "":
		return false
	case err != nil:
		f.Skip, f.Rounds, f.Samples = why(err), nil, nil
		return false
	}
	m.r.Add(f, v)
	return true
}

// why is a reason without what marks it.
func why(err error) string { return strings.TrimPrefix(err.Error(), errCannot.Error()+": ") }

// outcomes runs the program of a case, in so many copies as it has.
func (m *measuring) outcomes(ctx context.Context, c *Case, p place) ([]outcome, error) {
	tool := m.tools[c.Tool]
	if tool.missing != nil {
		return nil, tool.missing
	}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	outs := make([]outcome, max(1, c.copies))
	errs := make([]error, len(outs))
	var all sync.WaitGroup
	for i := range outs {
		all.Go(func() {
			outs[i], errs[i] = p.run(ctx, job{tool: tool, name: c.Tool, args: c.args(m.sized), memory: c.memory, room: c.room, copies: len(outs), mount: c.mount, wired: c.wired, plain: c.plain, station: m.station})
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err // of copies, one reason is enough
		}
	}
	return outs, nil
}

// value reads the figure of a case, the sum where there are copies.
func (c *Case) value(outs []outcome) (sum float64, err error) {
	for _, out := range outs {
		if c.killed {
			if out.killed {
				sum++
			}
			continue
		}
		if out.code != 0 {
			return 0, fmt.Errorf("it ended with status %d: %s", out.code, lastLine(out.out))
		}
		v, err := c.parse(out.out)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
