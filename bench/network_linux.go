package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/bench/report"
)

// lengths says how long things are measured.
type lengths struct {
	rounds  int
	stream  int // seconds; 0: a few MB
	ask     time.Duration
	short   time.Duration
	sink    time.Duration
	steps   int
	counts  []int // of replicas
	replies int   // for each
	delays  []int // ms
	loads   int   // downloads for each
	routes  int   // service addresses
	flows   int
	writes  []int // bytes of a write of a stream
}

func lengthsOf(opt NetworkOptions) lengths {
	switch {
	case opt.Small:
		return lengths{rounds: 1, ask: 10 * time.Millisecond, short: 20 * time.Millisecond, sink: 20 * time.Millisecond, steps: 1,
			counts: []int{3}, replies: 30, routes: 200, writes: []int{64}}
	case opt.Budget:
		l := lengths{rounds: 5, stream: 1, ask: 50 * time.Millisecond}
		if opt.Full {
			l.rounds, l.stream, l.ask = 15, 3, 200*time.Millisecond
		}
		return l
	case opt.Quick:
		return lengths{rounds: 2, stream: 1, ask: 20 * time.Millisecond, short: 200 * time.Millisecond, sink: 100 * time.Millisecond, steps: 4,
			counts: []int{1, 9}, replies: 300, routes: 10_000}
	case opt.Full:
		return lengths{rounds: 15, stream: 3, ask: 100 * time.Millisecond, short: time.Second, sink: 300 * time.Millisecond, steps: 7,
			counts: []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, replies: 3000, delays: []int{10, 50, 100, 250}, loads: 3, routes: 10_000, flows: 1_000_000,
			writes: writeSizes()}
	}
	return lengths{rounds: 3, stream: 2, ask: 30 * time.Millisecond, short: 400 * time.Millisecond, sink: 200 * time.Millisecond, steps: 4,
		counts: []int{1, 3, 5, 7, 9}, replies: 1000, routes: 10_000, writes: writeSizes()}
}

// measurer is a run of the benchmark.
type measurer struct {
	NetworkOptions
	lengths
	out       *report.Report
	iperf     string        // why iperf3 cannot be used
	megabytes int64         // of a download
	flowLife  time.Duration // without packets
}

// MeasureNetwork measures ways of sending between instances of two hosts, in turns.
func MeasureNetwork(ctx context.Context, o NetworkOptions) (*report.Report, error) {
	m := &measurer{NetworkOptions: o, lengths: lengthsOf(o), out: report.New("network", "The overlay beside other paths", o.words()),
		megabytes: 100, flowLife: 20 * time.Second}
	m.out.Baseline = caseDirect
	for _, c := range cases() {
		if m.wants(c[0]) {
			m.out.Places = append(m.out.Places, report.Place{Name: c[0], Text: c[1]})
		}
	}
	// Threads that wait in the kernel must not lose their turn to run Go for it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(8, runtime.NumCPU())))
	if _, err := exec.LookPath("iperf3"); err != nil {
		m.iperf = "iperf3 is not installed (package iperf3)"
		m.out.Note("Not measured: streams: %s", m.iperf)
	}
	kinds := []wireKind{{name: "gso"}, {name: "mtu", small: true}}
	for _, kind := range kinds {
		if err := m.wire(ctx, kind); err != nil {
			return nil, err
		}
	}
	if !o.Budget {
		for _, step := range []struct {
			what string
			on   bool
			fn   func(context.Context) error
		}{
			{"1 to 9 replicas", len(m.counts) > 0, m.replicas},
			{"downloads over a long way", len(m.delays) > 0, m.downloads},
			{"10,000 routes", m.lengths.routes > 0, m.routesUpdate},
			{"a million flows", m.lengths.flows > 0, m.flows},
		} {
			if !step.on {
				m.out.Note("Not measured: %s: only with --full", step.what)
				continue
			}
			o.Say("measuring: %s", step.what)
			err := step.fn(ctx)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				m.skip(step.what, err)
			}
		}
	}
	m.out.Finish(ctx, o.Measuring)
	return m.out, nil
}

// round measures a round.
func (m *measurer) round(ctx context.Context, measure func() error) error {
	return m.out.Round(ctx, m.Measuring, measure)
}

// words are the options that matter to figures.
func (o *NetworkOptions) words() string {
	out := "--case " + strings.Join(o.Cases, ",")
	if len(o.Cases) == 0 {
		out = ""
	}
	for _, w := range []struct {
		on   bool
		word string
	}{{o.Quick, "--quick"}, {o.Full, "--full"}} {
		if w.on {
			out += " " + w.word
		}
	}
	return strings.TrimSpace(out)
}

