package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/wire"
)

// FederationOptions say what to measure.
type FederationOptions struct {
	Program   string // the skerry binary
	Clusters  []int  // sizes, each larger than the one before
	Instances int    // for each cluster
	Rate      int    // changes a second
	Full      bool   // longer
	Small     bool   // as short as a test of the benchmark itself needs
	report.Measuring
}

// group is the group of all figures.
func (o *FederationOptions) group() string {
	return fmt.Sprintf("a root by the number of its clusters, %d instances for each", o.Instances)
}

// Federation measures a real root with the real links of more and more clusters.
func Federation(ctx context.Context, opt FederationOptions) (out *report.Report, err error) {
	out = report.New("federation", "A root with many clusters", opt.words())
	if err := opt.Quiet.Begin(ctx); err != nil {
		return nil, err
	}
	opt.Say("starting a root")
	fed, err := openFederated(ctx, opt.Program)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fed.close()) }()
	for n, clusters := range opt.Clusters {
		x := &federation1{f: fed, r: out, o: &opt, place: sizeName(clusters), last: n == len(opt.Clusters)-1}
		opt.Say("%s, %d instances", sizeName(clusters), clusters*opt.Instances)
		// It is one root that grows, so that nothing of a round can be measured again.
		if err := x.measure(ctx, clusters); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", sizeName(clusters), err), fed.tail())
		}
		if by, err := opt.Quiet.Round(ctx); err != nil {
			return nil, err
		} else if by != "" {
			out.Disturbed = append(out.Disturbed, report.Mark{Round: out.Rounds + 1, By: by})
		}
		out.Rounds++
		if err := out.Keep(opt.Measuring); err != nil {
			return nil, err
		}
	}
	out.Note("The clusters' ends of the links are in one other process: identities, links, sets and reports by the code of clusters. " +
		"What a cluster does at its site is left out.")
	out.Note("The root runs as installed, with its store on a disk. Requests come through HTTPS, those of %d users from as many addresses.",
		apiUsers)
	out.Finish(ctx, opt.Measuring)
	return out, nil
}

func sizeName(clusters int) string {
	if clusters == 1 {
		return "1 cluster"
	}
	return fmt.Sprintf("%d clusters", clusters)
}

func (o *FederationOptions) words() string {
	out := "--quick"
	if o.Full {
		out = "--full"
	}
	return fmt.Sprintf("%s --instances %d --rate %d", out, o.Instances, o.Rate)
}

// federation1 measures one size.
type federation1 struct {
	f     *federated
	r     *report.Report
	o     *FederationOptions
	place string
	last  bool // the largest one, which has the goals
}

func (x *federation1) pick(quick, full int) int {
	switch {
	case x.o.Small:
		return 1
	case x.o.Full:
		return full
	}
	return quick
}

// figure gives a figure of this size; goal 0: it has none.
func (x *federation1) figure(name, unit, better string, goal float64, about string) *report.Figure {
	fig := x.r.Figure(x.o.group(), name, x.place)
	if fig.Unit, fig.Better, fig.About = unit, better, about; goal != 0 && x.last {
		fig.Goal = &goal
	}
	return fig
}

func (x *federation1) add(v float64, name, unit, better string, goal float64, about string) {
	x.r.Add(x.figure(name, unit, better, goal, about), v)
}

// times adds median and p99 of what took some milliseconds.
func (x *federation1) times(list []float64, name string, goal float64, about string) {
	x.add(report.Median(list), name+", median", "ms", report.Lower, 0, about)
	x.add(report.Quantile(list, 0.99), name+", p99", "ms", report.Lower, goal, about)
}

