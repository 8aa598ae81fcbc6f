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
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/wire"
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

// TestLeadersAreKilled runs root and cluster as two processes each over etcd, kills whoever leads, and members of etcd, while
// users write: everything acknowledged is there in the end, and nothing that runs was touched.
func TestLeadersAreKilled(t *testing.T) {
	ctx := t.Context()
	p := newProcesses(t, "worker")
	t.Setenv("ETCD_UNSUPPORTED_ARCH", goruntime.GOARCH)
	members, hosts := etcdMembers(t, p.dir)
	etcdLog, err := os.Create(p.data("etcdlog"))
	if err != nil {
		t.Fatal(err)
	}
	defer etcdLog.Close()
	for _, m := range members {
		m.start(t, m.name, etcdLog)
		p.all = append(p.all, m)
	}
	pair := func(name string, more ...string) (list [2]*role) {
		for n := range 2 {
			at := fmt.Sprintf("127.0.8.%d", n+1)
			link, rest := at+":7443", at+":7480"
			if name == "cluster" {
				link, rest = at+":7444", at+":7481"
			}
			list[n] = &role{name: name, args: append([]string{name, "--data", p.data(fmt.Sprint(name, n)), "--store", "etcd://" + hosts + "/" + name, "--link", link, "--api", rest}, more...)}
		}
		return list
	}
	roots := pair("root")
	p.keep(roots[0])
	token := joinToken(t, "https://127.0.8.1:7480", p.data("root0"), wire.TierCluster)
	p.keep(roots[1])
	clusters := pair("cluster", "--name", "harbour", "--root", "127.0.8.1:7443,127.0.8.2:7443", "--join", token, "--admission", p.admission(), "--lost-after", "1m")
	p.keep(clusters[0])
	token = joinToken(t, "https://127.0.8.1:7481", p.data("cluster0"), wire.TierWorker)
	p.keep(clusters[1])
	p.keep(&role{name: "worker", args: []string{"worker", "--name", "w1", "--data", p.data("worker"), "--cluster", "127.0.8.1:7444,127.0.8.2:7444", "--join", token, "--run-dir", p.data("run"),
		"--cgroup-parent", p.cgroup(), "--address", "127.0.0.1", "--http", ""}})
	root := &pairOf{t: t, servers: []string{"https://127.0.8.1:7480", "https://127.0.8.2:7480"}, data: filepath.Join(p.data("root0"), "admin-password")}
	site := &pairOf{t: t, servers: []string{"https://127.0.8.1:7481", "https://127.0.8.2:7481"}, data: filepath.Join(p.data("cluster0"), "admin-password")}
	defer root.tellIfFailed("stable")
	defer site.tellIfFailed("stable")
	await(t, "the application is taken", func() bool {
		return root.do(ctx, func(c *api.Client) error {
			_, err := c.Apply(ctx, sleeping("stable", 2, 0), api.ApplyOptions{})
			return err
		}) == nil
	})
	await(t, "two instances are ready", func() bool { return root.ready(ctx, "stable") == 2 })
	before := nativePIDs(t, p.data("worker"))
	defer func() {
		if t.Failed() {
			t.Logf("the worker runs %v; before leaders were killed %v", nativePIDs(t, p.data("worker")), before)
		}
	}()
	if len(before) != 2 {
		t.Fatalf("%d processes run", len(before))
	}

	writers := write(t, 2, 10, func(ctx context.Context, name string, round int) (skerry.Generation, error) {
		return root.register(ctx, sleeping(name, 1, round), 2*time.Second)
	})
	// written waits until the root takes writes, and says how long that took.
	written := func(what string) {
		t.Helper()
		began := time.Now()
		await(t, what+": the root takes writes", func() bool {
			_, err := root.register(ctx, sleeping("probe", 1, 0), time.Second)
			return err == nil
		})
		t.Logf("%s: the root takes writes again after %.1f s", what, time.Since(began).Seconds())
	}
	for round := range 2 {
		n := -1
		await(t, "somebody leads", func() bool { n = root.leader(); return n >= 0 })
		roots[n].kill()
		written(fmt.Sprintf("round %d, root killed", round))
		if root.leader() != 1-n {
			t.Errorf("%d leads after %d was killed", root.leader(), n)
		}
		roots[n].keep(t, p.program, p.log)
		m := members[leadingMember(t, members, hosts)]
		m.kill()
		written(fmt.Sprintf("round %d, leader of etcd killed", round))
		m.start(t, m.name, etcdLog)
		// One that could not renew its lease while the members chose ends, and is started again by its unit.
		await(t, "somebody leads the site", func() bool { n = site.leader(); return n >= 0 })
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
		clusters[n].keep(t, p.program, p.log)
	}
	writers.end()
	await(t, "two instances are ready again", func() bool { return root.ready(ctx, "stable") == 2 })
	after := nativePIDs(t, p.data("worker"))
	for id, pid := range before {
		if after[id] != pid {
			t.Errorf("%s was restarted or moved: process %d, now %d", id, pid, after[id])
		}
	}
	if err := root.do(ctx, func(c *api.Client) error {
		list, err := c.Apps(ctx, "default")
		if err == nil {
			writers.check(t, list)
		}
		return err
	}); err != nil {
		t.Fatal(err)
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
	return pidsOf(t, d)
}