// skip notes what was not measured.
func (m *measurer) skip(what string, err error) {
	text := strings.Join(strings.Fields(err.Error()), " ")
	m.out.Note("Not measured: %s: %s", what, text)
	m.Say("not measured: %s: %s", what, text)
}

func (m *measurer) wants(name string) bool {
	return len(m.Cases) == 0 || slices.Contains(m.Cases, name)
}

// lanes builds the cases for a wire; those that cannot be are noted, and the others go on.
func (m *measurer) lanes(ctx context.Context, kind wireKind, replicas int, names []string,
	failed func(name string, err error)) (list []*lane, err error) {
	for _, name := range names {
		if !m.wants(name) {
			continue
		}
		l, err := newLane(ctx, m.Program, name, kind, replicas)
		if ctx.Err() != nil {
			if l != nil {
				list = append(list, l)
			}
			return list, errors.Join(ctx.Err(), closeAll(list))
		}
		if err != nil {
			failed(name, err)
			continue
		}
		list = append(list, l)
		if err := l.serve(); err != nil {
			return list, errors.Join(err, closeAll(list))
		}
	}
	return list, nil
}

// serve starts what answers in the instances behind the address.
func (l *lane) serve() error {
	spaces := []*namespace{l.server}
	if l.server != l.hosts[1].ns {
		spaces = l.hosts[1].insts
	}
	for _, ns := range spaces {
		s, err := newProbeServer(ns)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		l.servers = append(l.servers, s)
		l.later(s.close)
	}
	return nil
}

func closeAll(list []*lane) error {
	var errs []error
	for _, l := range slices.Backward(list) {
		if err := l.close(); err != nil {
			errs = append(errs, fmt.Errorf("clean up %s: %w", l.name, err))
		}
	}
	return errors.Join(errs...)
}

func caseNames() (out []string) {
	for _, c := range cases() {
		out = append(out, c[0])
	}
	return out
}

// wire measures all cases on one kind of wire.
func (m *measurer) wire(ctx context.Context, kind wireKind) (err error) {
	m.Say("building: wire %s", kind.name)
	names := caseNames()
	if m.Small && kind.small {
		names = []string{caseDirect, caseSealed, casePlain}
	}
	list, err := m.lanes(ctx, kind, 1, names, func(name string, err error) { m.skip(kind.name+" "+name, err) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(list)) }()
	for round := range m.rounds {
		if err := m.round(ctx, func() error { return m.turns(ctx, kind, round+1, list) }); err != nil {
			return err
		}
	}
	if kind.small && !m.Budget && m.iperf == "" {
		for _, n := range m.writes {
			m.Say("measuring: a stream of writes of %d bytes", n)
			if err := m.writesOf(ctx, list, n); err != nil {
				return err
			}
		}
		m.Say("measuring: 1 %% loss")
		if err := m.loss(ctx, list); err != nil && ctx.Err() == nil {
			m.skip("1 % loss", err)
		}
	}
	return ctx.Err()
}

// turns has every case do everything on one kind of wire.
func (m *measurer) turns(ctx context.Context, kind wireKind, round int, list []*lane) error {
	for _, step := range m.steps() {
		m.Say("measuring: wire %s, round %d of %d, %s", kind.name, round, m.rounds, step.what)
		for range 1 + step.again {
			for _, l := range list {
				if err := ctx.Err(); err != nil {
					return err
				}
				values, err := step.fn(ctx, l)
				if err != nil && ctx.Err() == nil {
					m.skip(fmt.Sprintf("%s %s, %s, round %d", kind.name, l.name, step.what, round), err)
				}
				for _, name := range step.metrics {
					if v, ok := values[name]; ok {
						m.out.Add(metricOf(name).figure(m.out, kind.name, l.name), v)
					}
				}
			}
		}
	}
	return nil
}

// netStep is one measurement of a case.
type netStep struct {
	what    string
	metrics []string
	fn      func(context.Context, *lane) (map[string]float64, error)
	again   int // how many times more in each round
}

