package lab

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// device runs a command of `skerry local` on a host.
func (s *liveSite) device(host string, args ...string) (string, int) {
	s.t.Helper()
	var out bytes.Buffer
	// What comes behind the command's own words belongs to it.
	cmd := exec.Command(s.l.Binary, append([]string{"local", "--data", s.l.hostDir(host)}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	status, err := s.l.Exec(s.t.Context(), host, cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(out.String()), status
}

// TestOfflineBoot switches a worker off and on again while its orchestrator is dead: it starts what it ran from its own disk,
// and somebody at the device can look after it.
func TestOfflineBoot(t *testing.T) {
	s := newSite(t, failuresLab, strings.ReplaceAll(failuresApp, "KEEP", spec.KeepReplacement))
	l := s.l
	web := s.web()[0]
	at, id := string(web.Worker), string(web.ID)
	if err := l.Kill("site", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := l.PowerOff(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.await("what it ran serves again", func() bool {
		out, status := s.device(at, "exec", id, "--", "/kit", "get", "http://127.0.0.1/")
		return status == 0 && strings.Contains(out, id+" on "+at)
	})
	t.Logf("it serves %.1f s after the agent was started, with no orchestrator in reach", time.Since(began).Seconds())
	s.await("its probes pass", func() bool {
		out, status := s.device(at, "get", id, "-o", "wide")
		return status == 0 && strings.Contains(out, "Running   Running   yes")
	})
	if out, status := s.device(at, "logs", id); status != 0 {
		t.Errorf("logs: %d, %s", status, out)
	}
	restarts := func() int {
		var i wire.Instance
		out, status := s.device(at, "get", id, "-o", "json")
		if err := json.Unmarshal([]byte(out), &i); err != nil || status != 0 || i.State != skerry.Running || i.Phase != skerry.PhaseRunning {
			return -1
		}
		return i.Restarts
	}
	before := restarts()
	if out, status := s.device(at, "restart", id); status != 0 {
		t.Errorf("restart: %d, %s", status, out)
	}
	s.await("it is restarted by hand", func() bool { return restarts() == before+1 })
	for _, bad := range [][]string{{"restart", "nobody"}, {"logs", "nobody"}, {"get", "nobody"}} {
		if out, status := s.device(at, bad...); status == 0 || !strings.Contains(out, "nobody") {
			t.Errorf("%v: %d, %s", bad, status, out)
		}
	}
	if err := l.Start(t.Context(), "site"); err != nil {
		t.Fatal(err)
	}
	s.await("the orchestrator answers", func() bool {
		_, err := s.try("", l.Binary, "get", "workers")
		return err == nil
	})
	s.await("the orchestrator finds it where it was", func() bool {
		list := s.web()
		return len(list) == 1 && string(list[0].Worker) == at && skerry.HasCondition(list[0].Conditions, skerry.Ready) && list[0].ID == web.ID && list[0].Restarts == before+1
	})
}
