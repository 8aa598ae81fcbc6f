package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/lab"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// plan is the federation that a measurement wants.
type plan struct {
	clusters, workers int // workers of each cluster
	// cpu is what each worker says that it has; 0: more than there is.
	cpu skerry.MilliCPU
	// limits are those of every host.
	limits lab.Limits
}

const (
	rootHost   = "root"
	answerTag  = "skerry.local/bench/answer:1"
	answerPort = 8080
	rootAPI    = "7480"
	clusterAPI = "7481"
	linkToRoot = 7443 // ports of the lab's roles
	linkToSite = 7444
	// capacity is what each worker says that it has: more than there is, so that the machine is the limit and no figure.
	capacityCPU, capacityMemory = 64 * skerry.MilliCPU(1000), skerry.Bytes(64 << 30)
)

func clusterHost(i int) string      { return fmt.Sprintf("c%d", i+1) }
func workerHost(c, i int) string    { return fmt.Sprintf("c%dw%d", c+1, i+1) }
func key(name string) skerry.AppKey { return skerry.AppKey{Namespace: "default", Name: name} }

func (p plan) String() string { return fmt.Sprintf("%dx%d", p.clusters, p.workers) }

func (p plan) topology(name string) lab.Topology {
	t := lab.Topology{Name: name, Hosts: []lab.Host{{Name: rootHost, Role: lab.RoleRoot, Args: []string{"--log-level", "warn"}}}}
	for c := range p.clusters {
		t.Hosts = append(t.Hosts, lab.Host{Name: clusterHost(c), Role: lab.RoleCluster, Args: []string{"--log-level", "warn"}})
		for i := range p.workers {
			t.Hosts = append(t.Hosts, lab.Host{Name: workerHost(c, i), Role: lab.RoleWorker, Cluster: clusterHost(c),
				Resources: spec.Resources{CPU: cmp.Or(p.cpu, capacityCPU), Memory: capacityMemory}, Args: []string{"--log-level", "warn"}})
		}
	}
	for i := range t.Hosts {
		t.Hosts[i].Limits = p.limits
	}
	return t
}

// federation is a lab that runs, with a client at its root.
type federation struct {
	plan plan
	l    *lab.Lab
	o    lab.Options
	root *api.Client
	// sites are clients at the clusters: a root knows no workers.
	sites []*api.Client
	// imaging says that the image service is at the root, and profiles are those of its workers by name, where the first has
	// neighbours (true) or not.
	imaging  bool
	profiles map[bool]map[string][]byte
}

// open starts a federation, with the image of the service at its root and on each worker.
func open(ctx context.Context, p plan, o lab.Options, name, service, dir string) (_ *federation, err error) {
	fed := &federation{plan: p, o: o, profiles: map[bool]map[string][]byte{}}
	if fed.l, err = lab.Up(ctx, p.topology(name), o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fed.close())
		}
	}()
	if fed.root, err = fed.client(ctx, rootHost, rootAPI); err != nil {
		return nil, err
	}
	for c := range p.clusters {
		k, err := fed.client(ctx, clusterHost(c), clusterAPI)
		if err != nil {
			return nil, err
		}
		fed.sites = append(fed.sites, k)
	}
	if err := fed.push(ctx, service, answerTag, dir); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	// Whoever has run it once has the image. The root sees one instance for each cluster, which stands for those of all workers.
	if _, err := fed.deploy(ctx, "first", `"mode":"perWorker",`, p.clusters, startTime); err != nil {
		return nil, fmt.Errorf("first deployment: %w", err)
	}
	err = until(ctx, "every worker has run an instance", func() (bool, error) {
		list, err := fed.instances(ctx, "first")
		ready := map[string]bool{}
		for _, i := range list {
			if isReady(&i) {
				ready[string(i.Worker)] = true
			}
		}
		return len(ready) == p.clusters*p.workers, err
	})
	if err != nil {
		return nil, err
	}
	return fed, fed.remove(ctx, "first")
}

