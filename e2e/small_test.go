//go:build linux

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// A worker of the agent alone joins a cluster and runs a container and a process. It is upgraded to the whole program and back over
// the same data, while they run on; at the cluster's word it takes no program of the other kind.
func TestSmallWorker(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	p := processesOf(t, dir, testenv.Program(t), "worker")
	p.small = filepath.Join(dir, "skerry-worker")
	testenv.Build(t, p.small, "skerry.dev/skerry/cmd/skerry-worker")
	p.threeRoles()
	c := p.stable(1)
	native := strings.Replace(manifestOf("native", 1), `"image"`, `"runtime":"native","image"`, 1)
	applied(t, c, "native", []byte(native), 1)
	before := containerPIDs(t, p.data("worker"))
	if len(before) != 1 {
		t.Fatalf("%d containers run", len(before))
	}

	// agent gives the program that the agent runs.
	agent := func() string {
		out, err := exec.CommandContext(ctx, p.small, "status", "--data", p.data("worker"), "-o", "json").Output()
		var st struct{ Pid int }
		if err != nil || json.Unmarshal(out, &st) != nil {
			return fmt.Sprint(string(out), err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", st.Pid))
		if err != nil {
			return err.Error()
		}
		return digest(text)
	}
	runs := func(program string) {
		t.Helper()
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the agent is "+program, func() bool { return agent() == digest(text) })
	}
	runs(p.small)
	for _, step := range []struct{ with, to string }{{p.small, p.program}, {p.program, p.small}} {
		args := []string{"worker", "upgrade", step.to, "--steady", "1s", "--data", p.data("worker")}
		out, err := exec.CommandContext(ctx, step.with, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "passed its trial") {
			t.Fatalf("upgrade to %s: %v: %s", step.to, err, out)
		}
		runs(step.to)
	}

	site := login(t, "https://127.0.0.1:7481", p.data("cluster"))
	for _, order := range []struct {
		program string
		stage   wire.AgentStage
		why     string
	}{{p.program, wire.AgentFailed, "has no file /skerry-worker, the program of this worker's agent"}, {p.small, wire.AgentPassed, ""}} {
		image := "site/" + filepath.Base(order.program) + ":v2"
		pushFile(t, site, t.TempDir(), image, order.program)
		err := site.UpgradeWorker(ctx, "w1", view.UpgradeRequest{Image: image, Steady: spec.Duration(time.Second),
			Window: spec.Duration(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		await(t, image+": "+string(order.stage), func() bool {
			w, err := site.Worker(ctx, "w1")
			return err == nil && w.Facts.Agent != nil && w.Facts.Agent.Order == w.Upgrade.Seq && w.Facts.Agent.Stage == order.stage &&
				strings.Contains(w.Facts.Agent.Why, order.why)
		})
	}
	runs(p.small)
	for id, pid := range containerPIDs(t, p.data("worker")) {
		if before[id] != pid {
			t.Errorf("%s was restarted: process %d, now %d", id, before[id], pid)
		}
	}
	await(t, "both are ready", func() bool { return readyOf(ctx, c, "stable") == 1 && readyOf(ctx, c, "native") == 1 })
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
