package lab

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const roles = `
name: NAME
hosts:
- {name: r, role: root}
- {name: site, role: cluster}
- {name: w1, role: worker, resources: {cpu: 1, memory: 128Mi}, area: here, location: {lat: -1, lon: 2}, labels: {disk: fast}}
- {name: w2, role: worker}
links: [{between: [r, site], delay: 5ms}]
`

// TestRoles runs the real program in all three roles.
func TestRoles(t *testing.T) {
	o := options(t)
	binaries(t, &o)
	profiled := profile(t, o) // meanwhile
	t.Run("kill and restart", func(t *testing.T) { killAndRestart(t, o) })
	t.Run("down after a crash", func(t *testing.T) { downAfterCrash(t, o) })
	profiled()
}

// profile has a worker that has just joined find its machine idle, and gives what waits until it has measured its runtimes. How busy the machine
// is it reads in a file that the test lays over the kernel's.
func profile(t *testing.T, o Options) (wait func()) {
	l := bring(t, "name: NAME\nhosts:\n- {name: r, role: root}\n- {name: site, role: cluster}\n- {name: p, role: worker, args: [--profile-after, 200ms]}\n", o)
	load := filepath.Join(t.TempDir(), "load")
	if err := os.WriteFile(load, []byte("0.00 0.00 0.00 1/1 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if status, err := l.Exec(t.Context(), "p", exec.Command("mount", "--bind", load, "/proc/loadavg")); err != nil || status != 0 {
		t.Fatal(status, err)
	}
	file := filepath.Join(l.hostDir("p"), "profile.json")
	return func() {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			data, err := os.ReadFile(file)
			var got map[string]wire.RuntimeProfile
			if err == nil {
				err = json.Unmarshal(data, &got)
			}
			if err == nil && got[spec.RuntimeOCI].CPU == 1 && !got[spec.RuntimeOCI].At.IsZero() {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no profile with containers: %s, %v\n%s", data, err, tail(l.logFile("p")))
			}
		}
	}
}

// downAfterCrash kills `skerry lab up` while roles start.
func downAfterCrash(t *testing.T, o Options) {
	file := filepath.Join(t.TempDir(), "lab.yaml")
	for i := range 6 {
		name := fmt.Sprintf("c%d-%04x-%d", i, rand.N(0x10000), os.Getpid())
		if err := os.WriteFile(file, []byte(strings.Replace(roles, "NAME", name, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(o.Binary, "lab", "up", file, "--lab-dir", o.Dir, "--lab-data", o.Data)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 150 * time.Millisecond) // the moment is the point, not the time
		cmd.Process.Kill()
		cmd.Wait()
		if err := Down(t.Context(), name, o); err != nil {
			t.Fatal(err)
		}
		clean(t, name, o)
	}
}

func killAndRestart(t *testing.T, o Options) {
	l := bring(t, roles, o)
	ctx := t.Context()
	states := func() map[string]string {
		t.Helper()
		st, err := l.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, h := range st.Hosts {
			out[h.Name] = h.State()
		}
		return out
	}
	for name, state := range states() {
		if state != "connected" {
			t.Errorf("%s is %s", name, state)
		}
	}
	if err := l.Kill("w1", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := states()["w1"]; got != "stopped" {
		t.Error(got)
	}
	if err := l.Kill("w1", syscall.SIGKILL); err == nil {
		t.Error("a role that does not run was killed")
	}
	if err := l.Start(ctx, "w1"); err != nil { // its identity is kept: it needs no second token
		t.Fatal(err)
	}
	if err := l.Await(ctx, "w1"); err != nil {
		t.Fatal(err)
	}
	if err := l.PowerOff(ctx, "w2"); err != nil {
		t.Fatal(err)
	}
	if got := states()["w2"]; got != "off" {
		t.Error(got)
	}
	if err := l.Start(ctx, "w2"); err != nil {
		t.Fatal(err)
	}
	if err := l.Await(ctx, "w2"); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(ctx, "w2"); err == nil {
		t.Error("a role was started twice")
	}
}
