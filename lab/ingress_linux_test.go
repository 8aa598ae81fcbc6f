package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

const ingressLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default]}}
- {name: gate-a, role: worker, args: [--probe-every, 40ms]}
- {name: gate-b, role: worker, args: [--probe-every, 40ms], labels: {pool: web}}
- {name: gate-c, role: worker, args: [--probe-every, 40ms, --ingress=false], labels: {pool: web}}
- {name: outside, role: none}
`

const ingressApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":8080"]
    replicas: 4
    ports: [{name: http, port: 8080}]
    probes: {readiness: {http: {port: 8080}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    placement: {policy: spread, labels: {pool: web}}
    terminationGrace: 1s
    ingress:
    - {host: shop.example.org, port: http, policy: round-robin}
    - {host: shop.example.org, path: /near, port: http}
    - {host: safe.example.org, port: http, tls: self}
    - {protocol: tcp, listen: 9000, port: http, policy: round-robin}
  - name: api
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: gate-c}
    ingress: [{host: shop.example.org, path: /api, port: http}]
`

// stranger asks for an ingress of the other application.
const stranger = `
apiVersion: skerry/v1
kind: Application
metadata: {name: other}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    ingress:
    - {host: other.example.org, port: http}
    - {host: shop.example.org, path: /api, port: http}
`

// napper has no instance when nobody has asked for a while.
const napper = `
apiVersion: skerry/v1
kind: Application
metadata: {name: nap}
spec:
  services:
  - name: nap
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    probes: {readiness: {http: {port: 80}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    scale: {min: 0, max: 2, down: 5s, target: {queue: 100}}
    terminationGrace: 1s
    ingress: [{host: nap.example.org, port: http}]
`

// naps has a service go to sleep and be woken, some times, by clients who come at once, none of whom is turned away.
func (s *liveSite) naps(client, gate string, times int) {
	s.t.Helper()
	count := func() (n int) {
		for _, i := range listOf[wire.Instance](s, "instances") {
			if i.Service.Service == "nap" {
				n++
			}
		}
		return n
	}
	ask := `for i in 1 2 3 4 5 6 7 8; do (curl -s -w ' %{http_code}\n' --max-time 100 --resolve nap.example.org:80:` + s.l.Topology.Host(gate).Address + ` http://nap.example.org/ || echo FAILED $?) & done; wait`
	s.skerry(napper, "apply", "-f", "-")
	for round := range times {
		s.await("it sleeps", func() bool { return count() == 0 })
		if out := string(s.skerry("", "describe", "app", "nap")); !strings.Contains(out, "; nobody asks for it") && !strings.Contains(out, "; it sleeps until something comes by an ingress") {
			s.t.Errorf("describe says:\n%s", out)
		}
		out := new(strings.Builder)
		cmd := exec.Command("sh", "-c", ask)
		cmd.Stdout, cmd.Stderr = out, out
		begin := time.Now()
		if _, err := s.l.Exec(s.t.Context(), client, cmd); err != nil || strings.Count(out.String(), " 200\n") != 8 {
			s.t.Errorf("round %d: %v\n%s", round, err, out)
		}
		s.t.Logf("8 clients were answered after %.1f s", time.Since(begin).Seconds())
	}
	s.skerry("", "delete", "app", "nap")
}

