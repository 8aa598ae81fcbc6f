package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

const overlayLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default]}}
- {name: a, role: worker, args: [--probe-every, 40ms]}
- {name: b, role: worker, args: [--probe-every, 40ms], labels: {pool: web}}
- {name: c, role: worker, args: [--probe-every, 40ms], labels: {pool: web}}
links:
- {between: [a, b], delay: 1ms}
- {between: [a, c], delay: 15ms}
- {between: [b, c], delay: 15ms}
`

// overlayApp has a service on each of two workers and a client on the third. Another application has the same service
// addresses, chosen by its developer, and must not be met.
const overlayApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    replicas: 4
    export: [{to: default/guest}]
    addresses: {roundRobin: 10.30.7.1}
    ports: [{name: http, port: 80, servicePort: 8080}]
    probes: {readiness: {http: {port: 80}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    placement: {policy: spread, labels: {pool: web}}
    terminationGrace: 1s
  - name: client
    image: demo/kit:1
    args: [clock, /tmp/clock]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: a}
    terminationGrace: 1s
---
apiVersion: skerry/v1
kind: Application
metadata: {name: other}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    addresses: {roundRobin: 10.30.7.1}
    ports: [{name: http, port: 80, servicePort: 8080}]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: b}
    terminationGrace: 1s
---
apiVersion: skerry/v1
kind: Application
metadata: {name: guest}
spec:
  services:
  - name: guest
    image: demo/kit:1
    args: [clock, /tmp/clock]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: b}
    terminationGrace: 1s
`

// overlayLoad is one more service of the application, which asks often, and looks the name up each time; it fails when a single
// answer does not come, however late. Names are answered by the agent, which is killed meanwhile.
const overlayLoad = `
  - name: load
    image: demo/kit:1
    mode: job
    args: [get, "http://web/", "60", 5m]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: a}
`

// kit runs the program in an instance.
func (s *liveSite) kit(id string, args ...string) (string, error) {
	out, err := s.try("", append([]string{s.l.Binary, "exec", id, "--", "/kit"}, args...)...)
	return string(out), err
}

var answered = regexp.MustCompile(`(\d+) x (\S+) on (\S+),`)

// get asks for a page a number of times, each by a flow of its own, and counts answers by instance and by worker.
func (s *liveSite) get(id, url string, n int) (by, at map[string]int, err error) {
	out, err := s.kit(id, "get", url, strconv.Itoa(n))
	by, at = map[string]int{}, map[string]int{}
	for _, m := range answered.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(m[1])
		by[m[2]] += n
		at[m[3]] += n
	}
	return by, at, err
}

// status tells how a worker fares in the overlay.
func (s *liveSite) overlay(worker string) overlay.Status {
	s.t.Helper()
	cmd := exec.Command(s.l.Binary, "worker", "status", "--data", s.l.hostDir(worker), "-o", "json")
	out := new(strings.Builder)
	cmd.Stdout = out
	if status, err := s.l.Exec(s.t.Context(), worker, cmd); err != nil || status != 0 {
		s.t.Fatalf("worker status: %v, %d", err, status)
	}
	var st struct {
		Overlay overlay.Status `json:"overlay"`
	}
	if err := json.Unmarshal([]byte(out.String()), &st); err != nil {
		s.t.Fatal(err)
	}
	return st.Overlay
}

// instance finds the ready instance of a service on a worker.
func (s *liveSite) instance(app, service, worker string) wire.Instance {
	s.t.Helper()
	for _, i := range listOf[wire.Instance](s, "instances") {
		if i.Service.App.Name == app && i.Service.Service == service && (worker == "" || string(i.Worker) == worker) && skerry.HasCondition(i.Conditions, skerry.Ready) {
			return i
		}
	}
	s.t.Fatalf("%s/%s has no ready instance on %q", app, service, worker)
	return wire.Instance{}
}