// client logs into the API of a host, from within it: what it asks is on no cable.
func (f *federation) client(ctx context.Context, host, port string) (c *api.Client, err error) {
	password, err := os.ReadFile(filepath.Join(f.l.Data, host, parents.AdminPasswordFile))
	if err != nil {
		return nil, err
	}
	opt := api.ClientOptions{Server: "https://" + net.JoinHostPort(f.l.Topology.Host(host).Address, port), Dial: f.dialer(host)}
	if err := f.l.In(host, func() (err error) { opt.Pin, err = api.FetchPin(ctx, opt.Server); return err }); err != nil {
		return nil, err
	}
	if c, err = api.NewClient(opt); err != nil {
		return nil, err
	}
	_, err = c.Login(ctx, "admin", strings.TrimSpace(string(password)))
	return c, err
}

// instances lists those of an application, with their workers.
func (f *federation) instances(ctx context.Context, name string) (out []wire.Instance, err error) {
	for _, c := range f.sites {
		list, err := c.Instances(ctx, api.InstanceFilter{Namespace: "default", App: name})
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// dialer connects from within a host.
func (f *federation) dialer(host string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = f.l.In(host, func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}
}

func (f *federation) push(ctx context.Context, program, tag, dir string) (err error) {
	dir, err = os.MkdirTemp(dir, "images-")
	if err != nil {
		return err
	}
	st, err := artifact.Open(dir, artifact.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if _, err := st.Build(ctx, artifact.BuildOptions{Source: program, Tag: tag}); err != nil {
		return err
	}
	_, err = st.Push(ctx, tag, tag, &artifact.Source{BaseURL: f.root.Server(), Transport: f.root.Transport()}, nil)
	return err
}

// startTime bounds what is not measured: a start, a recovery.
const startTime = 2 * time.Minute

// instanceOf is what a deployment reserves; limits are as for the adapters, so that a processor is not what it waits for.
const instanceOf = `"resources":{"cpu":0.5,"memory":"16Mi"},"terminationGrace":"1s"`

func manifest(name, extra string, replicas int) []byte {
	return application(name, service("s", extra, replicas))
}

// service is one of an application; extra is more of it, as JSON with a comma behind.
func service(name, extra string, replicas int) string {
	if !strings.Contains(extra, "perWorker") {
		extra += `"replicas":` + strconv.Itoa(replicas) + ","
	}
	return fmt.Sprintf(`{"name":%q,"image":"bench/answer:1","args":[":%d"],"ports":[{"port":%d}],%s%s}`, name, answerPort, answerPort, extra, instanceOf)
}

func application(name string, services ...string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[%s]}}`, name, strings.Join(services, ","))
}

// deploy gives the seconds from when the root is asked until it shows so many instances as ready. Extra is more of the
// service, as JSON with a comma behind. What is not ready in time is an error that tells what the instances do instead.
func (f *federation) deploy(ctx context.Context, name, extra string, n int, limit time.Duration) (seconds float64, err error) {
	return f.apply(ctx, name, manifest(name, extra, n), n, limit)
}

// apply is deploy with a manifest of one's own.
func (f *federation) apply(ctx context.Context, name string, text []byte, n int, limit time.Duration) (seconds float64, err error) {
	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	synced, reached := make(chan struct{}), make(chan time.Time, 1)
	watching, stop := context.WithCancel(bound)
	done := make(chan error, 1)
	go func() {
		ready, first := map[skerry.InstanceID]bool{}, true
		done <- f.root.Watch(watching, api.WatchFilter{Namespace: "default", App: name, Kinds: []string{api.WatchInstance}},
			func(m api.WatchMessage) error {
				if m.Type == api.WatchSynced && first {
					first = false
					close(synced)
				}
				if m.Instance == nil {
					return nil
				}
				if isReady(m.Instance) {
					ready[m.Instance.ID] = true
				} else {
					delete(ready, m.Instance.ID)
				}
				if len(ready) >= n {
					select {
					case reached <- time.Now():
					default:
					}
				}
				return nil
			})
	}()
	defer func() { stop(); <-done }()
	select {
	case <-synced:
	case err := <-done:
		done <- err
		return 0, fmt.Errorf("watch: %w", err)
	}
	began := time.Now()
	if _, err := f.root.Apply(bound, text, api.ApplyOptions{}); err != nil {
		return 0, err
	}
	select {
	case at := <-reached:
		return at.Sub(began).Seconds(), nil
	case <-bound.Done():
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return 0, f.late(ctx, name, n, limit)
}

func isReady(i *wire.Instance) bool {
	return i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready)
}

// late tells how far a deployment came.
func (f *federation) late(ctx context.Context, name string, n int, limit time.Duration) error {
	list, err := f.root.Instances(ctx, api.InstanceFilter{Namespace: "default", App: name})
	if err != nil {
		return err
	}
	ready, why := 0, map[string]bool{}
	for _, i := range list {
		if isReady(&i) {
			ready++
			continue
		}
		text := string(i.State)
		if i.Reason != "" {
			text += " (" + i.Reason + ")"
		}
		why[text] = true
	}
	text := ""
	for k := range why {
		text += ", " + k
	}
	return fmt.Errorf("%d of %d were ready within %v%s", ready, n, limit, text)
}

// remove deletes an application and waits until nothing of it is left.
func (f *federation) remove(ctx context.Context, name string) error {
	if err := f.root.DeleteApp(ctx, key(name)); err != nil && skerry.AsError(err).Code != skerry.CodeNotFound {
		return err
	}
	return until(ctx, name+" is gone", func() (bool, error) {
		list, err := f.root.Instances(ctx, api.InstanceFilter{Namespace: "default", App: name})
		return err == nil && len(list) == 0, err
	})
}

// until looks every 20 ms, for at most startTime.
func until(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		done, err := ok()
		if done {
			return nil
		}
		if wait(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("waited in vain until %s: %w", what, errors.Join(ctx.Err(), err))
		}
	}
}

// answers asks every instance of an application, within its worker, and fails for one that does not answer. Ready is,
// without a probe, that the program runs: it has some seconds to listen.
func (f *federation) answers(ctx context.Context, name string) error {
	list, err := f.instances(ctx, name)
	if err != nil {
		return err
	}
	for _, i := range list {
		c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: f.dialer(string(i.Worker))}}
		var res *http.Response
		for deadline := time.Now().Add(10 * time.Second); ; {
			if res, err = c.Get("http://" + net.JoinHostPort(i.Address, strconv.Itoa(answerPort)) + "/"); !errors.Is(err, syscall.ECONNREFUSED) ||
				time.Now().After(deadline) {
				break
			}
			if err := wait(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("an instance that is ready does not answer: %w", err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("an instance that is ready answers %s: %w", res.Status, err)
		}
	}
	return nil
}

// processes lists what Skerry itself runs in the hosts of a role: programs that are in the host's own network, as those
// of instances are not, with conmon, which belongs to the worker whose instance it watches.
func (f *federation) processes(roles ...lab.Role) ([]Process, error) {
	spaces := map[string]Kind{}
	for _, h := range f.l.Topology.Hosts {
		if !slices.Contains(roles, h.Role) {
			continue
		}
		kind := Kind(h.Role) // root, cluster or worker
		err := f.l.In(h.Name, func() error {
			to, err := os.Readlink("/proc/thread-self/ns/net")
			spaces[to] = kind
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var list []Process
	for _, dir := range dirs {
		space, err1 := os.Readlink(filepath.Join(dir, "ns/net"))
		exe, err2 := os.Readlink(filepath.Join(dir, "exe"))
		kind, ours := spaces[space]
		if errors.Join(err1, err2) != nil || !ours || exe != f.o.Binary && filepath.Base(exe) != "conmon" {
			continue // or it has just ended
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			list = append(list, Process{kind, pid})
		}
	}
	return list, nil
}

func (f *federation) close() error {
	for _, c := range append(f.sites, f.root) {
		if c != nil {
			c.Close()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	return lab.Down(ctx, f.l.Topology.Name, f.o)
}
