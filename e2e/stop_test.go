//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/testenv"
)

// TestRolesHang stops each role's process in the middle (SIGSTOP), as a machine does that swaps or is paused, until others notice, and lets it
// go on. What runs goes on, nothing is started twice, what was acknowledged is there, and the role works again without a restart.
func TestRolesHang(t *testing.T) {
	testenv.Long(t, "sim: partitions of every link in TestDigestsOfSeeds")
	p := newProcesses(t, "worker")
	root, cluster, worker := p.threeRoles()
	ctx := t.Context()
	c := login(t, "https://127.0.0.1:7480", p.data("root"))
	defer c.Close()
	site := login(t, "https://127.0.0.1:7481", p.data("cluster"))
	defer site.Close()
	applied(t, c, "stable", sleeping("stable", 2, 0), 2)
	before := nativePIDs(t, p.data("worker"))
	// It ends as soon as it is asked to, so that the test does not wait for many.
	brief := func(name string, n int) []byte {
		return bytes.Replace(sleeping(name, 1, n), []byte(`"resources"`), []byte(`"terminationGrace":"100ms","resources"`), 1)
	}
	silent := func(c *api.Client) func() bool {
		return func() bool {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := c.Apps(ctx, "default")
			return err != nil
		}
	}
	connected := func(name string) bool {
		out, err := exec.CommandContext(ctx, p.program, name, "status", "--data", p.data(name), "-o", "json").Output()
		return err == nil && strings.Contains(string(out), `"connected": true`)
	}
	const rounds = 2
	for n := range rounds {
		for _, h := range []struct {
			role    *role
			noticed func() bool
			what    string
		}{
			{root, silent(c), "the root does not answer"},
			{cluster, silent(site), "the cluster does not answer"},
			{worker, func() bool {
				w, err := site.Worker(ctx, "w1")
				return err == nil && (!w.Connected || w.Lost || !w.Beats)
			}, "the cluster knows that the worker is silent"},
		} {
			name := fmt.Sprintf("r%d-%s", n, h.role.name)
			if _, err := c.Apply(ctx, brief(name, n), api.ApplyOptions{}); err != nil {
				t.Fatal(err)
			}
			await(t, "the worker's beats come", func() bool { w, err := site.Worker(ctx, "w1"); return err == nil && w.Beats })
			if err := h.role.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			await(t, h.what, h.noticed)
			t.Logf("%s hangs: noticed after %s", h.role.name, time.Since(start).Round(time.Millisecond))
			start = time.Now()
			if err := h.role.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			await(t, "all are connected after the "+h.role.name+" went on", func() bool { return connected("cluster") && connected("worker") })
			t.Logf("connected %s after it went on", time.Since(start).Round(time.Millisecond))
			await(t, name+" is ready", func() bool { return readyOf(ctx, c, name) == 1 })
			await(t, "what ran is ready", func() bool { return readyOf(ctx, c, "stable") == 2 })
			t.Logf("all is ready %s after it went on", time.Since(start).Round(time.Millisecond))
			now := nativePIDs(t, p.data("worker"))
			maps.DeleteFunc(now, func(id skerry.InstanceID, _ int) bool { _, was := before[id]; return !was })
			if !maps.Equal(now, before) {
				t.Errorf("after the %s hung, processes %v became %v", h.role.name, before, now)
			}
			applied(t, c, name+"-after", brief(name+"-after", n), 1)
		}
	}
	if runs := nativePIDs(t, p.data("worker")); len(runs) != 2+6*rounds {
		t.Errorf("%d processes run: %v", len(runs), runs)
	}
}
