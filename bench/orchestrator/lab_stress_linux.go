package orchestrator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/lab"
	"skerry.dev/skerry/wire"
)

// What an instance of bench/answer takes of the machine, with its conmon and what starts it: fifty at once took at most
// 4 MiB and 11 threads each of their host's cgroup (1.7 MiB and 5 once they ran), and half as much again is left for
// what that does not count.
const (
	instanceMemory  = 6 * skerry.MiB
	instanceThreads = 16
	// Its neighbours on the link: the bridge for it, and it for its host. All namespaces of a machine share one table.
	instanceNeighbours = 2
	otherNeighbours    = 128
)

// room is what a machine has left.
type room struct {
	memory  skerry.Bytes
	threads int
	// neighbours may be in the kernel's table; that of IPv6 is another, of the same size unless told otherwise.
	neighbours int
	// of both together
	cpus        int
	totalMemory skerry.Bytes
}

// thisMachine looks at what is left. What cannot be read counts as nothing left.
func thisMachine() (r room) {
	r.cpus = runtime.NumCPU()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return r
	}
	for line := range strings.Lines(string(text)) {
		var kb skerry.Bytes
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kb); err == nil {
			r.memory = kb << 10
		} else if _, err := fmt.Sscanf(line, "MemTotal: %d kB", &kb); err == nil {
			r.totalMemory = kb << 10
		}
	}
	text, err = os.ReadFile("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
	if err == nil {
		r.neighbours, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	text, err = os.ReadFile("/proc/loadavg") // its fourth field is RUNNING/THREADS
	if f := strings.Fields(string(text)); err == nil && len(f) > 3 {
		_, all, _ := strings.Cut(f[3], "/")
		used, err := strconv.Atoi(all)
		for _, name := range []string{"pid_max", "threads-max"} {
			limit, err2 := os.ReadFile("/proc/sys/kernel/" + name)
			n, err3 := strconv.Atoi(strings.TrimSpace(string(limit)))
			if errors.Join(err, err2, err3) != nil {
				return r
			}
			if left := n - used; r.threads == 0 || left < r.threads {
				r.threads = left
			}
		}
	}
	return r
}

// holds refuses more instances than there is room for: CodeFull.
func (r room) holds(n int) error {
	if need := skerry.Bytes(n) * instanceMemory; need > r.memory {
		return skerry.Errorf(skerry.CodeFull, "%d instances need about %s of memory and %s is available", n, need,
			r.memory).WithHint("ask for fewer by --stress or --stress-workers")
	}
	if need := n*instanceNeighbours + otherNeighbours; need > r.neighbours {
		return skerry.Errorf(skerry.CodeFull, "%d instances need about %d entries of the kernel's table of neighbours, which takes %d", n, need,
			r.neighbours).WithHint("raise it: sysctl net.ipv4.neigh.default.gc_thresh3=%d", 4*need)
	}
	if need := n * instanceThreads; need > r.threads {
		return skerry.Errorf(skerry.CodeFull, "%d instances need about %d threads and %d more may begin", n, need,
			r.threads).WithHint("raise kernel.pid_max or kernel.threads-max, or ask for fewer by --stress or --stress-workers")
	}
	return nil
}

// stress deploys as many instances on each worker, has each answer at its service address, and tells what Skerry itself
// used meanwhile and uses then.
func (m *labRun) stress(ctx context.Context, f *federation, each int) (_ map[string]float64, err error) {
	values := map[string]float64{}
	name, remove, err := m.fill(ctx, f, each*f.plan.workers, values)
	defer func() { err = errors.Join(err, remove()) }()
	if err != nil {
		return nil, err
	}
	if values["ask"], err = m.ask(ctx, f, name); err != nil {
		return nil, err
	}
	if err := wait(ctx, m.settle()); err != nil {
		return nil, err
	}
	if err := m.listened(ctx, f, values, func() error { return m.load(ctx, f, values) }); err != nil {
		return nil, err
	}
	values["instance.memory"] = (values["worker.memory"] - values["before.memory"]) / float64(each*f.plan.workers)
	delete(values, "before.memory")
	return values, nil
}

// settle is how long a federation is left alone before its messages are counted.
func (m *labRun) settle() time.Duration {
	if m.o.Settle > 0 {
		return m.o.Settle
	}
	if m.o.Quick {
		return quickSettle
	}
	return settle
}

// fill deploys n instances, spread over the workers, asks each for an answer, and adds what that took, of Skerry's own
// processes too, but for those that ended meanwhile. It gives the application, and what removes it, whether or not
// there was an error.
func (m *labRun) fill(ctx context.Context, f *federation, n int, values map[string]float64) (name string, remove func() error, err error) {
	name = m.fresh()
	remove = func() error { return f.remove(context.WithoutCancel(ctx), name) }
	before, memory, err := f.counted()
	if err != nil {
		return name, remove, err
	}
	seconds, err := f.apply(ctx, name, manifests(name, n, f.plan.workers*f.plan.clusters), n, m.o.Timeout)
	if err != nil {
		return name, remove, err
	}
	after, _, err := f.counted()
	if err != nil {
		return name, remove, err
	}
	values["all.ready"], values["each.ready"], values["before.memory"] = seconds, 1000*seconds/float64(n), memory[Worker].PSS/mib
	for kind, used := range spent(before, after) {
		values["deploy."+string(kind)+".cpu"] = 1000 * used / float64(n)
	}
	return name, remove, f.answers(ctx, name)
}

// manifests is an application of n instances on so many workers, as services of no more instances than a worker is told
// of: each is then reached by its own service address from everywhere. Each service has as many instances on each
// worker, as far as n allows.
func manifests(name string, n, workers int) []byte {
	most := wire.MaxBackends
	if workers < most {
		most -= most % workers
	}
	var services []string
	for i := 0; n > 0; i++ {
		services = append(services, service(fmt.Sprint("s", i+1), `"placement":{"policy":"spread"},`, min(n, most)))
		n -= most
	}
	return application(name, services...)
}

// Kinds of processes in a lab, beside Worker: what together is Control.
const (
	kindRoot    Kind = "root"
	kindCluster Kind = "cluster"
)

// counted reads the counters and the memory of all that Skerry itself runs.
func (f *federation) counted() (counters, map[Kind]Use, error) {
	list, err := f.processes(lab.RoleRoot, lab.RoleCluster, lab.RoleWorker)
	if err != nil {
		return nil, nil, err
	}
	c, err := count(list)
	if err != nil {
		return nil, nil, err
	}
	memory, err := weigh(list)
	return c, memory, err
}

// load adds what Skerry itself uses: of all workers together, and of root and clusters, alone and together.
func (m *labRun) load(ctx context.Context, fed *federation, values map[string]float64) error {
	before, _, err := fed.counted()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := wait(ctx, m.o.Window); err != nil {
		return err
	}
	after, all, err := fed.counted()
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	used := spent(before, after)
	used[Control] = used[kindRoot] + used[kindCluster]
	all[Control] = Use{PSS: all[kindRoot].PSS + all[kindCluster].PSS}
	for _, kind := range []Kind{Control, kindRoot, kindCluster, Worker} {
		values[string(kind)+".cpu"], values[string(kind)+".memory"] = 100*used[kind]/took, all[kind].PSS/mib
	}
	return nil
}

// firstAnswer is how long an instance may take to answer at its service address for the first time, which has its worker look for it.
const firstAnswer = 15 * time.Second

// ask asks each instance of an application by its own service address from an instance on another worker, where there
// is one, as one service asks another, and fails unless it is that instance which answers. It gives the median of the
// second answers, in milliseconds from before the connection to the last byte: the first ones find the way.
func (m *labRun) ask(ctx context.Context, fed *federation, name string) (median float64, err error) {
	view, err := fed.root.App(ctx, key(name))
	if err != nil {
		return 0, err
	}
	addresses, n := map[string][]netip.Addr{}, 0
	for _, s := range view.Services {
		if s.Addresses != nil {
			addresses[s.Name], n = s.Addresses.Instances, n+len(s.Addresses.Instances)
		}
	}
	list, err := fed.instances(ctx, name)
	if err != nil {
		return 0, err
	}
	from, err := fed.inside()
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, space := range from {
			space.Close()
		}
	}()
	hosts := fed.l.Names(lab.RoleWorker)
	next := map[string]string{}
	for i, h := range hosts {
		next[h] = hosts[(i+1)%len(hosts)]
	}
	type question struct {
		at   netip.Addr
		want skerry.InstanceID
	}
	asked := map[string][]question{} // by who asks
	for _, i := range list {
		to := addresses[i.Service.Service]
		if i.Ordinal >= len(to) || !to[i.Ordinal].IsValid() {
			return 0, fmt.Errorf("%s has no service address", i.ID)
		}
		by := next[string(i.Worker)]
		asked[by] = append(asked[by], question{to[i.Ordinal], i.ID})
	}
	type result struct {
		ms  []float64
		err error
	}
	results := make(chan result, len(asked))
	for by, questions := range asked {
		go func() {
			var r result
			r.err = within(from[by], func() error {
				for _, q := range questions {
					for k := range 2 {
						took, answer, err := get(ctx, netip.AddrPortFrom(q.at, answerPort))
						if err == nil && m.o.Service == "" && answer != "ok "+string(q.want) {
							err = fmt.Errorf("it answers %q", answer)
						}
						if err != nil {
							return fmt.Errorf("%s at its service address %s, asked from %s: %w", q.want, q.at, by, err)
						}
						if k == 1 {
							r.ms = append(r.ms, 1000*took.Seconds())
						}
					}
				}
				return nil
			})
			results <- r
		}()
	}
	var all []float64
	for range asked {
		r := <-results
		all, err = append(all, r.ms...), errors.Join(err, r.err)
	}
	if err == nil && len(all) != n {
		err = fmt.Errorf("%d instances answered at %d service addresses", len(all), n)
	}
	return report.Median(all), err
}

