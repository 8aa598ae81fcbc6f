package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// far apart are: a, b and d; c with the user; the cluster, which does not matter.
const apart = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default]}}
- {name: a, role: worker, args: [--probe-every, 40ms]}
- {name: b, role: worker, args: [--probe-every, 40ms], labels: {pool: front}}
- {name: c, role: worker, args: [--probe-every, 40ms], labels: {pool: front}}
- {name: d, role: worker, args: [--probe-every, 40ms], labels: {pool: front}}
- {name: user, role: none}
links:
- {between: [a, b], delay: 2ms}
- {between: [a, d], delay: 6ms}
- {between: [b, d], delay: 5ms}
- {between: [a, c], delay: 40ms}
- {between: [b, c], delay: 42ms}
- {between: [d, c], delay: 38ms}
- {between: [user, c], delay: 4ms}
- {between: [user, a], delay: 43ms}
- {between: [user, b], delay: 45ms}
- {between: [user, d], delay: 41ms}
`

const apartApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: db
    runtime: native
    command: [PROGRAM]
    env: {PORT: "8080"}
    ports: [{name: http, port: 8080, hostPort: 8080}]
    probes: {readiness: {tcp: {port: 8080}, interval: 1s}}
    resources: {cpu: 10m, memory: 32Mi}
    placement: {worker: a}
    terminationGrace: 1s
`

const apartFront = `
  - name: front
    runtime: native
    command: [sleep, "3600"]
    resources: {cpu: 10m, memory: 8Mi}
    links: [{service: db, maxLatency: 30ms}]
    placement: {labels: {pool: front}, rigidness: 0.7}
    terminationGrace: 1s
  - name: edge
    runtime: native
    command: [sleep, "3600"]
    resources: {cpu: 10m, memory: 8Mi}
    placement: {users: [{address: USER, maxLatency: 35ms}]}
    terminationGrace: 1s
`

// site runs commands of users at a cluster of a lab.
func (s *liveSite) workers() map[string]spec.Coordinate {
	s.t.Helper()
	out := map[string]spec.Coordinate{}
	for _, w := range listOf[view.WorkerView](s, "workers") {
		if w.Coordinate != nil {
			out[string(w.Name)] = *w.Coordinate
		}
	}
	return out
}

// where gives the workers of a service's ready instances.
func (s *liveSite) where(service string) (out []string) {
	s.t.Helper()
	for _, i := range listOf[wire.Instance](s, "instances") {
		if i.Service.Service == service && skerry.HasCondition(i.Conditions, skerry.Ready) {
			out = append(out, string(i.Worker))
		}
	}
	return out
}

// TestPlacementByCoordinates has workers with real delays between them find their places in the network, and services go
// where the way is short, and away from where it becomes long.
func TestPlacementByCoordinates(t *testing.T) {
	s, catalog := bareSite(t, apart, "shop/catalog")
	l := s.l
	s.skerry(strings.ReplaceAll(apartApp, "PROGRAM", catalog), "apply", "-f", "-")

	// The round trips set up, and what coordinates make of them.
	real := map[[2]string]float64{{"a", "b"}: 4, {"a", "d"}: 12, {"b", "d"}: 10, {"a", "c"}: 80, {"b", "c"}: 84, {"c", "d"}: 76}
	var errs []float64
	s.await("coordinates tell the round trips", func() bool {
		at := s.workers()
		if len(at) < 4 {
			return false
		}
		errs = errs[:0]
		for k, ms := range real {
			got := at[k[0]].RTT(at[k[1]])
			errs = append(errs, max(got-ms, ms-got)/ms)
		}
		slices.Sort(errs)
		return errs[len(errs)/2] < 0.15 && at["a"].RTT(at["b"]) < 20 && at["a"].RTT(at["d"]) < 22 && at["a"].RTT(at["c"]) > 60
	})
	fmt.Fprintf(t.Output(), "relative errors of the six ways in the lab: %.3f\n", errs)
	s.await("the linked service is ready", func() bool { return slices.Equal(s.where("db"), []string{"a"}) })

	// Near the service that it is linked to; near its user.
	s.skerry(strings.ReplaceAll(apartApp, "PROGRAM", catalog)+strings.ReplaceAll(apartFront, "USER", l.Topology.Host("user").Address), "apply", "-f", "-")
	s.await("the others are ready", func() bool { return len(s.where("front")) == 1 && len(s.where("edge")) == 1 })
	first := s.where("front")[0]
	if first == "c" {
		t.Error("front runs on c, far from the service that it is linked to")
	}
	if edge := s.where("edge"); !slices.Equal(edge, []string{"c"}) {
		t.Errorf("edge runs on %v, its user is near c", edge)
	}

	// The cable of the worker with front becomes slow, so that db is far from there, too.
	slow := 60 * time.Millisecond
	for _, host := range []string{"a", "b", "c", "d"} {
		if host == first {
			continue
		}
		if err := l.SetLink(t.Context(), []string{host, first}, LinkChange{Delay: &slow}); err != nil {
			t.Fatal(err)
		}
	}
	other := map[string]string{"b": "d", "d": "b"}[first]
	s.await("front moves away from the slow way", func() bool {
		at := s.where("front")
		if len(at) == 0 {
			t.Fatal("nobody was ready while front moved")
		}
		return slices.Equal(at, []string{other})
	})
	var reasons []string
	for _, e := range listOf[wire.Event](s, "events") {
		if e.Service == "front" && slices.Contains([]string{"SLAViolated", "NoBetterPlace", "Migrating", "Migrated"}, e.Reason) {
			reasons = append(reasons, e.Reason)
			fmt.Fprintln(t.Output(), e.At.Format("04:05.0"), e.Reason, e.Text)
		}
	}
	if i := slices.Index(reasons, "Migrating"); i < 1 || reasons[0] != "SLAViolated" || !slices.Contains(reasons[i:], "Migrated") {
		t.Errorf("events: %v", reasons)
	}
}