func (x *federation1) measure(ctx context.Context, clusters int) error {
	before := x.f.apps
	if err := x.f.grow(ctx, clusters); err != nil {
		return err
	}
	begin := time.Now()
	if err := x.f.fill(ctx, clusters*x.o.Instances); err != nil {
		return err
	}
	placed := float64((x.f.apps - before) * benchServices * benchReplicas)
	x.add(placed/time.Since(begin).Seconds(), "placements", "1/s", report.Higher, 0,
		fmt.Sprintf("instances of applications, %d sent at a time, until the root shows all as ready; store, links and TLS are in it",
			apiUsers))
	for _, step := range []func(context.Context) error{x.rest, x.requests, x.changes, x.restart} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rest measures what the root needs while nothing changes.
func (x *federation1) rest(ctx context.Context) error {
	pid, window := x.f.root.Process.Pid, time.Duration(x.pick(15, 60))*time.Second
	before, err := CPUTime(pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(window):
	}
	after, err1 := CPUTime(pid)
	pss, err2 := PSS(pid)
	x.add(100*float64(after-before)/float64(time.Since(begin)), "processor at rest", "% of a core", report.Lower, 0,
		"each cluster reports every 10 s")
	x.add(pss/(1<<20), "memory", "MiB", report.Lower, 700, "PSS of the root after that")
	return errors.Join(err1, err2)
}

// fetch reads an answer of the API to its end, as a client does that has to show it.
func fetch(ctx context.Context, c *api.Client, path string) (size int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server()+path, nil)
	if err != nil {
		return 0, err
	}
	res, err := (&http.Client{Transport: c.Transport()}).Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", path, res.Status)
	}
	return io.Copy(io.Discard, res.Body)
}

// requests measures requests, one after another, kinds in turns.
func (x *federation1) requests(ctx context.Context) error {
	page, err := x.somePage(ctx)
	if err != nil {
		return err
	}
	some := func(n int) wire.Instance { return page[n%len(page)] }
	fresh := func(n int) skerry.AppKey {
		return skerry.AppKey{Namespace: benchApp(0).Namespace, Name: fmt.Sprintf("fresh-%03d", n)}
	}
	kinds := []struct {
		name, about string
		do          func(n int, c *api.Client) error
	}{
		{"a page of instances", "GET /v1/instances?limit=100", func(_ int, c *api.Client) error {
			_, err := fetch(ctx, c, "/v1/instances?limit=100")
			return err
		}},
		{"a page of applications", "GET /v1/apps?limit=100", func(_ int, c *api.Client) error {
			_, err := fetch(ctx, c, "/v1/apps?limit=100")
			return err
		}},
		{"get an instance", "", func(n int, c *api.Client) error {
			_, err := c.Instance(ctx, some(n).ID)
			return err
		}},
		{"get an application", "with its manifest", func(n int, c *api.Client) error {
			_, err := c.App(ctx, some(n).Service.App)
			return err
		}},
		{"apply", "a new application of one instance, until it is accepted", func(n int, c *api.Client) error {
			_, err := c.Apply(ctx, benchManifest(fresh(n), 1, 1, ""), api.ApplyOptions{})
			return err
		}},
		{"list clusters", "all of them", func(_ int, c *api.Client) error {
			_, err := fetch(ctx, c, "/v1/clusters")
			return err
		}},
	}
	took := make([][]float64, len(kinds))
	for n := range x.pick(100, 500) {
		for k, kind := range kinds {
			var err error
			us := clock(func() { err = kind.do(n, x.f.user(n)) })
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			took[k] = append(took[k], us/1e3)
		}
	}
	for k, kind := range kinds {
		x.times(took[k], kind.name, 50, kind.about)
	}
	for n := range took[0] {
		if err := x.f.user(n).DeleteApp(ctx, fresh(n)); err != nil {
			return err
		}
	}
	if err := x.f.settled(ctx); err != nil {
		return err
	}
	return x.watch(ctx)
}

// somePage is a page of instances, to ask for single ones.
func (x *federation1) somePage(ctx context.Context) ([]wire.Instance, error) {
	list, err := x.f.user(0).Instances(ctx, api.InstanceFilter{Namespace: benchApp(0).Namespace, App: benchApp(x.f.apps / 2).Name})
	if err == nil && len(list) == 0 {
		err = errors.New("there are no instances")
	}
	return list, err
}

