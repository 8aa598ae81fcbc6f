//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/wire"
)

// TestHungAgent stops a worker's agent in its tracks: what must not run twice ends all the same, before it starts elsewhere, as a container and as a
// process of the host, though it ignores the signal to end. What may run twice runs on. The agent that goes on knows why its instances ended.
func TestHungAgent(t *testing.T) {
	ctx := t.Context()
	p := newProcesses(t, "w1", "w2")
	locks := filepath.Join(p.dir, "locks")
	if err := os.Mkdir(locks, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(locks, 0o777); err != nil {
		t.Fatal(err)
	}
	for d := locks; len(d) > len(os.TempDir()); d = filepath.Dir(d) { // users of user namespaces enter it
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	p.start(&role{name: "cluster", args: []string{"cluster", "--standalone", "--name", "island", "--data", p.data("cluster"), "--link", "127.0.0.1:7444", "--api", "127.0.0.1:7481",
		"--relay", "", "--admission", p.admission()}})
	c := login(t, "https://127.0.0.1:7481", p.data("cluster"))
	worker := func(name string) *role {
		token := joinToken(t, "https://127.0.0.1:7481", p.data("cluster"), wire.TierWorker)
		return p.start(&role{name: name, args: []string{"worker", "--name", name, "--data", p.data(name), "--cluster", "127.0.0.1:7444", "--join", token, "--run-dir", p.data("run-" + name),
			"--cgroup-parent", p.cgroup() + "-" + name, "--address", "127.0.0.1", "--http", "", "--no-network"}})
	}
	w1 := worker("w1")
	bin := filepath.Join(p.dir, "program")
	testenv.Build(t, bin, "skerry.dev/skerry/e2e/sole")
	pushFile(t, c, p.dir, "test/sole:1", bin)
	service := func(name, runtime, dir, disconnect, more string) string {
		return fmt.Sprintf(`{"name":%q,"runtime":%q,"image":"test/sole:1","command":["/program","%s/%s"],"onDisconnect":%s,"terminationGrace":"1s",
"resources":{"cpu":0.05,"memory":"32Mi"}%s}`, name, runtime, dir, name, disconnect, more)
	}
	mount := fmt.Sprintf(`,"volumes":[{"name":"locks","host":{"path":%q}}],"mounts":[{"volume":"locks","path":"/locks"}]`, locks)
	manifest := `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"sole"},"spec":{"services":[` + strings.Join([]string{
		service("box", "oci", "/locks", `{"stopAfter":"2s"}`, mount), service("bare", "native", locks, `{"stopAfter":"2s"}`, ""), service("free", "oci", "/locks", `"run"`, mount)}, ",") + `]}}`
	applied(t, c, "sole", []byte(manifest), 1)
	on := func(worker string) func() bool {
		return func() bool {
			list, err := c.Instances(ctx, api.InstanceFilter{App: "sole"})
			n := 0
			for _, i := range list {
				if i.Service.Service != "free" && string(i.Worker) == worker && skerry.HasCondition(i.Conditions, skerry.Ready) {
					n++
				}
			}
			return err == nil && n == 2
		}
	}
	await(t, "both run on the only worker", on("w1"))
	worker("w2")
	await(t, "the other worker is there", func() bool {
		list, err := c.Workers(ctx)
		return err == nil && len(list) == 2 && list[0].Connected && list[1].Connected
	})

	if err := w1.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "both run on the other worker", on("w2"))
	if err := w1.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, "the worker that was hung knows that it has ended both", func() bool {
		text, err := os.ReadFile(p.log.Name())
		return err == nil && strings.Count(string(text), "in place of its worker's agent") == 2
	})
	await(t, "both run on the other worker", on("w2"))
	for _, name := range []string{"box", "bare"} {
		await(t, name+" has run on each worker", func() bool {
			text, err := os.ReadFile(filepath.Join(locks, name+".ran"))
			return err == nil && string(text) == "w1\nw2\n"
		})
		if text, err := os.ReadFile(filepath.Join(locks, name+".twice")); err == nil {
			t.Errorf("%s ran twice: %s", name, text)
		}
	}
	if text, err := os.ReadFile(filepath.Join(locks, "free.twice")); err != nil || !strings.Contains(string(text), "w2") {
		t.Errorf("what may run twice did not: %q, %v", text, err)
	}
}