// TestOverlay has real instances on three workers reach each other by service addresses, and takes things away from them.
func TestOverlay(t *testing.T) {
	s := newSite(t, overlayLab, overlayApp)
	l := s.l
	client := string(s.instance("shop", "client", "").ID)

	t.Run("names and turns", func(t *testing.T) {
		for _, name := range []string{"web", "any.round-robin.web.default.shop.default", "round-robin.web"} {
			if out, err := s.kit(client, "lookup", name); err != nil || strings.Join(strings.Fields(out), " ") != "10.30.7.1 fd30:5ce7::a1e:701" {
				t.Errorf("%s is %q, %v", name, out, err)
			}
		}
		if out, err := s.kit(client, "lookup", "web.default.other.default.skerry"); err == nil {
			t.Errorf("a name of another application is answered: %s", out)
		}
		// By the port at which the instances listen, and by the one that their own networks translate.
		for _, url := range []string{"http://10.30.7.1/", "http://[fd30:5ce7::a1e:701]/", "http://10.30.7.1:8080/",
			"http://[fd30:5ce7::a1e:701]:8080/"} {
			by, at, err := s.get(client, url, 40)
			if err != nil || len(by) != 4 || len(at) != 2 {
				t.Fatalf("%s: %v, %v, %v", url, by, at, err)
			}
			for id, n := range by {
				if n != 10 {
					t.Errorf("%s: %s got %d of 40 in turn", url, id, n)
				}
			}
		}
		for _, i := range []string{"0", "3"} {
			if by, _, err := s.get(client, "http://"+i+".web/", 5); err != nil || len(by) != 1 {
				t.Errorf("instance %s: %v, %v", i, by, err)
			}
		}
	})

	t.Run("one path per peer", func(t *testing.T) {
		st := s.overlay("a")
		var names []string
		for _, p := range st.Peers {
			names = append(names, p.Name)
			if p.Path != overlay.PathDirect || p.Cipher == "" || p.RTT == 0 || p.TxBytes == 0 {
				t.Errorf("%+v", p)
			}
		}
		if slices.Sort(names); !slices.Equal(names, []string{"b", "c"}) {
			t.Errorf("peers %v", names)
		}
		// One socket for sealed datagrams, whatever the number of services and peers.
		out := new(strings.Builder)
		cmd := exec.Command("sh", "-c", fmt.Sprintf("ss -Huln 'sport = :%d' | wc -l", st.Port))
		cmd.Stdout = out
		if _, err := l.Exec(t.Context(), "a", cmd); err != nil || strings.TrimSpace(out.String()) > "2" {
			t.Errorf("%s sockets, %v", out, err)
		}
	})

	t.Run("others are not met", func(t *testing.T) {
		alien := s.instance("other", "web", "")
		for _, url := range []string{"http://" + alien.Address + "/"} {
			if by, _, err := s.get(client, url, 1); err == nil {
				t.Errorf("%s answers: %v", url, by)
			}
		}
		// The other's own address is the same, and leads to its own.
		for _, url := range []string{"http://10.30.7.1/", "http://10.30.7.1:8080/"} {
			if by, _, err := s.get(string(alien.ID), url, 6); err != nil || len(by) != 1 || by[string(alien.ID)] != 6 {
				t.Errorf("%s: %v, %v", url, by, err)
			}
		}
	})

	t.Run("an export", func(t *testing.T) {
		guest := string(s.instance("guest", "guest", "").ID)
		if by, _, err := s.get(guest, "http://web.default.shop.default.skerry/", 8); err != nil || len(by) != 4 {
			t.Errorf("%v, %v", by, err)
		}
		if out, err := s.kit(guest, "lookup", "client.default.shop.default.skerry"); err == nil {
			t.Errorf("what is not exported has a name: %s", out)
		}
	})

	t.Run("closest", func(t *testing.T) {
		s.await("nearest is b", func() bool {
			_, at, err := s.get(client, "http://closest.web/", 10)
			return err == nil && at["b"] == 10
		})
		slow := 60 * time.Millisecond
		if err := l.SetLink(t.Context(), []string{"a", "b"}, LinkChange{Delay: &slow}); err != nil {
			t.Fatal(err)
		}
		s.await("nearest is c", func() bool {
			_, at, err := s.get(client, "http://closest.web/", 5)
			return err == nil && at["c"] == 5
		})
	})

	t.Run("agents die", func(t *testing.T) {
		shop, _, _ := strings.Cut(overlayApp, "---")
		s.skerry(shop+overlayLoad[1:], "apply", "-f", "-", "--wait=false")
		job := func() wire.Instance {
			for _, i := range listOf[wire.Instance](s, "instances") {
				if i.Service.Service == "load" {
					return i
				}
			}
			return wire.Instance{}
		}
		s.await("the load runs", func() bool { return job().State == skerry.Running })
		for _, host := range []string{"a", "b", "c", "site"} {
			if err := l.Kill(host, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		for _, host := range []string{"site", "a", "b", "c"} {
			if err := l.Start(t.Context(), host); err != nil {
				t.Error(err)
			}
		}
		for _, host := range []string{"site", "a", "b", "c"} {
			if err := l.Await(t.Context(), host); err != nil {
				t.Fatal(err)
			}
		}
		s.await("the load is done", func() bool {
			state := job().State
			return state.Final() || state == skerry.Failed // which is not final, for a job may be tried again
		})
		if i := job(); i.State != skerry.Terminated {
			out, _ := s.try("", l.Binary, "logs", string(i.ID))
			t.Errorf("%s: %s\n%s", i.State, i.Reason, out)
		}
	})

	t.Run("relay and back", func(t *testing.T) {
		way := func(worker, peer string) overlay.PathStatus {
			for _, p := range s.overlay(worker).Peers {
				if p.Name == peer {
					return p
				}
			}
			return overlay.PathStatus{}
		}
		answers := func() bool {
			_, at, err := s.get(client, "http://10.30.7.1/", 8)
			return err == nil && at["b"] == 4 && at["c"] == 4
		}
		// No packet passes between the two workers: their cluster's relay carries on.
		if err := l.Partition(t.Context(), "a", "b", false); err != nil {
			t.Fatal(err)
		}
		s.await("by the relay", func() bool { return answers() && way("a", "b").Path == overlay.PathRelay })
		if p := way("a", "b"); p.Reason == "" || p.RTT == 0 {
			t.Errorf("%+v", p)
		}
		if err := l.Heal(t.Context(), "a", "b", false); err != nil {
			t.Fatal(err)
		}
		s.await("directly again", func() bool { return answers() && way("a", "b").Path == overlay.PathDirect })
		// UDP is blocked at one of them: its relay is reached by TLS.
		nft := func(rule string) {
			t.Helper()
			if status, err := l.Exec(t.Context(), "b", exec.Command("nft", rule)); err != nil || status != 0 {
				t.Fatalf("nft %s: %v, %d", rule, err, status)
			}
		}
		nft("add table ip block; add chain ip block out { type filter hook output priority 0; }; add rule ip block out oifname eth0 meta l4proto udp drop")
		s.await("by the relay over TLS", func() bool { return answers() && way("a", "b").Path == overlay.PathRelay })
		nft("delete table ip block")
		s.await("directly once more", func() bool { return answers() && way("a", "b").Path == overlay.PathDirect })
	})

	t.Run("a datapath dies", func(t *testing.T) {
		data, err := os.ReadFile(l.path("run", "b.datapath", "datapath.lock"))
		pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || pid < 2 {
			t.Fatalf("%q, %v", data, err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.await("another one carries on", func() bool {
			_, at, err := s.get(client, "http://10.30.7.1/", 8)
			return err == nil && at["b"] == 4
		})
	})

	t.Run("an instance goes, then a worker", func(t *testing.T) {
		fast := time.Millisecond
		if err := l.SetLink(t.Context(), []string{"a", "b"}, LinkChange{Delay: &fast}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s.skerry("", "scale", "shop/web", "3")
			if by, _, err := s.get(client, "http://web/", 60); err != nil {
				t.Errorf("%v, %v", by, err)
			}
			s.skerry("", "scale", "shop/web", "4")
			s.await("four are there", func() bool {
				by, _, err := s.get(client, "http://web/", 60)
				if err != nil {
					t.Errorf("%v, %v", by, err)
				}
				return len(by) == 4
			})
		}
		if err := l.PowerOff(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		s.await("all answers come from b", func() bool {
			_, at, err := s.get(client, "http://web/", 8)
			return err == nil && at["b"] == 8
		})
	})
}

const sitesLab = `
name: NAME
hosts:
- {name: root, role: root}
- {name: site, role: cluster}
- {name: far, role: cluster}
- {name: a, role: worker, cluster: site}
- {name: b, role: worker, cluster: far}
links:
- {between: ["site/*", "far/*"], delay: 4ms}
`

const sitesApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    aliases: [both]
    replicas: 2
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: far}
    terminationGrace: 1s
  - name: here
    image: demo/kit:1
    args: [answer, ":80"]
    aliases: [both]
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: site}
    terminationGrace: 1s
  - name: client
    image: demo/kit:1
    args: [clock, /tmp/clock]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: site}
    terminationGrace: 1s
  - name: ask
    image: demo/kit:1
    args: [load, "http://web/", 20ms]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: site}
    terminationGrace: 1s
`

// nearApp asks for less than the way between the two sites takes.
const nearApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: near}
spec:
  services:
  - {name: db, image: "demo/kit:1", args: [clock, /tmp/clock], resources: {cpu: 20m, memory: 32Mi}, placement: {cluster: far}}
  - name: web
    image: demo/kit:1
    args: [clock, /tmp/clock]
    links: [{service: db, maxLatency: 3ms}]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: site}
`

// TestOverlayBetweenSites has an application on two sites, which reach each other by their gateways, with the root and
// without it.
func TestOverlayBetweenSites(t *testing.T) {
	s := newSite(t, sitesLab, sitesApp)
	l := s.l
	client := string(s.instance("shop", "client", "").ID)
	answers := func(n int) (int, error) {
		by, _, err := s.get(client, "http://web/", n)
		return len(by), err
	}
	if by, err := answers(20); err != nil || by != 2 {
		t.Errorf("%d instances answer: %v", by, err)
	}
	if by, at, err := s.get(client, "http://both/", 21); err != nil || len(by) != 3 || at["a"] == 0 || at["b"] == 0 {
		t.Errorf("an alias of services at both sites leads to %v, %v, %v", by, at, err)
	}
	// A worker of another operator is a number, and the way to it leads over the gateways.
	st := s.overlay("a")
	if len(st.Peers) != 1 || st.Peers[0].Name != "" || st.Peers[0].Path != overlay.PathRelay || st.Peers[0].TxBytes == 0 {
		t.Errorf("%+v", st.Peers)
	}
	// What a role knows of the others again is never taken for what there is: no client sees that one was started anew.
	asks := string(s.instance("shop", "ask", "").ID)
	for _, role := range []string{"root", "site", "far"} {
		before, failed := s.load(asks)
		s.killAndStart(role)
		s.await("its logs can be read after "+role, func() bool { _, err := s.try("", l.Binary, "logs", asks); return err == nil })
		s.await("the client goes on after "+role, func() bool { n, _ := s.load(asks); return n > before+100 })
		if _, n := s.load(asks); n != failed {
			t.Errorf("%s was started anew, and %d requests failed\n%s", role, n-failed, s.failures(asks))
		}
	}
	if err := l.Kill("root", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if by, err := answers(20); err != nil || by != 2 {
		t.Errorf("without the root %d instances answer: %v", by, err)
	}
	// The two workers cannot reach each other at all, and each only its own gateway; nobody notices.
	for _, pair := range [][2]string{{"a", "b"}, {"a", "far"}, {"b", "site"}} {
		if err := l.Partition(t.Context(), pair[0], pair[1], false); err != nil {
			t.Fatal(err)
		}
	}
	if by, err := answers(20); err != nil || by != 2 {
		t.Errorf("by the gateways alone %d instances answer: %v", by, err)
	}
	// UDP blocked on both sides: worker - gateway - gateway - worker.
	for _, host := range []string{"a", "b"} {
		cmd := exec.Command("nft", "add table ip block; add chain ip block out { type filter hook output priority 0; }; add rule ip block out oifname eth0 meta l4proto udp drop")
		if status, err := l.Exec(t.Context(), host, cmd); err != nil || status != 0 {
			t.Fatalf("nft: %v, %d", err, status)
		}
	}
	s.await("by TLS on both sides", func() bool { by, err := answers(6); return err == nil && by == 2 })
	if err := l.Start(t.Context(), "root"); err != nil {
		t.Fatal(err)
	}
	if err := l.Await(t.Context(), "site"); err != nil {
		t.Fatal(err)
	}
	s.await("both answer with the root again", func() bool { by, err := answers(6); return err == nil && by == 2 })
	// The gateways have measured how far they are from each other.
	_, _ = s.at("root", nearApp, "apply", "-f", "-", "--timeout", "1s")
	out := ""
	defer func() {
		if t.Failed() {
			t.Log(out)
		}
	}()
	// A root that has just started may not know yet how far the sites are from each other: then it is said of what runs. Either end may be the
	// one that has a place.
	s.await("a link that is too long is refused, or said to be", func() bool {
		out, _ = s.at("root", "", "explain", "near/web")
		list, _ := s.at("root", "", "get", "instances", "--app", "near", "-o", "json")
		out += list
		return strings.Contains(out, "too far from db at the other end of a link") ||
			strings.Contains(out, "too far from web at the other end of a link") ||
			strings.Contains(list, "its place no longer keeps the limit of latency")
	})
}
