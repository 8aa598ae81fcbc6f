package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/bench/report"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/sim"
	"skerry.dev/skerry/spec"
)

// BudgetOptions say how long to measure.
type BudgetOptions struct {
	Program string   // the skerry binary
	Full    bool     // as long as each budget needs; else what five minutes allow
	Only    []string // of BudgetParts; nil: all
	report.Measuring
}

// Budget measures the goals of the design that this version has something for.
func Budget(ctx context.Context, o BudgetOptions) (*report.Report, error) {
	b := &budgeter{o: o, r: newBudgets(o.words())}
	first, err := buildFirstline(ctx)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(first))
	b.firstline = first
	if err := o.Quiet.Begin(ctx); err != nil {
		return nil, err
	}
	if st, err := os.Stat(o.Program); err == nil {
		b.about("the binary that measures", "binary.size")
		b.add(float64(st.Size())/1e6, "binary.size")
	}
	wanted := func(part string) bool { return len(o.Only) == 0 || slices.Contains(o.Only, part) }
	if wanted("placement") {
		o.Say("measuring: placement")
		if err := placementBudgets(ctx, b.r, ScheduleOptions{Full: o.Full, Measuring: o.Measuring}); err != nil {
			return nil, err
		}
	}
	if o.Full && wanted("fleet") || slices.Contains(o.Only, "fleet") {
		o.Say("measuring: a simulated fleet")
		err := b.round(ctx, func() error {
			fleetOf(ctx, b.r, sim.FleetOptions{Workers: 100_000, Clusters: 1000, Progress: o.Progress})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if wanted("overlay") {
		if err := b.overlay(ctx); err != nil {
			return nil, fmt.Errorf("overlay: %w", err)
		}
	}
	err = b.at(ctx, clustercore.Fast, 2, wanted, []budgetPart{
		{"deploys", "deployments, interleaved with bare runs", b.deploys},
		{"idle", "idle with ten instances", b.idle},
		{"disk", "what is written to disks", b.disk},
		{"hundred", "a hundred instances", b.hundred},
		{"failover", "fail-over", b.failover},
	})
	if err == nil && (o.Full || slices.Contains(o.Only, "metered")) {
		err = b.at(ctx, clustercore.Metered, 2, wanted, []budgetPart{{"metered", "idle with ten instances on a metered link", b.metered}})
	}
	if err != nil {
		return nil, err
	}
	skipped := "--quick leaves it out"
	if len(o.Only) > 0 {
		skipped = "not asked for"
	}
	unmeasured(b.r, skipped)
	b.r.Finish(ctx, o.Measuring)
	return b.r, nil
}

// words are the options that matter to figures.
func (o *BudgetOptions) words() string {
	out := "--quick"
	if o.Full {
		out = "--full"
	}
	if len(o.Only) > 0 {
		out += " --only " + strings.Join(o.Only, ",")
	}
	return out
}

// BudgetParts name what may be measured alone.
func BudgetParts() []string {
	return []string{"placement", "fleet", "overlay", "deploys", "idle", "disk", "hundred", "failover", "metered"}
}

// budgetPart is a measurement at a site.
type budgetPart struct {
	name, what string
	fn         func(context.Context) error
}

// at starts a site of a profile, if any of the parts is wanted, and measures them.
func (b *budgeter) at(ctx context.Context, p clustercore.Profile, workers int, wanted func(string) bool, parts []budgetPart) (err error) {
	parts = slices.DeleteFunc(parts, func(x budgetPart) bool { return !wanted(x.name) })
	if len(parts) == 0 {
		return nil
	}
	b.o.Say("starting a root, a cluster and %d workers, profile %s", workers, p.Name)
	if b.s, err = newSite(ctx, b.o.Program, workers, p.Name); err != nil {
		return err
	}
	defer func() {
		if err := b.s.close(); err != nil {
			b.o.Say("clean up: %v", err)
		}
	}()
	if err := b.s.image(ctx, b.firstline, "bench/firstline:1"); err != nil {
		return err
	}
	for _, x := range parts {
		b.o.Say("measuring: %s", x.what)
		if err := x.fn(ctx); err != nil {
			return fmt.Errorf("%s: %w", x.what, err)
		}
	}
	return nil
}

type budgeter struct {
	o         BudgetOptions
	s         *site
	firstline string
	made      int // applications, for their names
	r         *report.Report
}

// overlay measures ways between two hosts, before anything else runs.
func (b *budgeter) overlay(ctx context.Context) error {
	n, err := MeasureNetwork(ctx, NetworkOptions{Program: b.o.Program, Full: b.o.Full, Budget: true,
		Cases: []string{caseDirect, caseWireguard, caseSealed, casePlain}, Measuring: report.Measuring{Progress: b.o.Progress, Quiet: b.o.Quiet}})
	if err != nil {
		return err
	}
	networkBudgets(n, b.r)
	return nil
}

// add adds a sample of the present round to figures.
func (b *budgeter) add(v float64, names ...string) {
	for _, name := range names {
		b.r.Add(b.r.Find("", name, ""), v)
	}
}

// about says how figures are measured.
func (b *budgeter) about(text string, names ...string) {
	for _, name := range names {
		b.r.Find("", name, "").About = text
	}
}

// round measures a round.
func (b *budgeter) round(ctx context.Context, measure func() error) error {
	return b.r.Round(ctx, b.o.Measuring, measure)
}

// buildFirstline compiles the workload; the benchmark runs from a checkout with Go.
func buildFirstline(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "skerry-bench-")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "firstline")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "skerry.dev/skerry/bench/firstline")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("the workload is compiled from this source tree, which needs Go and the checkout: %w: %s", err, msg), os.RemoveAll(dir))
	}
	return out, nil
}