// watch measures until a watch of everything has told all that there is.
func (x *federation1) watch(ctx context.Context) error {
	told, done, begin := 0, errors.New("synced"), time.Now()
	err := x.f.user(0).Watch(ctx, api.WatchFilter{}, func(m api.WatchMessage) error {
		if told++; m.Type == api.WatchSynced {
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		return fmt.Errorf("watch: %w", err)
	}
	x.add(time.Since(begin).Seconds(), "a watch of everything", "s", report.Lower, 0,
		fmt.Sprintf("until it has told all that there is: %d messages at the last size", told))
	return nil
}

// changesAtOnce bounds the changes that wait for their answer; where they do not come in time, fewer are asked for.
const changesAtOnce = 64

// changes asks for changes at a rate, and measures until they are accepted, and a `get` beside them.
func (x *federation1) changes(ctx context.Context) error {
	page, err := x.somePage(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all, beside sync.WaitGroup
	var gets []float64
	over := make(chan struct{})
	beside.Go(func() {
		for n := 0; ; n++ {
			var err error
			us := clock(func() { _, err = x.f.user(n).Instance(ctx, page[len(page)-1].ID) })
			if err != nil {
				cancel(fmt.Errorf("get beside changes: %w", err))
				return
			}
			gets = append(gets, us/1e3)
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	took, begin := make([]float64, x.o.Rate*x.pick(10, 60)), time.Now()
	waiting := make(chan struct{}, changesAtOnce)
	for n := range took {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(x.o.Rate))))
		waiting <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-waiting }()
			app := n % x.f.apps
			us := clock(func() {
				if _, err := x.f.user(n).Scale(ctx, benchService(app), benchReplicas+(n/x.f.apps+1)%2); err != nil {
					cancel(fmt.Errorf("change %d: %w", n, err))
				}
			})
			took[n] = us / 1e3
		})
	}
	all.Wait()
	seconds := time.Since(begin).Seconds()
	close(over)
	beside.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	x.add(float64(len(took))/seconds, "changes", "1/s", report.Higher, 0.97*float64(x.o.Rate), fmt.Sprintf(
		"a service of %d instances is scaled by one; %d a second are asked for, at most %d at a time", benchReplicas, x.o.Rate,
		changesAtOnce))
	x.times(took, "a change", 0, "until it is accepted")
	x.times(gets, "get an instance beside changes", 50, "")
	return x.settle(context.WithoutCancel(ctx), min(x.f.apps, len(took)))
}

// settle measures until all that was asked for is there, and then undoes the changes of some applications.
func (x *federation1) settle(ctx context.Context, applications int) error {
	begin := time.Now()
	if err := x.f.settled(ctx); err != nil {
		return err
	}
	x.add(time.Since(begin).Seconds(), "settled after that", "s", report.Lower, 0,
		"from the last change that was accepted until the root shows all instances as ready; the list of applications that shows it takes a part")
	var all errgroup.Group
	all.SetLimit(len(x.f.users))
	for app := range applications {
		all.Go(func() error {
			_, err := x.f.user(app).Scale(ctx, benchService(app), benchReplicas)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return x.f.settled(ctx)
}

// restart measures until a root that was stopped answers again, and until all clusters are back.
func (x *federation1) restart(ctx context.Context) error {
	stop(x.f.root, syscall.SIGTERM)
	begin := time.Now()
	if err := x.f.startRoot(ctx); err != nil {
		return err
	}
	x.add(time.Since(begin).Seconds(), "start", "s", report.Lower, 10,
		"from the start of the process until a request of its API is answered")
	if err := x.f.connected(ctx); err != nil {
		return err
	}
	if err := x.f.settled(ctx); err != nil {
		return err
	}
	x.add(time.Since(begin).Seconds(), "all are back", "s", report.Lower, 0,
		"until all clusters are connected and have told what they have")
	return nil
}