func (m *measurer) steps() (out []netStep) {
	if m.iperf == "" {
		out = append(out, netStep{what: "one stream", metrics: []string{"tcp1", "cpu"},
			fn: func(ctx context.Context, l *lane) (map[string]float64, error) {
				rate, cpu, err := l.stream(ctx, 1, m.stream)
				return map[string]float64{"tcp1": rate, "cpu": cpu}, err
			}})
		if !m.Budget {
			out = append(out, netStep{what: "eight streams", metrics: []string{"tcp8"},
				fn: func(ctx context.Context, l *lane) (map[string]float64, error) {
					rate, _, err := l.stream(ctx, 8, m.stream)
					return map[string]float64{"tcp8": rate}, err
				}})
		}
	}
	sizes := messageSizes()
	if m.Budget {
		sizes = sizes[:1]
	}
	// Whether both ends find themselves on one core or on two doubles a round trip: short turns, and many.
	trip := netStep{what: "round trips", metrics: []string{"udp64", "udp64.p99"}, again: 3}
	if m.Small {
		trip.again = 0
	}
	for _, n := range sizes {
		trip.metrics = append(trip.metrics, fmt.Sprint("tcp", n, "b"), fmt.Sprint("tcp", n, "b.p99"))
	}
	trip.fn = func(_ context.Context, l *lane) (map[string]float64, error) {
		v := map[string]float64{}
		list, err := ask(l.client, "udp4", l.to, 64, m.ask)
		if err == nil {
			v["udp64"], v["udp64.p99"] = report.Median(list), report.Quantile(list, 0.99)
		}
		for _, n := range sizes {
			list, e := ask(l.client, "tcp4", l.to, n, m.ask)
			if err = errors.Join(err, e); e == nil {
				v[fmt.Sprint("tcp", n, "b")], v[fmt.Sprint("tcp", n, "b.p99")] = report.Median(list), report.Quantile(list, 0.99)
			}
		}
		return v, err
	}
	out = append(out, trip)
	if m.Budget {
		return out
	}
	return append(out,
		netStep{what: "connections", metrics: []string{"conns"}, fn: func(_ context.Context, l *lane) (map[string]float64, error) {
			start := time.Now()
			list, err := requests(l.client, l.to, m.short, 0)
			if err != nil {
				return nil, err
			}
			return map[string]float64{"conns": float64(len(list)) / time.Since(start).Seconds()}, nil
		}},
		netStep{what: "datagrams", metrics: []string{"udp"}, fn: func(_ context.Context, l *lane) (map[string]float64, error) {
			v, err := sinkRate(l.client, l.to, l.servers[0], m.sink, m.lengths.steps)
			if err != nil {
				return nil, err
			}
			return map[string]float64{"udp": v}, nil
		}})
}

// stream sends with iperf3 for some seconds and gives Gbit/s, and seconds of processor time for each Gbit: of both ends, of
// what carries the packets in user space, and of the kernel's threads for interrupts. What the kernel does within a
// process's turn is the process's.
func (l *lane) stream(ctx context.Context, streams, seconds int, more ...string) (rate, cpu float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds+15)*time.Second)
	defer cancel()
	once := &rig{ctx: ctx}
	defer once.close()
	server, err := once.child(l.server, "listening", "", "iperf3", "-s", "-1", "--forceflush")
	if err != nil {
		return 0, 0, err
	}
	pids := append(interruptThreads(), l.pids...)
	amount := []string{"-t", fmt.Sprint(seconds)}
	if seconds == 0 {
		amount = []string{"-n", "2M"}
	}
	client := exec.CommandContext(ctx, "iperf3", append([]string{"-c", l.to.String(), "-P", fmt.Sprint(streams), "-J", "--connect-timeout",
		"3000"}, append(amount, more...)...)...)
	var text strings.Builder
	client.Stdout = &text
	before := cpuOf(pids)
	err = l.client.do(client.Start)
	if err == nil {
		err = client.Wait()
	}
	used := cpuOf(pids) - before
	if err == nil {
		defer context.AfterFunc(ctx, func() { _ = server.Process.Kill() })()
		err = server.Wait() // it serves once
	}
	var r struct {
		Error string
		End   struct {
			Received struct {
				Bits  float64 `json:"bits_per_second"`
				Bytes float64 `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	_ = json.Unmarshal([]byte(text.String()), &r)
	if err != nil || r.Error != "" {
		return 0, 0, fmt.Errorf("iperf3: %w %s", errors.Join(err, ctx.Err()), r.Error)
	}
	if r.End.Received.Bytes == 0 {
		return 0, 0, errors.New("iperf3: nothing was received")
	}
	for _, p := range []*os.ProcessState{client.ProcessState, server.ProcessState} {
		used += p.UserTime() + p.SystemTime()
	}
	return r.End.Received.Bits / 1e9, used.Seconds() / (r.End.Received.Bytes * 8 / 1e9), nil
}

// cpuOf sums up what processes have used, this one among them: relays run in it.
func cpuOf(pids []int) (sum time.Duration) {
	var own unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &own) == nil {
		sum = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	}
	for _, pid := range pids {
		if d, err := CPUTime(pid); err == nil {
			sum += d
		}
	}
	return sum
}

// interruptThreads are the kernel's threads that carry packets when there are many.
func interruptThreads() (out []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, p := range list {
		if name, err := os.ReadFile(p); err == nil && strings.HasPrefix(string(name), "ksoftirqd/") {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}
