//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/native"
)

// etcdMembers makes three members of etcd on loopback addresses of their own, not yet started.
func etcdMembers(t *testing.T, dir string) (list []*role, hosts string) {
	t.Helper()
	bin, err := exec.LookPath("etcd")
	if err != nil {
		t.Fatalf("etcd is missing; install etcd-server: %v", err)
	}
	var all, clients []string
	for n := range 3 {
		all = append(all, fmt.Sprintf("m%d=http://127.0.9.%d:2380", n, n+1))
		clients = append(clients, fmt.Sprintf("127.0.9.%d:2379", n+1))
	}
	for n := range 3 {
		client, peer := "http://"+clients[n], strings.SplitN(all[n], "=", 2)[1]
		list = append(list, &role{name: bin, args: []string{fmt.Sprintf("--name=m%d", n), "--data-dir=" + filepath.Join(dir, fmt.Sprintf("etcd%d", n)),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + strings.Join(all, ","), "--max-txn-ops=4096", "--max-request-bytes=10485760"}})
	}
	return list, strings.Join(clients, ",")
}

// pairOf is what a user has of a role of which two processes take turns.
type pairOf struct {
	t       *testing.T
	servers [2]string
	data    string // where the first admin's password is
	mu      sync.Mutex
	clients [2]*api.Client
}

// do has whoever leads carry something out; an error is that of both.
func (p *pairOf) do(ctx context.Context, f func(c *api.Client) error) (err error) {
	for n := range p.servers {
		p.mu.Lock()
		c := p.clients[n]
		p.mu.Unlock()
		if c == nil {
			if c, err = p.login(ctx, n); err != nil {
				continue
			}
		}
		if err = f(c); err == nil {
			return nil
		}
	}
	return err
}

