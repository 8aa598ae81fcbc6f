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
	"skerry.dev/skerry/bench/quiet"
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
	Dir     string  // for tools and files, on the disk that is to be measured; empty: a temporary directory
	Resume  *Report // goes on from the rounds that it has
	// Quiet waits for a quiet machine before the first round and after each; nil: it does not wait.
	Quiet *quiet.Watch
	// Progress is told what is being done; Keep is given the report after each round.
	Progress func(string)
	Keep     func(*Report) error
}

// runTime bounds one run of one program.
const runTime = 10 * time.Minute

// machineMemory is what a task may use where the case does not say: enough for all of them.
const machineMemory = 1536 * skerry.MiB

// Run measures. When ctx ends it returns what is complete, and no error.
func Run(ctx context.Context, opt Options) (_ *Report, err error) {
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
	m := &measuring{o: opt, dir: dir, sized: size{seconds: 5, scale: 1, cores: goruntime.NumCPU(), dir: dirHere}}
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
	figures, err := published.Load()
	if err != nil {
		return nil, err
	}
	m.r = newReport(opt, cases, m.tools)
	for i := range m.r.Cases {
		m.r.Cases[i].Published = beside(figures, m.r.Cases[i].ID)
	}
	if m.meter, err = openMeter("/sys", opt.Meter, opt.MeterCSV); err != nil {
		if opt.Meter != "" || opt.MeterCSV != "" {
			return nil, err
		}
		m.r.Energy, err = err.Error(), nil
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
	if err := m.resume(); err != nil {
		return nil, err
	}
	began := time.Now()
	err = m.rounds(ctx)
	m.r.Seconds += time.Since(began).Seconds()
	m.r.Quiet = m.o.Quiet.Record()
	m.r.trim()
	m.r.fold()
	if ctx.Err() != nil {
		err = nil // what is complete is told
	}
	return m.r, err
}

// measuring is one call of Run.
type measuring struct {
	o      Options
	dir    string
	sized  size
	tools  map[string]*tool
	places []place
	// station is the other machine of network cases; nil where there are none.
	station *station
	// meter is what measures energy; nil where nothing does.
	meter *meter
	r     *Report
}

func (m *measuring) say(format string, args ...any) {
	if m.o.Progress != nil {
		m.o.Progress(fmt.Sprintf(format, args...))
	}
}

// choose picks cases by group or ID.
func choose(all []Case, only []string) (out []Case, err error) {
	if len(only) == 0 {
		return all, nil
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
			return nil, skerry.Errorf(skerry.CodeInvalid, "--only: there is no case or group %q", word).WithHint("%s", spec.Suggest(word, append(ids, "cpu", "memory", "disk", "os", "ipc", "net", startCase, footprintCase, reachCase)))
		}
	}
	return out, nil
}

