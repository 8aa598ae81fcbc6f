package lab

import (
	"flag"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

const failuresLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default]}}
- {name: asks, role: worker, args: [--probe-every, 100ms]}
- {name: one, role: worker, args: [--probe-every, 100ms], labels: {pool: web}}
- {name: two, role: worker, args: [--probe-every, 100ms], labels: {pool: web}}
`

const failuresApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    probes: {readiness: {http: {port: 80}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    placement: {labels: {pool: web}}
    onReconnect: KEEP
    terminationGrace: 1s
  - name: client
    image: demo/kit:1
    args: [load, "http://web/", 20ms]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: asks}
    terminationGrace: 1s
`

var loaded = regexp.MustCompile(`(\d+) tries, (\d+) failed`)

// load reads how many requests the client has made, and how many failed.
func (s *liveSite) load(client string) (tries, failed int) {
	s.t.Helper()
	all := loaded.FindAllSubmatch(s.skerry("", "logs", client), -1)
	if len(all) == 0 {
		return 0, 0
	}
	tries, _ = strconv.Atoi(string(all[len(all)-1][1]))
	failed, _ = strconv.Atoi(string(all[len(all)-1][2]))
	return tries, failed
}

// failures is what a client says of each request that failed, with when that was.
func (s *liveSite) failures(client string) string {
	s.t.Helper()
	out, err := s.try("", "sh", "-c", s.l.Binary+" logs --timestamps "+client+" 2>&1 >/dev/null")
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// web gives the instances of the service that are not going away.
func (s *liveSite) web() (out []wire.Instance) {
	for _, i := range listOf[wire.Instance](s, "instances") {
		if i.Service.Service == "web" && !i.Stopping {
			out = append(out, i)
		}
	}
	return out
}

// copies counts the processes of the service that run on the hosts, whatever anybody believes.
func (s *liveSite) copies() (n int) {
	s.t.Helper()
	for _, host := range []string{"one", "two"} {
		list, err := filepath.Glob(filepath.Join(s.l.hostDir(host), "oci", "tasks", "web-*"))
		if err != nil {
			s.t.Fatal(err)
		}
		n += len(list)
	}
	return n
}

// beats waits until so many workers beat.
func (s *liveSite) beats(want int) {
	s.t.Helper()
	s.await("every worker beats", func() bool {
		n := 0
		for _, w := range listOf[view.WorkerView](s, "workers") {
			if w.Beats {
				n++
			}
		}
		return n == want
	})
}

// TestCutOff takes workers from their orchestrator's sight in every way while a client asks what runs there, without a
// request that fails: what is cut off only from the orchestrator serves until another does.
func TestCutOff(t *testing.T) {
	s := newSite(t, failuresLab, strings.ReplaceAll(failuresApp, "KEEP", spec.KeepOriginal))
	l := s.l
	client := string(s.instance("shop", "client", "").ID)
	s.beats(3)
	s.await("the client asks", func() bool { n, _ := s.load(client); return n > 20 })
	worker := func(name string) (w view.WorkerView) {
		for _, w = range listOf[view.WorkerView](s, "workers") {
			if string(w.Name) == name {
				break
			}
		}
		return w
	}
	// kept waits until one copy is left after all is mended, and checks what became of the first.
	kept := func(t *testing.T, first wire.Instance, same bool, mostFailed int) {
		t.Helper()
		s.await("one copy is left", func() bool {
			list := s.web()
			return len(list) == 1 && skerry.HasCondition(list[0].Conditions, skerry.Ready) && skerry.HasCondition(list[0].Conditions, skerry.Reachable) && s.copies() == 1
		})
		now := s.web()[0]
		if now.Restarts != 0 {
			t.Errorf("it was restarted %d times", now.Restarts)
		}
		if (now.Worker == first.Worker) != same || same && !now.StartedAt.Equal(first.StartedAt) {
			t.Errorf("it runs on %s since %s, ran on %s since %s", now.Worker, now.StartedAt, first.Worker, first.StartedAt)
		}
		before, _ := s.load(client)
		s.await("the client goes on", func() bool { n, _ := s.load(client); return n > before+50 })
		if _, failed := s.load(client); failed > mostFailed {
			t.Errorf("%d requests failed\n%s", failed, s.failures(client))
		}
	}
	for _, x := range []struct {
		name   string
		cut    [2]string // AT stands for the worker
		oneWay bool
	}{
		{name: "both ways", cut: [2]string{"site", "AT"}},
		{name: "to the orchestrator", cut: [2]string{"AT", "site"}, oneWay: true},
		{name: "from the orchestrator", cut: [2]string{"site", "AT"}, oneWay: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			first := s.web()[0]
			at := string(first.Worker)
			a, b := strings.ReplaceAll(x.cut[0], "AT", at), strings.ReplaceAll(x.cut[1], "AT", at)
			if err := l.Partition(t.Context(), a, b, x.oneWay); err != nil {
				t.Fatal(err)
			}
			s.await("the instance is replaced", func() bool {
				list := s.web()
				return len(list) == 1 && string(list[0].Worker) != at && skerry.HasCondition(list[0].Conditions, skerry.Ready)
			})
			if w := worker(at); !w.Lost || !w.CutOff || !strings.Contains(w.Verdict, "can reach it") {
				t.Errorf("the worker is lost %v, cut off %v: %s", w.Lost, w.CutOff, w.Verdict)
			}
			if n := s.copies(); n != 2 {
				t.Errorf("%d copies run", n)
			}
			if err := l.Heal(t.Context(), a, b, x.oneWay); err != nil {
				t.Fatal(err)
			}
			kept(t, first, true, 0)
		})
	}
	t.Run("agent killed and away", func(t *testing.T) {
		first := s.web()[0]
		at := string(first.Worker)
		if err := l.Kill(at, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.await("the instance is replaced", func() bool {
			list := s.web()
			return len(list) == 1 && string(list[0].Worker) != at && skerry.HasCondition(list[0].Conditions, skerry.Ready)
		})
		// Its packets go on without the agent, which others see by the overlay: clients stay with what runs there.
		if w := worker(at); !w.Lost || !w.CutOff || !strings.Contains(w.Verdict, "can reach it") {
			t.Errorf("the worker is lost %v, cut off %v: %s", w.Lost, w.CutOff, w.Verdict)
		}
		if err := l.Start(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		kept(t, first, true, 0)
	})
}

var quietTime = flag.Duration("alarm", time.Duration(testenv.Times(10, 600))*time.Second, "how long TestNoFalseAlarm waits for one")

// TestNoFalseAlarm has links to two workers lose a fifth of what they carry, bring a tenth twice and a tenth late, and take a quarter of a
// second each way: nobody is taken for dead, nothing is started anew, and it is shown ready.
func TestNoFalseAlarm(t *testing.T) {
	s := newSite(t, failuresLab, strings.ReplaceAll(failuresApp, "KEEP", spec.KeepReplacement))
	l := s.l
	s.beats(3)
	first := s.web()[0]
	delay, loss, some := 250*time.Millisecond, Share(0.2), Share(0.1)
	for _, host := range []string{"one", "two"} {
		if err := l.SetLink(t.Context(), []string{"site", host}, LinkChange{Delay: &delay, Loss: &loss, Duplicate: &some, Reorder: &some}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-time.After(*quietTime):
	case <-t.Context().Done():
	}
	lost := 0
	for _, e := range listOf[wire.Event](s, "events") {
		if e.Reason == "WorkerLost" {
			lost++
			t.Logf("%s %s", e.At.Format(time.TimeOnly), e.Text)
		}
	}
	if now := s.web(); lost > 0 || len(now) != 1 || now[0].Worker != first.Worker || now[0].Restarts != 0 ||
		!skerry.HasCondition(now[0].Conditions, skerry.Ready) {
		t.Errorf("%d false alarms in %s; %+v", lost, *quietTime, now)
	}
}