// curl asks from outside, and gives what came.
func (s *liveSite) curl(host string, args ...string) (string, error) {
	s.t.Helper()
	out := new(strings.Builder)
	cmd := exec.Command("curl", append([]string{"-sS", "--max-time", "10"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	status, err := s.l.Exec(s.t.Context(), host, cmd)
	if err == nil && status != 0 {
		err = fmt.Errorf("curl ended with %d", status)
	}
	return strings.TrimSpace(out.String()), err
}

// killInstance ends the processes of an instance, without a word to anybody.
func killInstance(t *testing.T, id string) {
	t.Helper()
	n := 0
	list, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range list {
		env, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(env), "SKERRY_INSTANCE="+id+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	if n == 0 {
		t.Errorf("instance %s has no process", id)
	}
}

var whoAnswers = regexp.MustCompile(`(\S+) on (\S+)`)

// by tells which instance answered, and on which worker.
func by(text string) (id, worker string) {
	if m := whoAnswers.FindStringSubmatch(text); m != nil {
		return m[1], strings.TrimRight(m[2], ",")
	}
	return "", ""
}

// TestIngress has a client outside reach services by host name and path.
func TestIngress(t *testing.T) {
	s := newSite(t, ingressLab, ingressApp)
	l := s.l
	addr := func(host string) string { return l.Topology.Host(host).Address }
	url := func(host, name, path string) []string {
		return []string{"--resolve", name + ":80:" + addr(host), "http://" + name + path}
	}
	s.await("the ingress of a answers", func() bool {
		out, err := s.curl("outside", append([]string{"-f"}, url("gate-a", "shop.example.org", "/")...)...)
		return err == nil && out != ""
	})

	t.Run("host and path", func(t *testing.T) {
		for _, gate := range []string{"gate-a", "gate-b"} {
			ids := map[string]int{}
			for range 8 {
				out, err := s.curl("outside", url(gate, "shop.example.org", "/")...)
				id, _ := by(out)
				if err != nil || id == "" {
					t.Fatalf("%s, %v", out, err)
				}
				ids[id]++
			}
			if len(ids) != 4 {
				t.Errorf("by %s: %v", gate, ids)
			}
			out, err := s.curl("outside", url(gate, "shop.example.org", "/api/x")...)
			if id, worker := by(out); err != nil || worker != "gate-c" || ids[id] != 0 {
				t.Errorf("%s, %v", out, err)
			}
			if out, err := s.curl("outside", append([]string{"-o", "/dev/null", "-w", "%{http_code}"}, url(gate, "nobody.example.org", "/")...)...); err != nil || out != "404" {
				t.Errorf("a host that nobody has: %s, %v", out, err)
			}
		}
		if out, err := s.curl("outside", "http://"+addr("gate-c")+"/"); err == nil {
			t.Errorf("a worker without an ingress answers: %s", out)
		}
		if out, err := s.curl("outside", url("gate-b", "shop.example.org", "/near")...); err != nil {
			t.Error(err)
		} else if _, worker := by(out); worker != "gate-b" {
			t.Errorf("closest from b is %s", out)
		}
	})

	t.Run("tls and tcp", func(t *testing.T) {
		ca := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(ca, s.skerry("", "certificate", "authority"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := s.curl("outside", "--cacert", ca, "--resolve", "safe.example.org:443:"+addr("gate-a"), "https://safe.example.org/")
		if id, _ := by(out); err != nil || id == "" {
			t.Errorf("%s, %v", out, err)
		}
		out, err = s.curl("outside", "http://"+addr("gate-b")+":9000/")
		if id, _ := by(out); err != nil || id == "" {
			t.Errorf("%s, %v", out, err)
		}
	})

	t.Run("conflict", func(t *testing.T) {
		if _, err := s.try(stranger, s.l.Binary, "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), "spec.services[0].ingress[1]: shop.example.org, port 80, path /api leads to application default/shop") {
			t.Errorf("apply of an ingress that another application has: %v", err)
		}
		if out, err := s.curl("outside", url("gate-a", "shop.example.org", "/api/x")...); err != nil || !strings.Contains(out, "on gate-c") {
			t.Errorf("%s, %v", out, err)
		}
	})

	t.Run("a service sleeps", func(*testing.T) { s.naps("outside", "gate-a", 2) })

	t.Run("instances die under load", func(t *testing.T) {
		stop := filepath.Join(t.TempDir(), "stop")
		done := make(chan string, 1)
		go func() {
			out := new(strings.Builder)
			cmd := exec.Command("sh", "-c", fmt.Sprintf(`n=0; bad=0; while ! [ -e %s ] || [ $n -lt 10 ]; do n=$((n+1)); curl -sf --max-time 10 --resolve shop.example.org:80:%s http://shop.example.org/ >/dev/null || bad=$((bad+1)); done; echo $bad of $n`, stop, addr("gate-a")))
			cmd.Stdout = out
			_, _ = l.Exec(t.Context(), "outside", cmd)
			done <- strings.TrimSpace(out.String())
		}()
		for range 3 {
			var id string
			for _, i := range listOf[wire.Instance](s, "instances") {
				if i.Service.Service == "web" && i.Service.App.Name == "shop" && skerry.HasCondition(i.Conditions, skerry.Ready) {
					id = string(i.ID)
				}
			}
			killInstance(t, id)
			time.Sleep(500 * time.Millisecond)
			s.skerry("", "scale", "shop/web", "3")
			time.Sleep(500 * time.Millisecond)
			s.skerry("", "scale", "shop/web", "4")
		}
		if err := os.WriteFile(stop, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		out := <-done
		n, _ := strconv.Atoi(out[strings.LastIndex(out, " ")+1:])
		if !strings.HasPrefix(out, "0 of ") || n < 10 {
			t.Errorf("failed: %s requests", out)
		}
	})

	t.Run("the agent restarts", func(t *testing.T) {
		if err := l.Kill("gate-a", syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if err := l.Start(t.Context(), "gate-a"); err != nil {
			t.Error(err)
		}
		if err := l.Await(t.Context(), "gate-a"); err != nil {
			t.Fatal(err)
		}
		s.await("the ingress of a answers again", func() bool {
			out, err := s.curl("outside", append([]string{"-f"}, url("gate-a", "shop.example.org", "/")...)...)
			return err == nil && out != ""
		})
		s.skerry("", "delete", "app", "shop")
		s.await("nothing is left of it", func() bool {
			links := new(strings.Builder)
			cmd := exec.Command("ip", "-o", "link")
			cmd.Stdout = links
			_, lerr := l.Exec(t.Context(), "gate-a", cmd)
			_, err := s.curl("outside", "http://"+addr("gate-a")+"/")
			return err != nil && lerr == nil && !strings.Contains(links.String(), ".b00")
		})
	})
}