func manifest(name string, replicas int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"s","image":"bench/firstline:1","replicas":%d,
"terminationGrace":"1s","resources":{"cpu":0.5,"memory":"16Mi"},"ports":[{"port":8080,"hostPort":-1}]}]}}`, name, replicas)
}

func key(name string) skerry.AppKey { return skerry.AppKey{Namespace: "default", Name: name} }

func (b *budgeter) ready(ctx context.Context, name string, n int) error {
	err := b.s.await(ctx, fmt.Sprintf("%d instances of %s are ready", n, name), func() (bool, error) {
		v, err := b.s.root.App(ctx, key(name))
		return err == nil && v.Services[0].Ready == n && v.Services[0].Instances == n, err
	})
	if err == nil {
		return nil
	}
	// Say what the instances are doing instead.
	states := map[string]int{}
	list, _ := b.s.root.Instances(ctx, api.InstanceFilter{App: name})
	for _, i := range list {
		why := i.Reason
		if why == "" && len(i.Why) > 0 {
			why = i.Why[0].Text
		}
		states[fmt.Sprintf("%s %s %s", i.State, i.Phase, why)]++
	}
	return fmt.Errorf("%w; instances: %v", err, states)
}

func (b *budgeter) remove(ctx context.Context, name string) error {
	if err := b.s.root.DeleteApp(ctx, key(name)); err != nil {
		return err
	}
	return b.s.await(ctx, name+" is gone", func() (bool, error) {
		_, err := b.s.root.App(ctx, key(name))
		return err != nil && skerry.AsError(err).Code == skerry.CodeNotFound, err
	})
}

// deploys measures from the apply to the first line and to Ready, each deployment followed by a bare run of the same
// program by the same OCI runtime.
func (b *budgeter) deploys(ctx context.Context) error {
	n := 15
	if b.o.Full {
		n = 100
	}
	runtime, bare, err := b.bare(ctx)
	if err != nil {
		return err
	}
	defer bare.close()
	daemon, err := newContainerd(ctx, b.firstline)
	if err != nil {
		return err
	}
	if daemon != nil {
		defer daemon.close()
	}
	once := func() error { return b.deployed(ctx, bare, daemon) }
	if err := b.r.WarmUp(ctx, b.o.Measuring, once); err != nil { // it pulls the image
		return err
	}
	for range n {
		if err := b.round(ctx, once); err != nil {
			return err
		}
	}
	if daemon == nil {
		b.r.Find("", "deploy.ctr", "").Skip = "containerd is not installed"
	}
	b.about("from the apply to Ready, through HTTPS and the watch stream", "deploy.visible", "deploy.visible.p99")
	b.about("from when the apply was accepted to the first line", "deploy.line", "deploy.line.p99")
	b.about("`"+runtime+" run` of the same program", "deploy.bare")
	b.about("`ctr run` of the same program", "deploy.ctr")
	b.about("deploy.line over deploy.bare of the same round, network attached, seccomp on", "deploy.ratio")
	if runtime == "runc" {
		goal := 1.5 // the other one is that of crun
		b.r.Find("", "deploy.ratio", "").Goal = &goal
	}
	return nil
}

// deployed measures one deployment and what stands beside it; daemon may be nil.
func (b *budgeter) deployed(ctx context.Context, bare *bare, daemon *containerd) error {
	name := b.fresh("deploy")
	seen, stop, err := b.watchReady(ctx, name)
	if err != nil {
		return err
	}
	defer stop()
	sent := monotonicNow()
	if _, err := b.s.root.Apply(ctx, manifest(name, 1), api.ApplyOptions{}); err != nil {
		return err
	}
	accepted := monotonicNow()
	var at time.Duration
	select {
	case at = <-seen:
	case <-time.After(time.Minute):
		return fmt.Errorf("%s did not become ready within a minute", name)
	}
	stop() // before anything else is measured
	list, err := b.s.root.Instances(ctx, api.InstanceFilter{App: name})
	if err != nil || len(list) != 1 {
		return fmt.Errorf("%d instances of %s: %w", len(list), name, err)
	}
	began, err := b.firstLine(ctx, list[0].ID)
	if err != nil {
		return fmt.Errorf("first line of %s: %w", name, err)
	}
	if err := b.remove(ctx, name); err != nil {
		return err
	}
	alone, err := bare.run(ctx)
	if err != nil {
		return err
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	if daemon != nil {
		beside, err := daemon.run(ctx)
		if err != nil {
			return err
		}
		b.add(ms(beside), "deploy.ctr")
	}
	b.add(ms(at-sent), "deploy.visible", "deploy.visible.p99")
	b.add(ms(began-accepted), "deploy.line", "deploy.line.p99")
	b.add(ms(alone), "deploy.bare")
	b.add(ms(began-accepted)/ms(alone), "deploy.ratio")
	return nil
}

// fresh gives a name that no application had before.
func (b *budgeter) fresh(what string) string {
	b.made++
	return fmt.Sprint(what, b.made)
}

// firstLine reads the time that the workload printed; ready may be shown before it has.
func (b *budgeter) firstLine(ctx context.Context, id skerry.InstanceID) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var began time.Duration
	found := errors.New("found")
	err := b.s.root.Logs(ctx, id, api.LogOptions{Follow: true}, func(l api.LogLine) error {
		ns, err := strconv.ParseInt(strings.TrimSpace(l.Line), 10, 64)
		if began = time.Duration(ns); err == nil {
			return found
		}
		return err
	})
	if !errors.Is(err, found) {
		return 0, fmt.Errorf("no line: %w", errors.Join(err, ctx.Err()))
	}
	return began, nil
}

// bare is the workload by the OCI runtime of the workers alone, with the runtime's name.
func (b *budgeter) bare(ctx context.Context) (runtime string, alone *bare, err error) {
	runtime, command, err := b.ociRuntime(ctx)
	if err == nil {
		alone, err = newBare(command, b.firstline)
	}
	return runtime, alone, err
}

// ociRuntime is the OCI runtime that the workers use, and the command by which they run it: on a hybrid host, crun's stand-in.
func (b *budgeter) ociRuntime(ctx context.Context) (name, command string, err error) {
	list, err := b.s.cluster.Workers(ctx)
	if err != nil {
		return "", "", err
	}
	for _, w := range list {
		for _, r := range w.Facts.Runtimes {
			if r.Name == spec.RuntimeOCI && r.Passed {
				name = strings.Fields(r.Version)[0]
			}
		}
	}
	if name == "" {
		return "", "", errors.New("no worker has a working runtime oci")
	}
	for _, w := range b.s.workers {
		standIn := filepath.Join(w.dir, "oci", "hybrid", name)
		if _, err := os.Stat(standIn); err == nil {
			return name, standIn, nil
		}
	}
	return name, name, nil
}

// watchReady tells when the API shows an instance of an application as ready.
func (b *budgeter) watchReady(ctx context.Context, name string) (<-chan time.Duration, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	seen := make(chan time.Duration, 1)
	live := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		first := true
		b.s.root.Watch(ctx, api.WatchFilter{Namespace: "default", App: name, Kinds: []string{api.WatchInstance}}, func(m api.WatchMessage) error {
			if first {
				first = false
				close(live)
			}
			if m.Instance != nil && m.Instance.State == skerry.Running && skerry.HasCondition(m.Instance.Conditions, skerry.Ready) {
				select {
				case seen <- monotonicNow():
				default:
				}
			}
			return nil
		})
	}()
	stop := func() {
		cancel()
		<-done
	}
	select {
	case <-live:
	case <-time.After(2 * time.Second):
		// The stream is open even if it has nothing to tell yet.
	}
	return seen, stop, nil
}

// idle measures memory, processor time and traffic of everything with ten instances that do nothing.
func (b *budgeter) idle(ctx context.Context) error {
	if _, err := b.s.root.Apply(ctx, manifest("idle", 10), api.ApplyOptions{}); err != nil {
		return err
	}
	if err := b.ready(ctx, "idle", 10); err != nil {
		return err
	}
	worker, err := b.holder(ctx, "idle")
	if err != nil {
		return err
	}
	windows, window := 3, 15*time.Second
	if b.o.Full {
		windows, window = 10, 3*time.Minute
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(80 * time.Second): // until what the deployment left has settled: the stream connection closes after a minute
	}
	agents := worker.processes()
	for range windows {
		if err := b.round(ctx, func() error { return b.window(ctx, worker, agents, window) }); err != nil {
			return err
		}
	}
	b.about(fmt.Sprintf("PSS of %d processes, the agent and its datapath, with 10 instances", len(agents)), "agent.mem")
	b.about("BPF tables beside it", "agent.mem.tables")
	b.about(fmt.Sprintf("10 instances, windows of %s", window), "agent.cpu", "control.cpu")
	b.about("PSS of root and cluster in one process, API on", "control.mem")
	b.about("both directions on the worker's cable, TCP and IP headers included, 10 instances", "control.wire.fast")
	return b.remove(ctx, "idle")
}

// window measures what is idle for a while.
func (b *budgeter) window(ctx context.Context, worker *benchWorker, agents []int, window time.Duration) error {
	control := b.s.control.Process.Pid
	a0, err1 := sum(agents, CPUTime)
	c0, err2 := CPUTime(control)
	t0, err3 := b.s.ns.traffic(worker.cable)
	begin := time.Now()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(window):
	}
	a1, err1 := sum(agents, CPUTime)
	c1, err2 := CPUTime(control)
	t1, err3 := b.s.ns.traffic(worker.cable)
	took := time.Since(begin)
	am, err5 := sum(agents, PSS)
	ar, err7 := sum(agents, rss)
	cm, cr, err6 := memory(control)
	if err := errors.Join(err1, err2, err3, err5, err6, err7); err != nil {
		return err
	}
	b.add(100*float64(a1-a0)/float64(took), "agent.cpu")
	b.add(100*float64(c1-c0)/float64(took), "control.cpu")
	b.add(8*(t1-t0)/1000/took.Seconds(), "control.wire.fast")
	b.add(am/(1<<20), "agent.mem")
	b.add(ar/(1<<20), "agent.mem.rss")
	b.add(mib(worker.tables()), "agent.mem.tables")
	b.add(cm/(1<<20), "control.mem")
	b.add(cr/(1<<20), "control.mem.rss")
	return nil
}

// holder is the worker that runs an application's instances.
func (b *budgeter) holder(ctx context.Context, app string) (*benchWorker, error) {
	list, err := b.s.cluster.Instances(ctx, api.InstanceFilter{App: app})
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		for _, w := range b.s.workers {
			if string(i.Worker) == w.name {
				return w, nil
			}
		}
	}
	return nil, fmt.Errorf("nobody runs %s", app)
}
