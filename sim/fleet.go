package sim

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// FleetOptions say how large a simulated fleet is, and what it does.
type FleetOptions struct {
	Workers, Clusters int
	// Instances is how many instances of one service run on each cluster; 0: ten.
	Instances int
	// For is the simulated time once all are connected; 0: an hour.
	For time.Duration
	// Failures is how many workers lose their power in that time, and come back a minute later; less than 0: none, 0: one in
	// a thousand.
	Failures int
	Progress func(text string)
}

// FleetResult is what a simulated fleet cost. Beats are not simulated one by one, and not counted.
type FleetResult struct {
	Workers   int                 `json:"workers"`
	Clusters  int                 `json:"clusters"`
	Instances int                 `json:"instances"` // ready at the end, of
	Wanted    int                 `json:"wanted"`
	Failures  int                 `json:"failures"`
	Simulated time.Duration       `json:"simulatedNs"`
	Start     time.Duration       `json:"startNs"` // wall clock until all were connected and everything ran
	Wall      time.Duration       `json:"wallNs"`  // wall clock of the simulated time after that
	Steps     int                 `json:"steps"`
	Heap      uint64              `json:"heapBytes"` // live at the end, after a collection
	Sys       uint64              `json:"sysBytes"`  // taken from the system, at most
	StartUp   map[string]*Traffic `json:"startTraffic"`
	Traffic   map[string]*Traffic `json:"traffic"` // by the tier that sends, in the simulated time
}

// Fleet runs a fleet of real cores for a while. An error says that it did not come to what was asked for, or that ctx ended.
func Fleet(ctx context.Context, o FleetOptions) (*FleetResult, error) {
	if o.Instances == 0 {
		o.Instances = 10
	}
	if o.For == 0 {
		o.For = time.Hour
	}
	if o.Failures == 0 {
		o.Failures = o.Workers / 1000
	}
	if o.Workers < 1 || o.Clusters < 1 || o.Clusters > o.Workers {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%d workers in %d clusters make no fleet", o.Workers, o.Clusters)
	}
	say := func(format string, args ...any) {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf(format, args...))
		}
	}
	begin := time.Now()
	w := New(1)
	w.UseNetwork()
	w.quiet = true
	w.Latency = 10 * time.Millisecond
	w.Machine = Machine{Prepare: time.Second, Start: 100 * time.Millisecond, Stop: 100 * time.Millisecond}
	var names []string
	for c := range o.Clusters {
		site := fmt.Sprintf("c%d", c)
		names = append(names, site)
		w.AddCluster(site)
	}
	var workers []*Node
	for i := range o.Workers {
		f := wire.WorkerFacts{Capacity: spec.Resources{CPU: 4000, Memory: 8 * skerry.GiB, Storage: 64 * skerry.GiB}}
		f.Overlay = &wire.OverlayFacts{Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 7444)}}
		copy(f.Overlay.Key[:], fmt.Sprintf("%-32d", i))
		f.Probe = fmt.Sprintf("192.168.%d.%d:7443", byte(i>>8), byte(i))
		workers = append(workers, w.AddWorker(names[i%len(names)], fmt.Sprintf("w%d", i), f))
	}
	if err := w.pass(ctx, time.Minute); err != nil {
		return nil, err
	}
	say("%d workers in %d clusters are connected after %s", o.Workers, o.Clusters, time.Since(begin).Round(time.Millisecond))
	for i, site := range names {
		a := Action{Target: fmt.Sprintf("app%d", i), Args: map[string]string{"replicas": fmt.Sprint(o.Instances)}}
		app := application(&a)
		app.Spec.Services[0].Placement.Cluster = site
		if err, bad := w.Do(w.Root, apps.Apply{Actor: "t", App: app}).(error); bad {
			return nil, err
		}
		if err := w.pass(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err := w.pass(ctx, time.Minute); err != nil {
		return nil, err
	}
	r := &FleetResult{Workers: o.Workers, Clusters: o.Clusters, Wanted: o.Clusters * o.Instances, Failures: max(0, o.Failures), Start: time.Since(begin)}
	say("%d of %d instances are ready after %s", w.readyAtRoot(), r.Wanted, r.Start.Round(time.Millisecond))
	r.StartUp = w.net.traffic
	w.net.traffic = map[string]*Traffic{"root": {}, "cluster": {}, "worker": {}}
	steps, now := w.steps, w.Now
	begin = time.Now()
	const slices = 60
	failed := 0
	for k := range slices {
		// Failures come spread over all but the last five minutes.
		for ; failed < r.Failures && failed*(slices-5) < r.Failures*(k+1) && k < slices-5; failed++ {
			n := workers[w.rng.IntN(len(workers))]
			w.crash(n, true)
			w.at(w.Now.Add(time.Minute), func() { w.boot(n) })
		}
		if err := w.pass(ctx, o.For/slices); err != nil {
			return nil, err
		}
		if k%10 == 9 {
			say("%s simulated in %s", w.Now.Sub(now).Round(time.Second), time.Since(begin).Round(time.Millisecond))
		}
	}
	r.Failures = failed
	r.Wall, r.Steps, r.Traffic, r.Simulated = time.Since(begin), w.steps-steps, w.net.traffic, w.Now.Sub(now)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	r.Heap, r.Sys = m.HeapAlloc, m.Sys
	r.Instances = w.readyAtRoot()
	for _, f := range w.Faults {
		return r, skerry.Errorf(skerry.CodeInternal, "%s", f)
	}
	if r.Instances != r.Wanted {
		return r, skerry.Errorf(skerry.CodeInternal, "%d of %d instances are ready at the end", r.Instances, r.Wanted)
	}
	return r, nil
}

// pass lets time go by, unless ctx ends.
func (w *World) pass(ctx context.Context, d time.Duration) error {
	end := w.Now.Add(d)
	for n := 0; w.step(end); n++ {
		if n%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	w.Now = end
	return nil
}

// readyAtRoot counts the instances that the root knows to be ready.
func (w *World) readyAtRoot() (n int) {
	for _, a := range w.RootCore().Apps.Apps() {
		for _, i := range w.RootCore().Apps.InstancesOf(a.Key()) {
			if i.IsReady() && !i.Stopping {
				n++
			}
		}
	}
	return n
}
