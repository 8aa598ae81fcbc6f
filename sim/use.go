package sim

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/cluster"
)

// workerMark is part of every worker's name and address in a scenario, and of nothing else.
const workerMark = "edgewk"

// application makes the manifest of an application of a shape.
func application(a *Action) skerry.Application {
	shape := a.Args["shape"]
	replicas := a.number("replicas", 1)
	s := skerry.ServiceSpec{Name: "web", Replicas: &replicas,
		Resources: skerry.Resources{CPU: skerry.MilliCPU(a.number("cpu", 300)), Memory: 64 * skerry.MiB}}
	s.Image = fmt.Sprintf("web:%d", a.number("version", 1))
	s.Placement.Priority = a.number("priority", 0)
	if x, err := strconv.ParseFloat(a.Args["rigidness"], 64); err == nil {
		s.Placement.Rigidness = &x
	}
	if port := a.number("port", 0); port > 0 {
		s.Ports = []skerry.Port{{Port: 80, HostPort: port}}
	}
	switch d := a.Args["disconnect"]; d {
	case "":
	case "run":
		s.OnDisconnect = "run"
	default:
		after, _ := time.ParseDuration(d)
		s.OnDisconnect = skerry.StopAfter(after)
	}
	s.OnReconnect = a.Args["reconnect"]
	list := []skerry.ServiceSpec{s}
	switch shape {
	case "recreate":
		list[0].Update.Strategy = "recreate"
	case "spread":
		list[0].Placement.Policy = skerry.PolicySpread
	case "linked":
		db := s
		one := 1
		db.Name, db.Ports, db.Replicas = "db", nil, &one
		list[0].Links = []skerry.Link{{Service: "db"}}
		list = append(list, db)
	case "job":
		list[0].Mode, list[0].Replicas, list[0].Ports = skerry.ModeJob, nil, nil
		n := max(replicas, 1)
		two := 2
		list[0].Job = &skerry.JobSpec{Completions: &n, Parallelism: &two}
	case "perworker":
		list[0].Mode, list[0].Replicas = skerry.ModePerWorker, nil
	}
	return skerry.Application{APIVersion: skerry.APIVersion, Kind: skerry.KindApplication,
		Metadata: skerry.Metadata{Name: a.Target}, Spec: skerry.ApplicationSpec{Services: list}}
}

// exit has instances of jobs end well after a few seconds.
func (r *run) exit(a *skerry.Assignment, name string, _ int) (time.Duration, skerry.Exit) {
	if a.Spec.Mode == skerry.ModeJob && name == skerry.MainContainer {
		return 3 * time.Second, skerry.Exit{}
	}
	return -1, skerry.Exit{}
}

// use does what a user of an application asks for.
func (r *run) use(a Action) {
	u := r.check.wishes[a.Target]
	key := skerry.AppKey{Namespace: "default", Name: a.Target}
	web := skerry.ServiceKey{App: key, Service: "web"}
	if u == nil {
		owner := r.w.Root
		if o := a.Args["owner"]; o != "" {
			owner = r.node(o)
		}
		if a.Verb != "apply" || owner == nil || owner.facts != nil {
			return
		}
		u = &wish{app: a.Target, owner: owner, may: []state{{}}}
		r.check.wishes[a.Target] = u
	}
	switch a.Verb {
	case "apply":
		app := application(&a)
		r.request(u, apps.Apply{Actor: "t", App: app}, func(state) state { return stateOf(&app) })
	case "scale":
		n := a.number("replicas", 1)
		r.request(u, apps.Scale{Service: web, Replicas: n, Actor: "t"}, func(now state) state {
			to := state{services: map[string]wanted{}, app: now.app}
			for k, x := range now.services {
				if k == "web" {
					x.replicas = n
				}
				to.services[k] = x
			}
			return to
		})
	case "restart":
		r.request(u, apps.Restart{Service: web, Actor: "t"}, func(now state) state { return now })
	case "delete":
		r.request(u, apps.Delete{Key: key, Actor: "t"}, func(state) state { return state{} })
	}
}

func (r *run) addWorker(i int, m Machinery) *Node {
	site, name, _ := strings.Cut(m.Name, "/")
	f := skerry.WorkerFacts{Arch: "amd64", Address: name + ".test", Capacity: skerry.Resources{CPU: m.CPU, Memory: m.Memory, Storage: 10 * skerry.GiB}}
	f.Overlay = &skerry.OverlayFacts{Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 7444)}}
	copy(f.Overlay.Key[:], fmt.Sprintf("%s%-29d", workerMark, i))
	return r.w.AddWorker(site, name, f)
}

// relayOf says that a site has a relay, so that it takes part in what goes on between sites.
func relayOf(i int) cluster.RelayUp {
	return cluster.RelayUp{UDP: netip.MustParseAddrPort("0.0.0.0:7445"), Public: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 7445)}
}
