package lab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
	t.Run("kill and restart", func(t *testing.T) { killAndRestart(t, o) })
	t.Run("down after a crash", func(t *testing.T) { downAfterCrash(t, o) })
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