func newReport(opt Options, cases []Case, tools map[string]*tool) *Report {
	r := &Report{Schema: Schema, Began: time.Now().UTC().Truncate(time.Second), Machine: report.MachineFacts(),
		Quick: opt.Quick, Rounds: opt.Rounds, Tools: map[string]string{}}
	for _, c := range cases {
		r.Cases = append(r.Cases, Measured{Case: c, Results: map[string]*Result{}})
	}
	for name, t := range tools {
		if t.missing == nil {
			r.Tools[name] = t.version
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
	return r
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
		m.say("self-test of runtime %s", driver.Name())
		rep := driver.Check(ctx)
		if ctx.Err() != nil {
			return close, ctx.Err()
		}
		if why := cannot(driver.Name(), rep); why != "" {
			m.r.Places = append(m.r.Places, Told{Name: p.name, Text: p.text, Skip: why})
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
	m.r.Places = append(m.r.Places, slices.DeleteFunc(m.others(drivers), func(t Told) bool { return !wanted(t.Name) })...)
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
		if !slices.ContainsFunc(m.r.Places, func(t Told) bool { return t.Name == name }) {
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
func (m *measuring) others(drivers []runtime.Driver) []Told {
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
			m.r.Places = append(m.r.Places, Told{Name: Orchestrated, Text: "a whole Skerry", Skip: "it runs containers: " + t.Skip})
			return nil, nil
		}
	}
	program, err := ownProgram(m.o.Program)
	if err != nil {
		return nil, err
	}
	m.say("starting a root, a cluster and a worker")
	p, err := orchestrate(ctx, program, root, files, m.sized.cores)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		m.r.Places = append(m.r.Places, Told{Name: Orchestrated, Text: "a whole Skerry", Skip: err.Error()})
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

// resume takes over the samples of an earlier report of the same cases and places.
func (m *measuring) resume() error {
	old := m.o.Resume
	if old == nil {
		return nil
	}
	if old.Quick != m.r.Quick || old.Machine["cpu"] != m.r.Machine["cpu"] || old.Machine["kernel"] != m.r.Machine["kernel"] {
		return skerry.Errorf(skerry.CodeInvalid, "the report to go on from is of another machine, or another length of its cases")
	}
	old.trim()
	for i := range m.r.Cases {
		c := &m.r.Cases[i]
		at := slices.IndexFunc(old.Cases, func(k Measured) bool { return k.ID == c.ID })
		if at < 0 {
			return skerry.Errorf(skerry.CodeInvalid, "the report to go on from does not have the case %s", c.ID)
		}
		c.Results = old.Cases[at].Results
	}
	for _, p := range m.places {
		if !slices.ContainsFunc(old.Places, func(t Told) bool { return t.Name == p.told().Name && t.Skip == "" }) {
			return skerry.Errorf(skerry.CodeInvalid, "the report to go on from does not have the place %s", p.told().Name)
		}
	}
	m.r.Starts, m.r.Footprints, m.r.Reached, m.r.Done, m.r.Seconds, m.r.Began = old.Starts, old.Footprints, old.Reached, old.Done, old.Seconds, old.Began
	m.r.Disturbed = old.Disturbed
	m.o.Quiet.Resume(old.Quiet)
	return nil
}

// rounds runs each case in each place, once a round, after one that warms up and is not counted.
func (m *measuring) rounds(ctx context.Context) error {
	if err := m.o.Quiet.Begin(ctx); err != nil {
		return err
	}
	began, first := time.Now(), m.r.Done
	for round := first; round <= m.o.Rounds; round++ { // one more than counts
		warm := round == first
		for i, n := 0, 0; i < len(m.r.Cases); i += n {
			n = m.together(i)
			m.say("%s  %s", m.where(round, first, i, began), m.r.Cases[i].ID)
			for k := range m.places {
				p := m.places[(k+round)%len(m.places)] // who is first changes
				m.sample(ctx, m.r.Cases[i:i+n], p, warm)
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
		if err := m.starts(ctx, round, warm); err != nil {
			return err
		}
		if err := m.footprints(ctx, round, warm); err != nil {
			return err
		}
		came, err := m.o.Quiet.Round(ctx)
		if err != nil {
			return err
		}
		if warm {
			continue
		}
		if err := m.reach(ctx); err != nil {
			return err
		}
		if err := m.backings(ctx); err != nil {
			return err
		}
		m.r.Done++
		if came != "" {
			m.r.Disturbed = append(m.r.Disturbed, quiet.Mark{Round: m.r.Done, By: came})
		}
		m.r.Quiet = m.o.Quiet.Record()
		if m.o.Keep != nil {
			m.r.fold()
			if err := m.o.Keep(m.r); err != nil {
				return err
			}
		}
	}
	return nil
}

// where tells how far it is, and how long it will take as it went so far.
func (m *measuring) where(round, first, i int, began time.Time) string {
	all, done := (m.o.Rounds-first+1)*len(m.r.Cases), (round-first)*len(m.r.Cases)+i
	text := fmt.Sprintf("round %d of %d", round-first, m.o.Rounds-first)
	if round == first {
		text = "warming up"
	}
	if done > 0 {
		text += ", " + (time.Since(began) / time.Duration(done) * time.Duration(all-done)).Round(time.Second).String() + " left"
	}
	return text
}

// together is how many cases from the ith on are figures of one run.
func (m *measuring) together(i int) int {
	first, n := m.r.Cases[i], 1
	for ; i+n < len(m.r.Cases); n++ {
		c := m.r.Cases[i+n]
		if c.Tool != first.Tool || c.copies != first.copies || c.mount != first.mount || c.memory != first.memory || c.room != first.room || c.wired || first.wired || c.killed || first.killed ||
			!slices.Equal(c.args(m.sized), first.args(m.sized)) {
			break
		}
	}
	return n
}

// sample runs a program once, for all the cases that read its output.
func (m *measuring) sample(ctx context.Context, cases []Measured, p place, warm bool) {
	name := p.told().Name
	skipped := 0
	for i := range cases {
		if cases[i].Results[name] == nil {
			cases[i].Results[name] = &Result{}
		}
		if cases[i].Results[name].Skip != "" {
			skipped++
		}
	}
	if skipped == len(cases) {
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
		c, v, err := &cases[i], 0.0, failed
		res := c.Results[name]
		if err == nil {
			v, err = c.value(outs)
		}
		switch {
		case res.Skip != "":
		case err != nil:
			res.Skip, res.Samples = strings.TrimPrefix(err.Error(), errCannot.Error()+": "), nil
			res.Used = nil // of what fails at times nothing is told
		case !warm:
			res.Samples, res.Used = append(res.Samples, v), append(res.Used, used)
		}
	}
}

// outcomes runs the program of a case, in so many copies as it has.
func (m *measuring) outcomes(ctx context.Context, c *Measured, p place) ([]outcome, error) {
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
