package lab

import (
	"strings"
	"testing"
)

const aliasLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default]}}
- {name: a, role: worker, args: [--probe-every, 40ms]}
- {name: b, role: worker, args: [--probe-every, 40ms]}
- {name: c, role: worker, args: [--probe-every, 40ms, --dataplane, nftables]}
- {name: outside, role: none}
`

// aliasApp has two versions behind one name, which listen at different ports, and clients whose packets are handled by eBPF and by
// nftables. Only one of the versions is exported.
const aliasApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: blue
    image: demo/kit:1
    args: [answer, ":80"]
    aliases: [front]
    replicas: 2
    ports: [{name: http, port: 80}]
    ingress: [{host: shop.example.org, port: http, alias: front, policy: round-robin}]
    probes: {readiness: {http: {port: 80}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: b}
    terminationGrace: 1s
  - name: green
    image: demo/kit:1
    args: [answer, ":8080"]
    aliases: [front]
    export: [{to: default/guest}]
    ports: [{name: http, port: 8080, servicePort: 80}]
    probes: {readiness: {http: {port: 8080}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: c}
    terminationGrace: 1s
  - {name: client-a, image: "demo/kit:1", args: [clock, /tmp/clock], resources: {cpu: 20m, memory: 32Mi}, placement: {worker: a}}
  - {name: client-c, image: "demo/kit:1", args: [clock, /tmp/clock], resources: {cpu: 20m, memory: 32Mi}, placement: {worker: c}}
---
apiVersion: skerry/v1
kind: Application
metadata: {name: guest}
spec:
  services:
  - {name: guest, image: "demo/kit:1", args: [clock, /tmp/clock], resources: {cpu: 20m, memory: 32Mi}, placement: {worker: b}}
`

// TestAliases has one name lead to the instances of two services, in turn, by both data planes, for clients inside and outside and for
// another application, and follow what becomes of them.
func TestAliases(t *testing.T) {
	s := newSite(t, aliasLab, aliasApp)
	for worker, want := range map[string]string{"a": "ebpf", "b": "ebpf", "c": "nftables"} {
		if st := s.overlay(worker); st.Path != want {
			t.Errorf("%s handles packets by %q: %q", worker, st.Path, st.Why)
		}
	}
	for _, name := range []string{"client-a", "client-c"} {
		client := string(s.instance("shop", name, "").ID)
		out, err := s.kit(client, "lookup", "front")
		addr, six, ok := strings.Cut(strings.Join(strings.Fields(out), " "), " ")
		if err != nil || !ok {
			t.Fatalf("its addresses are %q, %v", out, err)
		}
		for _, host := range []string{addr, "[" + six + "]", "front", "any.least-loaded.front.default.shop.default.skerry"} {
			by, at, err := s.get(client, "http://"+host+"/", 30)
			if err != nil || len(by) != 3 || at["b"]+at["c"] != 30 {
				t.Errorf("%s asks %s: %v, %v, %v", name, host, by, at, err)
			}
			for id, n := range by { // an address is counted by itself, and a name has two
				if (host == addr || host == "["+six+"]") && n != 10 {
					t.Errorf("%s asks %s: %s got %d of 30", name, host, id, n)
				}
			}
		}
		if by, _, err := s.get(client, "http://blue/", 4); err != nil || len(by) != 2 {
			t.Errorf("%s asks for one of them: %v, %v", name, by, err)
		}
		if out, err := s.kit(client, "lookup", "0.front"); err == nil {
			t.Errorf("an alias has an instance of its own: %s", out)
		}
	}
	if _, at, err := s.get(string(s.instance("shop", "client-c", "").ID), "http://closest.front/", 6); err != nil || at["c"] != 6 {
		t.Errorf("the closest one: %v, %v", at, err)
	}
	guest := string(s.instance("guest", "guest", "").ID)
	if by, at, err := s.get(guest, "http://front.default.shop.default.skerry/", 6); err != nil || len(by) != 1 || at["c"] != 6 {
		t.Errorf("another application reaches %v, %v, %v", by, at, err)
	}
	if out, err := s.kit(guest, "lookup", "front"); err == nil {
		t.Errorf("it is there by its short name: %s", out)
	}

	clients := func() map[string]int {
		workers := map[string]int{}
		for range 6 {
			to := "shop.example.org:80:" + s.l.Topology.Host("a").Address
			out, err := s.curl("outside", "-f", "--resolve", to, "http://shop.example.org/")
			if _, worker := by(out); err == nil {
				workers[worker]++
			}
		}
		return workers
	}
	s.await("clients outside reach both", func() bool { at := clients(); return at["b"] == 4 && at["c"] == 2 })

	// One version goes, and the name leads to the other; it comes back under the same address.
	client := string(s.instance("shop", "client-a", "").ID)
	was, err := s.kit(client, "lookup", "front")
	if err != nil {
		t.Fatal(err)
	}
	s.skerry("", "scale", "shop/blue", "0")
	s.await("all answers come from c", func() bool {
		_, at, err := s.get(client, "http://front/", 6)
		return err == nil && at["c"] == 6
	})
	s.await("clients outside, too", func() bool { return clients()["c"] == 6 })
	first, _, _ := strings.Cut(aliasApp, "---")
	s.skerry(strings.Replace(first, "aliases: [front]\n    export", "export", 1), "apply", "-f", "-")
	s.await("all answers come from b", func() bool {
		_, at, err := s.get(client, "http://front/", 6)
		return err == nil && at["b"] == 6
	})
	if is, err := s.kit(client, "lookup", "front"); err != nil || is != was {
		t.Errorf("its address was %q and is %q, %v", was, is, err)
	}
	if _, at, err := s.get(client, "http://green/", 3); err != nil || at["c"] != 3 {
		t.Errorf("what left the alias: %v, %v", at, err)
	}
}