// get asks a server in the network of the calling thread, with a connection of its own.
func get(ctx context.Context, at netip.AddrPort) (took time.Duration, answer string, err error) {
	began := time.Now()
	d := net.Dialer{Timeout: firstAnswer}
	conn, err := d.DialContext(ctx, "tcp4", at.String())
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(began.Add(2 * firstAnswer)); err != nil {
		return 0, "", err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: answer\r\nConnection: close\r\n\r\n"); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	took = time.Since(began)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return 0, "", err
	}
	if res.StatusCode != http.StatusOK {
		return 0, "", fmt.Errorf("it answers %s", res.Status)
	}
	return took, string(bytes.TrimSpace(text)), nil
}

// inside opens the network of one instance on each worker that has one.
func (f *federation) inside() (out map[string]*os.File, err error) {
	own := map[string]string{} // by host, its own network
	for _, h := range f.l.Names(lab.RoleWorker) {
		if err := f.l.In(h, func() (err error) { own[h], err = os.Readlink("/proc/thread-self/ns/net"); return err }); err != nil {
			return nil, err
		}
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	out = map[string]*os.File{}
	for _, dir := range dirs {
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			continue // it has just ended
		}
		_, after, ok := bytes.Cut(groups, []byte("/skerry-lab/"+f.l.Topology.Name+"/"))
		host, group, _ := strings.Cut(string(after), "/")
		if !ok || out[host] != nil || !strings.HasPrefix(group, "work/") {
			continue
		}
		space, err := os.Open(filepath.Join(dir, "ns/net"))
		if err != nil {
			continue
		}
		if is, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(space.Fd()))); err != nil || is == own[host] {
			space.Close() // conmon's
			continue
		}
		out[host] = space
	}
	return out, nil
}

// within runs f on a thread that is in a network, and that is thrown away afterwards.
func within(space *os.File, f func() error) error {
	if space == nil {
		return errors.New("there is no instance to ask from")
	}
	return thread.Do(func() error {
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}
