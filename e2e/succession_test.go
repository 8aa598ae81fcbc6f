//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// candidateOf asks a cluster's process how it stands among the successors; nil: it does not answer, or there are none.
func candidateOf(program, data string) *succession.Status {
	out, err := exec.Command(program, "cluster", "status", "--data", data, "-o", "json").Output()
	if err != nil {
		return nil
	}
	var st struct {
		Succession *succession.Status `json:"succession"`
	}
	if json.Unmarshal(out, &st) != nil {
		return nil
	}
	return st.Succession
}

// TestSuccession kills the cluster of a site whose store lies on its machine while users write: a successor that was named in
// advance takes over with all that was acknowledged, the root follows, nothing that runs is touched and no request fails. The old
// one comes back and stands by.
func TestSuccession(t *testing.T) {
	ctx := t.Context()
	workers := []string{"w1", "w2", "w3"}
	p := newProcesses(t, workers...)
	admission := p.admission()
	candidate := func(n int, more ...string) *role {
		at := fmt.Sprintf("127.0.7.%d", n)
		return &role{name: "cluster", args: append([]string{"cluster", "--data", p.data(fmt.Sprint("seat", n)), "--root", "127.0.7.9:7443", "--link", at + ":7444", "--api", at + ":7481",
			"--relay", "", "--admission", admission, "--lost-after", "1m"}, more...)}
	}
	p.keep(&role{name: "root", args: []string{"root", "--data", p.data("root"), "--link", "127.0.7.9:7443", "--api", "127.0.7.9:7480"}})
	first := p.keep(candidate(1, "--name", "harbour", "--join", joinToken(t, "https://127.0.7.9:7480", p.data("root"), wire.TierCluster)))
	var agents []*role
	for _, w := range workers {
		args := []string{"worker", "--name", w, "--data", p.data(w), "--cluster", "127.0.7.1:7444", "--join", joinToken(t, "https://127.0.7.1:7481", p.data("seat1"), wire.TierWorker),
			"--run-dir", p.data("run-" + w), "--cgroup-parent", p.cgroup() + "-" + w, "--address", "127.0.0.1", "--http", "", "--ingress=false"}
		if w != "w1" {
			args = append(args, "--no-network", "--taint", "nothing")
		}
		agents = append(agents, p.keep(&role{name: "worker", args: args}))
	}
	root := login(t, "https://127.0.7.9:7480", p.data("root"))
	pushProgram(t, root, p.dir, "test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	manifest := func(name string, replicas, round int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"web","image":"test/catalog:1","replicas":%d,
"env":{"ROUND":"%d"},"ports":[{"name":"http","port":8080,"hostPort":-1}],"probes":{"readiness":{"http":{"port":8080,"path":"/healthz"}}},"resources":{"cpu":0.05,"memory":"32Mi"}}]}}`, name, replicas, round)
	}
	applied(t, root, "stable", manifest("stable", 1, 0), 1)
	before := containerPIDs(t, p.data("w1"))

	for n, name := range map[int]string{2: "second", 3: "third"} {
		token := joinToken(t, "https://127.0.7.1:7481", p.data("seat1"), wire.TierSuccessor)
		p.keep(candidate(n, "--succeed", "127.0.7.1:7444", "--name", name, "--join", token))
	}
	inSync := func(of int) (n int) {
		if st := candidateOf(p.program, p.data(fmt.Sprint("seat", of))); st != nil && st.State == lease.Leading && len(st.Voters) == 3 {
			for _, s := range st.Successors {
				if s.State == "heir" {
					n++
				}
			}
		}
		return n
	}
	await(t, "both successors have everything", func() bool { return inSync(1) == 2 })
	for _, candidate := range []string{"seat2", "seat3"} {
		key, err := os.ReadFile(filepath.Join(p.data("seat1"), vault.KeyFile))
		if got, err2 := os.ReadFile(filepath.Join(p.data(candidate), vault.KeyFile)); err != nil || err2 != nil || !bytes.Equal(got, key) {
			t.Errorf("%s could not open the site's secrets: %v %v", candidate, err, err2)
		}
	}

	site := &pairOf{t: t, servers: []string{"https://127.0.7.1:7481", "https://127.0.7.2:7481", "https://127.0.7.3:7481"}, data: filepath.Join(p.data("seat1"), "admin-password")}
	instances, err := root.Instances(ctx, api.InstanceFilter{App: "stable"})
	if err != nil || len(instances) != 1 {
		t.Fatalf("%+v %v", instances, err)
	}
	address := ""
	await(t, "the site tells where it is", func() bool {
		return site.do(ctx, func(c *api.Client) error {
			list, err := c.Instances(ctx, api.InstanceFilter{App: "stable"})
			if err == nil && len(list) == 1 && len(list[0].Ports) == 1 {
				address = list[0].Ports[0].Address
			}
			return err
		}) == nil && address != ""
	})
	visitor := ask(t, "http://"+address+"/healthz")
	defer visitor.end()

	writers := write(t, 2, 10, func(ctx context.Context, name string, round int) (skerry.Generation, error) {
		return site.register(ctx, manifest(name, 1, round), 3*time.Second)
	})
	await(t, "users write", func() bool { return writers.written() >= 30 })
	first.kill()
	began := time.Now()
	leads := 0 // the second, unless that was slow
	await(t, "a successor leads and all workers are connected", func() bool {
		leads = site.leader()
		return leads > 0 && site.do(ctx, func(c *api.Client) error {
			list, err := c.Workers(ctx)
			if err == nil && (len(list) != 3 || slices.ContainsFunc(list, func(w view.WorkerView) bool { return !w.Connected })) {
				err = fmt.Errorf("not yet")
			}
			return err
		}) == nil
	})
	t.Logf("%s leads after %.1f s", site.servers[leads], time.Since(began).Seconds())
	at := writers.written()
	await(t, "users write again", func() bool { return writers.written() >= at+30 })
	await(t, "the root follows", func() bool {
		list, err := root.Clusters(ctx)
		return err == nil && len(list) == 1 && list[0].Connected
	})
	first.keep(t, p.program, p.log)
	await(t, "the old one stands by and has everything", func() bool {
		st := candidateOf(p.program, p.data("seat1"))
		return st != nil && st.State == lease.Standing && st.Leader != "" && inSync(leads+1) == 2
	})
	writers.end()
	if err := site.do(ctx, func(c *api.Client) error {
		list, err := c.Apps(ctx, "default")
		if err == nil {
			writers.check(t, list)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	visitor.end()
	if bad := visitor.bad.Load(); bad > 0 || visitor.good.Load() < 100 {
		t.Errorf("of %d requests %d failed: %v", visitor.good.Load()+bad, bad, visitor.last.Load())
	}
	if after := containerPIDs(t, p.data("w1")); len(before) != 1 || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("processes %v became %v", before, after)
	}
	// Two of three workers are gone: a majority could follow another machine, so the one that led writes nothing, says so, and goes on
	// answering who reads. When they are back it leads again, in the same process.
	for _, w := range agents[1:] {
		w.kill()
	}
	leader := login(t, site.servers[leads], p.data("seat1"))
	await(t, "the leader refuses writes, with the reason", func() bool {
		_, err := leader.Apply(ctx, manifest("refused", 1, 0), api.ApplyOptions{Register: true})
		return err != nil && strings.Contains(err.Error(), "does not lead the site now")
	})
	if list, err := leader.Apps(ctx, "default"); err != nil || len(list) < len(writers.acked) {
		t.Errorf("it does not answer who reads: %d applications, %v", len(list), err)
	}
	for _, w := range agents[1:] {
		w.keep(t, p.program, p.log)
	}
	await(t, "somebody leads again and takes writes", func() bool {
		return site.do(ctx, func(c *api.Client) error {
			_, err := c.Apply(ctx, manifest("again", 1, 0), api.ApplyOptions{Register: true})
			return err
		}) == nil
	})
	if _, err := root.Apply(ctx, manifest("stable", 2, 0), api.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "what the root wants comes about", func() bool { return readyOf(ctx, root, "stable") == 2 })
	if files, _ := filepath.Glob(filepath.Join(p.data("seat1"), "aside-*")); len(files) > 0 {
		text, _ := os.ReadFile(files[0])
		t.Logf("set aside: %s: %d changes", files, strings.Count(string(text), "\n"))
	}
}
