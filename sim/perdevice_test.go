package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// plant is a site with a service that has an instance for each device of class serial.
type plant struct {
	*World
	t      *testing.T
	images map[string]string // by revision
}

// newPlant makes a site whose workers offer some devices each. One with an @ is in a network, at that address.
func newPlant(t *testing.T, devices map[string][]string) *plant {
	world := &plant{New(5), t, map[string]string{}}
	world.Machine.Start = 2 * time.Second
	world.Audit = true
	world.AddCluster("a")
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		world.AddWorker("a", name, offering(devices[name]...))
	}
	world.Run(5 * time.Second)
	return world
}

func offering(devices ...string) wire.WorkerFacts {
	f := facts(4000)
	f.Features = spec.AgentFeatures()
	for _, d := range devices {
		name, at, network := strings.Cut(d, "@")
		if !network {
			at = "/dev/" + name
		}
		f.Attachable = append(f.Attachable, "serial="+name)
		f.DeviceDetails = append(f.DeviceDetails, wire.Device{Name: "serial=" + name, At: at, Shares: 3,
			Labels: map[string]string{"vendor": name[:1]}})
	}
	slices.Sort(f.Attachable)
	return f
}

// plug changes what a worker offers.
func (world *plant) plug(name string, devices ...string) {
	n := world.Workers["a/"+name]
	f := offering(devices...)
	n.facts.Attachable, n.facts.DeviceDetails = f.Attachable, f.DeviceDetails
	world.Do(n, worker.Facts{Facts: world.machineOf(n)})
}

func (world *plant) apply(image string, edit ...func(*spec.ServiceSpec)) {
	world.t.Helper()
	world.must(world.t, world.Root, app("lines", 1, append([]func(*spec.ServiceSpec){func(s *spec.ServiceSpec) {
		s.Mode, s.Replicas, s.Image, s.Resources.CPU = spec.ModePerDevice, nil, image, 100
		s.Devices = []spec.DeviceRequest{{Class: "serial"}}
	}}, edit...)...))
	m := &world.RootCore().Apps.App(web("lines").App).Manifest.Spec.Services[0]
	world.images[m.Revision()] = image
}