func (p *pairOf) login(ctx context.Context, n int) (*api.Client, error) {
	password, err := os.ReadFile(p.data)
	if err != nil {
		return nil, err
	}
	pin, err := api.FetchPin(ctx, p.servers[n])
	if err != nil {
		return nil, err
	}
	c, err := api.NewClient(api.ClientOptions{Server: p.servers[n], Pin: pin})
	if err != nil {
		return nil, err
	}
	if _, err := c.Login(ctx, "admin", strings.TrimSpace(string(password))); err != nil {
		c.Close()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients[n] = c
	p.t.Cleanup(c.Close)
	return c, nil
}

// leader tells which of the two answers, or -1.
func (p *pairOf) leader() int {
	for n, s := range p.servers {
		if _, err := api.FetchPin(p.t.Context(), s); err == nil {
			return n
		}
	}
	return -1
}

// TestLeadersAreKilled runs root and cluster as two processes each over etcd, kills whoever leads, and members of etcd, while
// users write: everything acknowledged is there in the end, and nothing that runs was touched.
func TestLeadersAreKilled(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	program := filepath.Join(dir, "skerry")
	build := exec.Command("go", "build", "-o", program, "skerry.dev/skerry/cmd/skerry")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	data := func(name string) string { return filepath.Join(dir, name) }
	t.Setenv("ETCD_UNSUPPORTED_ARCH", goruntime.GOARCH)
	members, hosts := etcdMembers(t, dir)
	etcdLog, err := os.Create(filepath.Join(dir, "etcdlog"))
	if err != nil {
		t.Fatal(err)
	}
	defer etcdLog.Close()
	var all []*role
	t.Cleanup(func() {
		for _, r := range all {
			r.kill()
		}
		if out, err := exec.Command(program, "worker", "cleanup", "--yes", "--data", data("worker")).CombinedOutput(); err != nil {
			t.Errorf("clean up: %v\n%s", err, out)
		}
		if t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil {
				t.Logf("log: %s", text[max(0, len(text)-6000):])
			}
		}
	})
	for _, m := range members {
		m.start(t, m.name, etcdLog)
		all = append(all, m)
	}
	pair := func(name string, more ...string) (list [2]*role) {
		for n := range 2 {
			at := fmt.Sprintf("127.0.8.%d", n+1)
			link, rest := at+":7443", at+":7480"
			if name == "cluster" {
				link, rest = at+":7444", at+":7481"
			}
			list[n] = &role{name: name, args: append([]string{name, "--data", data(fmt.Sprint(name, n)), "--store", "etcd://" + hosts + "/" + name, "--link", link, "--api", rest}, more...)}
		}
		return list
	}
	start := func(r *role) {
		r.start(t, program, log)
		all = append(all, r)
	}
	roots := pair("root")
	start(roots[0])
	token := joinToken(t, "https://127.0.8.1:7480", data("root0"), skerry.TierCluster)
	start(roots[1])
	admission := filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(admission, []byte("trusted: [default]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	clusters := pair("cluster", "--name", "harbour", "--root", "127.0.8.1:7443,127.0.8.2:7443", "--join", token, "--admission", admission, "--lost-after", "1m")
	start(clusters[0])
	token = joinToken(t, "https://127.0.8.1:7481", data("cluster0"), skerry.TierWorker)
	start(clusters[1])
	start(&role{name: "worker", args: []string{"worker", "--name", "w1", "--data", data("worker"), "--cluster", "127.0.8.1:7444,127.0.8.2:7444", "--join", token, "--run-dir", data("run"),
		"--cgroup-parent", cgroupParent(filepath.Dir(dir)), "--address", "127.0.0.1", "--http", ""}})
	root := &pairOf{t: t, servers: [2]string{"https://127.0.8.1:7480", "https://127.0.8.2:7480"}, data: filepath.Join(data("root0"), "admin-password")}
	site := &pairOf{t: t, servers: [2]string{"https://127.0.8.1:7481", "https://127.0.8.2:7481"}, data: filepath.Join(data("cluster0"), "admin-password")}
	manifest := func(name string, replicas, round int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"web","runtime":"native","command":["/bin/sleep","100000"],"replicas":%d,
"env":{"ROUND":"%d"},"resources":{"cpu":0.05,"memory":"32Mi"}}]}}`, name, replicas, round)
	}
	await(t, "the application is taken", func() bool {
		return root.do(ctx, func(c *api.Client) error {
			_, err := c.Apply(ctx, manifest("stable", 2, 0), api.ApplyOptions{})
			return err
		}) == nil
	})
	ready := func() (n int) {
		_ = root.do(ctx, func(c *api.Client) error { n = readyOf(ctx, c, "stable"); return nil })
		return n
	}
	await(t, "two instances are ready", func() bool { return ready() == 2 })
	before := nativePIDs(t, data("worker"))
	if len(before) != 2 {
		t.Fatalf("%d processes run", len(before))
	}

	var mu sync.Mutex
	acked := map[string]skerry.Generation{}
	wctx, stopWriting := context.WithCancel(ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stopWriting()
	for w := range 2 {
		writers.Go(func() {
			for i := 0; wctx.Err() == nil; i++ {
				name := fmt.Sprintf("w%d-%d", w, i%10)
				var gen skerry.Generation
				err := root.do(wctx, func(c *api.Client) error {
					actx, cancel := context.WithTimeout(wctx, 2*time.Second)
					defer cancel()
					res, err := c.Apply(actx, manifest(name, 1, i), api.ApplyOptions{Register: true})
					gen = res.Gen
					return err
				})
				if err == nil {
					mu.Lock()
					acked[name] = max(acked[name], gen)
					mu.Unlock()
				} else {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	// written waits until the root takes writes, and says how long that took.
	written := func(what string) {
		t.Helper()
		began := time.Now()
		await(t, what+": the root takes writes", func() bool {
			return root.do(ctx, func(c *api.Client) error {
				actx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := c.Apply(actx, manifest("probe", 1, 0), api.ApplyOptions{Register: true})
				return err
			}) == nil
		})
		t.Logf("%s: the root takes writes again after %.1f s", what, time.Since(began).Seconds())
	}
	for round := range 2 {
		n := root.leader()
		if n < 0 {
			t.Fatal("nobody leads")
		}
		roots[n].kill()
		written(fmt.Sprintf("round %d, root killed", round))
		if root.leader() != 1-n {
			t.Errorf("%d leads after %d was killed", root.leader(), n)
		}
		roots[n].start(t, program, log)
		m := members[leadingMember(t, members, hosts)]
		m.kill()
		written(fmt.Sprintf("round %d, leader of etcd killed", round))
		m.start(t, m.name, etcdLog)
		if n = site.leader(); n < 0 {
			t.Fatal("nobody leads the site")
		}
		clusters[n].kill()
		began := time.Now()
		await(t, "the site's standby leads and the worker is connected", func() bool {
			return site.leader() == 1-n && site.do(ctx, func(c *api.Client) error {
				list, err := c.Workers(ctx)
				if err == nil && (len(list) != 1 || !list[0].Connected) {
					err = fmt.Errorf("not yet")
				}
				return err
			}) == nil
		})
		t.Logf("round %d, cluster killed: the worker is connected again after %.1f s", round, time.Since(began).Seconds())
		clusters[n].start(t, program, log)
	}
	stopWriting()
	writers.Wait()
	await(t, "two instances are ready again", func() bool { return ready() == 2 })
	after := nativePIDs(t, data("worker"))
	for id, pid := range before {
		if after[id] != pid {
			t.Errorf("%s was restarted or moved: process %d, now %d", id, pid, after[id])
		}
	}
	have := map[string]skerry.Generation{}
	if err := root.do(ctx, func(c *api.Client) error {
		list, err := c.Apps(ctx, "default")
		for _, a := range list {
			have[a.Key.Name] = a.Gen
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for name, gen := range acked {
		if have[name] < gen {
			t.Errorf("%s is at generation %d, %d was acknowledged", name, have[name], gen)
		}
	}
	if len(acked) < 20 {
		t.Errorf("only %d applications were acknowledged; the writers hardly wrote", len(acked))
	}
}

// leadingMember finds the member that etcd's own members follow.
func leadingMember(t *testing.T, members []*role, hosts string) int {
	t.Helper()
	client := http.Client{Timeout: time.Second}
	found := -1
	await(t, "etcd has a leader", func() bool {
		for n, host := range strings.Split(hosts, ",") {
			resp, err := client.Get("http://" + host + "/metrics")
			if err != nil {
				continue
			}
			text := make([]byte, 1<<20)
			size := 0
			for size < len(text) {
				k, err := resp.Body.Read(text[size:])
				size += k
				if err != nil {
					break
				}
			}
			resp.Body.Close()
			if strings.Contains(string(text[:size]), "etcd_server_is_leader 1") {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// nativePIDs reads the processes of a worker's native instances from its driver's state.
func nativePIDs(t *testing.T, dir string) map[skerry.InstanceID]int {
	t.Helper()
	d, err := native.New(native.Options{Dir: filepath.Join(dir, "native"), Shim: []string{"/bin/true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[skerry.InstanceID]int{}
	for _, h := range list {
		if st, err := d.Status(t.Context(), h); err == nil && st.State == runtime.StateRunning {
			out[h.Instance] = h.PID
		}
	}
	return out
}