// serves says which instance serves which device where: "w1 a x:1".
func (world *plant) serves(what string, want ...string) map[string]skerry.InstanceID {
	world.t.Helper()
	var got []string
	ids := map[string]skerry.InstanceID{}
	for _, i := range world.ClusterCore("a").Instances() {
		if skerry.HasCondition(i.Conditions, skerry.Ready) {
			device := strings.TrimPrefix(strings.Join(i.Devices, "+"), "serial=")
			got = append(got, fmt.Sprintf("%s %s %s", i.Worker, device, world.images[i.Revision]))
			ids[device] = i.ID
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		world.t.Errorf("%s: ready are %q, want %q", what, got, want)
	}
	return ids
}

// counts says how many instances the root knows of.
func (world *plant) counts(what string, ready, want int, status string) {
	world.t.Helper()
	c := world.RootCore().Apps
	v := c.View(c.App(web("lines").App), "root", false)
	if s := v.Services[0]; s.Ready != ready || s.Want != want || v.Status != status {
		world.t.Errorf("%s: the root has %s with %d of %d (%s), want %s with %d of %d", what, v.Status, s.Ready, s.Want, s.Reason, status, ready,
			want)
	}
}

// TestPerDeviceFollowsDevices: each device has an instance, shared or not; what is plugged in gets one, what is pulled out ends its own and
// no other, and one that is back soon has the same again. So it is after restarts of worker and site, and while the site is offline.
func TestPerDeviceFollowsDevices(t *testing.T) {
	world := newPlant(t, map[string][]string{"w1": {"a", "b"}, "w2": {"c"}, "w3": {}})
	world.apply("x:1")
	world.Run(10 * time.Second)
	first := world.serves("at first", "w1 a x:1", "w1 b x:1", "w2 c x:1")
	world.counts("at first", 3, 3, "Ready")
	same := func(what string, now map[string]skerry.InstanceID, devices ...string) {
		t.Helper()
		for _, d := range devices {
			if now[d] != first[d] {
				t.Errorf("%s: %s has instance %q, want %q as before", what, d, now[d], first[d])
			}
		}
	}
	for id := range maps.Values(first) {
		if strings.Contains(string(id), "serial") || spec.CheckInstanceID(id) != nil {
			t.Errorf("an instance is called %q, want an ID without a device's name", id)
		}
	}
	world.plug("w3", "d")
	world.Run(10 * time.Second)
	world.serves("one more", "w1 a x:1", "w1 b x:1", "w2 c x:1", "w3 d x:1")
	world.plug("w1", "b")
	world.Run(5 * time.Second)
	world.serves("one is gone", "w1 b x:1", "w2 c x:1", "w3 d x:1")
	world.counts("one is gone", 3, 4, "Degraded")
	world.plug("w1", "a", "b")
	world.Run(10 * time.Second)
	same("it is back", world.serves("it is back", "w1 a x:1", "w1 b x:1", "w2 c x:1", "w3 d x:1"), "a", "b", "c")
	world.plug("w1", "b")
	world.Run(time.Minute)
	world.serves("it stays away", "w1 b x:1", "w2 c x:1", "w3 d x:1")
	world.counts("it stays away", 3, 3, "Ready")

	world.Restart(world.Workers["a/w1"], nil)
	world.Restart(world.Clusters["a"], nil)
	world.Run(time.Minute)
	same("restarted", world.serves("restarted", "w1 b x:1", "w2 c x:1", "w3 d x:1"), "b", "c")

	world.Cut(world.Clusters["a"])
	world.plug("w1", "a", "b")
	world.Run(time.Minute)
	world.serves("offline", "w1 a x:1", "w1 b x:1", "w2 c x:1", "w3 d x:1")
	world.Heal(world.Clusters["a"])
	world.Run(30 * time.Second)
	world.counts("online", 4, 4, "Ready")

	world.PowerOff(world.Workers["a/w1"])
	world.Run(3 * time.Minute)
	world.serves("a worker is lost", "w2 c x:1", "w3 d x:1")
	world.Restart(world.Workers["a/w1"], nil)
	world.Run(time.Minute)
	same("and back", world.serves("and back", "w1 a x:1", "w1 b x:1", "w2 c x:1", "w3 d x:1"), "b", "c")
	world.PowerOff(world.Workers["a/w1"])
	world.Run(3 * time.Minute)
	world.must(t, world.Clusters["a"], cluster.RemoveWorker{Name: "w1"})
	world.Run(10 * time.Second)
	world.counts("and forgotten", 2, 2, "Ready")
}

// TestPerDeviceIsUpdatedInTurn: a new version takes one device after the other, one that fails is taken back, and what is pulled out in its
// turn holds nobody up.
func TestPerDeviceIsUpdatedInTurn(t *testing.T) {
	world := newPlant(t, map[string][]string{"w1": {"a", "b", "c"}, "w2": {"d", "e@10.0.0.1"}})
	world.Machine.Exit = func(a *spec.Assignment, _ string, _ int) (time.Duration, wire.Exit) {
		if a.Spec.Image == "bad:1" {
			return 3 * time.Second, wire.Exit{Code: 7}
		}
		return -1, wire.Exit{}
	}
	all := func(image string) (out []string) {
		for _, at := range []string{"w1 a ", "w1 b ", "w1 c ", "w2 d ", "w2 e "} {
			out = append(out, at+image)
		}
		return out
	}
	world.apply("x:1")
	world.Run(30 * time.Second)
	world.serves("at first", all("x:1")...)
	world.apply("x:2")
	for end := world.Now.Add(3 * time.Minute); world.Now.Before(end); world.Run(200 * time.Millisecond) {
		ready := 0
		for _, i := range world.ClusterCore("a").Instances() {
			if skerry.HasCondition(i.Conditions, skerry.Ready) {
				ready++
			}
		}
		if ready < 4 {
			t.Fatalf("while it is updated %d are ready, want 4 at least", ready)
		}
	}
	world.serves("updated", all("x:2")...)
	world.counts("updated", 5, 5, "Ready")
	world.apply("bad:1")
	world.Run(5 * time.Minute)
	world.serves("taken back", all("x:2")...)
	world.apply("x:3")
	world.Run(4 * time.Second) // the first has ended
	world.plug("w1", "b", "c")
	world.Run(5 * time.Minute)
	world.serves("one pulled out in its turn", all("x:3")[1:]...)
	world.counts("one pulled out in its turn", 4, 4, "Ready")
	world.apply("x:4", func(s *spec.ServiceSpec) { s.Devices[0].Match = map[string]string{"vendor": "c"} })
	world.Run(5 * time.Minute)
	world.serves("other labels", "w1 c x:4")
	world.apply("x:5", func(s *spec.ServiceSpec) { s.Mode, s.Devices = spec.ModePerWorker, nil })
	world.Run(5 * time.Minute)
	world.serves("another mode", "w1  x:5", "w2  x:5")
}

// TestPerDeviceInNetworks: what several workers see in a network is one device, as long as it has one name and address; when its worker is
// lost or drained, or no longer sees it, another one takes over.
func TestPerDeviceInNetworks(t *testing.T) {
	const cam, other = "c@10.0.0.7", "c@10.0.0.8"
	world := newPlant(t, map[string][]string{"w1": {cam}, "w2": {cam}, "w3": {other}})
	world.apply("x:1")
	world.Run(10 * time.Second)
	at := func(what string) (names []string) {
		for _, i := range world.ClusterCore("a").Instances() {
			if skerry.HasCondition(i.Conditions, skerry.Ready) {
				names = append(names, string(i.Worker))
			}
		}
		slices.Sort(names)
		if len(names) != 2 || names[1] != "w3" {
			t.Fatalf("%s: instances are on %q, want one on w1 or w2, and one on w3", what, names)
		}
		return names
	}
	has := at("at first")[0]
	rest := map[string]string{"w1": "w2", "w2": "w1"}
	moves := func(what string, do func()) {
		t.Helper()
		do()
		world.Run(3 * time.Minute)
		if now := at(what)[0]; now != rest[has] {
			t.Errorf("%s: the instance is on %s, want %s", what, now, rest[has])
		}
		has = rest[has]
		world.counts(what, 2, 2, "Ready")
	}
	moves("not seen there any more", func() { world.plug(has) })
	world.plug(rest[has], cam)
	world.Run(10 * time.Second)
	moves("its worker is lost", func() { world.PowerOff(world.Workers["a/"+has]) })
	world.Restart(world.Workers["a/"+rest[has]], nil)
	world.Run(time.Minute)
	if now := at("it is back")[0]; now != has {
		t.Errorf("its first worker is back: the instance is on %s, want it to stay on %s", now, has)
	}
	moves("its worker is drained", func() { world.must(t, world.Clusters["a"], cluster.DrainWorker{Name: has}) })
}

// TestPerDeviceFlaps: what a worker plugs in and out all the time, or has far too much of, has the site start little.
func TestPerDeviceFlaps(t *testing.T) {
	world := newPlant(t, map[string][]string{"w1": {}, "w2": {"z"}})
	world.Audit = false // of so much it costs minutes
	starts := 0
	world.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		starts++
		return -1, wire.Exit{}
	}
	world.apply("x:1")
	for n := range 100 {
		if world.plug("w1"); n%2 == 0 {
			world.plug("w1", "a")
		}
		world.Run(200 * time.Millisecond)
	}
	if starts > 12 {
		t.Errorf("a device that came and went 100 times in 20 seconds had %d instances start, want at most 12", starts)
	}
	many := func(prefix string) (out []string) {
		for n := range 600 {
			out = append(out, fmt.Sprintf("%s%04d", prefix, n))
		}
		return out
	}
	world.Workers["a/w1"].facts.Capacity = spec.Resources{CPU: 1_000_000, Memory: skerry.TiB, Storage: skerry.TiB}
	world.plug("w1", many("b")...)
	world.Run(time.Minute)
	world.plug("w1", many("k")...)
	world.Run(time.Minute)
	on := 0
	for _, i := range world.ClusterCore("a").Instances() {
		if i.Worker == "w1" && !i.Stopping {
			on++
		}
	}
	if on == 0 || on > spec.MaxCopiesWorker {
		t.Errorf("a worker with 600 devices has %d instances, want some, and at most %d", on, spec.MaxCopiesWorker)
	}
	if !slices.ContainsFunc(world.Events, func(e wire.Event) bool { return e.Reason == "TooManyDevices" }) {
		t.Error("nobody is told that a worker has too many devices, want an event TooManyDevices")
	}
}

// TestPerDeviceAtAnOlderSite: a site of before this mode would run one instance. It gets none, and the root says why.
func TestPerDeviceAtAnOlderSite(t *testing.T) {
	world := newPlant(t, map[string][]string{"w1": {"a"}})
	upgraded := world.Workers["a/w1"]
	upgraded.facts.Features = slices.DeleteFunc(spec.AgentFeatures(), func(f string) bool { return f == spec.FeaturePerDevice })
	world.Do(upgraded, worker.Facts{Facts: world.machineOf(upgraded)})
	world.Run(time.Minute)
	world.apply("x:1")
	world.Run(time.Minute)
	world.serves("an older site")
	c := world.RootCore().Apps
	if why := c.InstancesOf(web("lines").App)[0].Reason; !strings.Contains(why, "knows mode perDevice") {
		t.Errorf("the root's reason is %q, want that nobody there knows mode perDevice", why)
	}
	upgraded.facts.Features = spec.AgentFeatures()
	world.Do(upgraded, worker.Facts{Facts: world.machineOf(upgraded)})
	world.Run(3 * time.Minute)
	world.serves("upgraded", "w1 a x:1")
}
