package sched

import (
	"fmt"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func TestVirtualization(t *testing.T) {
	runtime := func(name string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Runtime = name }
	}
	class := func(name string, i spec.Isolation) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Runtime, s.RuntimeClass, s.Isolation = "containerd", name, i }
	}
	classes := func(w *Worker) { w.Runtimes = []string{"oci", "containerd/hardware/kata", "containerd/shared/crun"} }
	testRule(t, Virtualization{}, []ruleCase{
		{name: "auto is oci", spec: runtime("auto")},
		{name: "the next best", spec: runtime("auto"), worker: func(w *Worker) { w.Runtimes = []string{"gvisor"} }},
		{name: "none that keeps it apart", spec: func(s *spec.ServiceSpec) { s.Runtime, s.Isolation = "auto", spec.IsolationHardware }, worker: func(w *Worker) { w.Runtimes = []string{"gvisor", "oci"} },
			want: "runtime: it offers no working runtime containerd/hardware or microvm"},
		{name: "has it", spec: runtime("native"), worker: func(w *Worker) { w.Runtimes = []string{"native", "oci"} }},
		{name: "has it not", spec: runtime("native"), want: "runtime: it offers no working runtime native"},
		{name: "none passed", spec: runtime("auto"), worker: func(w *Worker) { w.Runtimes = nil }, want: "runtime: it offers no working runtime oci or containerd or gvisor or microvm"},
		{name: "a module where its program does not run", spec: func(s *spec.ServiceSpec) { s.Runtime, s.Platforms = "auto", []string{"linux/arm64", "wasip1/wasm"} },
			worker: func(w *Worker) { w.Arch, w.Runtimes = "amd64", []string{"oci", "wasm"} }},
		{name: "neither of them", spec: func(s *spec.ServiceSpec) { s.Runtime, s.Platforms = "auto", []string{"linux/arm64", "wasip1/wasm"} },
			worker: func(w *Worker) { w.Arch, w.Runtimes = "amd64", []string{"native", "oci"} }, want: "runtime: it offers no working runtime oci or containerd or wasm or gvisor or microvm"},
		{name: "the table of what they cannot do", spec: func(s *spec.ServiceSpec) {
			s.Runtime, s.Isolation, s.Sidecars = "auto", spec.IsolationSandboxed, []spec.SideContainer{{Name: "log"}}
		}, worker: func(w *Worker) { w.Runtimes = []string{"microvm", "oci"} },
			want: "runtime: it offers no working runtime gvisor or containerd/sandboxed; microvm has no sidecars: a machine holds one container, and machines do not share a network interface"},
		{name: "a class", spec: class("crun", ""), worker: classes},
		{name: "a class of hardware", spec: class("kata", spec.IsolationHardware), worker: classes},
		{name: "any class of hardware", spec: class("", spec.IsolationHardware), worker: classes},
		{name: "auto takes a class of hardware", spec: func(s *spec.ServiceSpec) { s.Runtime, s.Isolation = "auto", spec.IsolationHardware },
			worker: classes},
		{name: "another class", spec: class("kata-fc", ""), worker: classes,
			want: "runtimeClass: no class kata-fc works; what does is crun (shared), kata (hardware)"},
		{name: "a class that is no machine", spec: class("crun", spec.IsolationHardware), worker: classes,
			want: "runtimeClass: class crun keeps a service apart as shared, and hardware is asked for"},
		{name: "a class where there are none", spec: class("kata", ""), want: "runtimeClass: no class kata works, and no other"},
		{name: "no class that is a machine", spec: class("", spec.IsolationHardware),
			worker: func(w *Worker) { w.Runtimes = []string{"containerd", "containerd/shared/crun"} },
			want:   "runtime: it offers no working runtime containerd/hardware"},
	})
}

func TestArchitecture(t *testing.T) {
	arch := func(list ...string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Placement.Arch = list }
	}
	is := func(name string) func(*Worker) { return func(w *Worker) { w.Arch = name } }
	testRule(t, Architecture{}, []ruleCase{
		{name: "any", worker: is("riscv64")},
		{name: "one of two", spec: arch("arm64", "amd64"), worker: is("amd64")},
		{name: "the image is for others", spec: func(s *spec.ServiceSpec) { s.Platforms = []string{"linux/amd64", "linux/arm64"} }, worker: is("riscv64"),
			want: "arch: it is riscv64; the image is built for linux/amd64, linux/arm64"},
		{name: "a module runs anywhere", spec: func(s *spec.ServiceSpec) { s.Runtime, s.Platforms = "auto", []string{"linux/amd64", "wasip1/wasm"} }, worker: is("riscv64")},
		{name: "its other half does not", spec: func(s *spec.ServiceSpec) {
			s.Platforms, s.Runtime = []string{"linux/amd64", "wasip1/wasm"}, spec.RuntimeOCI
		}, worker: is("riscv64"), want: "arch: it is riscv64; the image is built for linux/amd64, wasip1/wasm"},
		{name: "what both allow", spec: func(s *spec.ServiceSpec) {
			s.Platforms, s.Placement.Arch = []string{"linux/amd64", "linux/arm64"}, []string{"arm64", "riscv64"}
		}, worker: is("arm64")},
		{name: "another", spec: arch("arm64"), worker: is("amd64"), want: "arch: it is amd64; the service runs on arm64"},
	})
}

func TestDevices(t *testing.T) {
	devices := func(list ...string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Placement.Devices = list }
	}
	has := func(list ...string) func(*Worker) { return func(w *Worker) { w.Devices = list } }
	testRule(t, Devices{}, []ruleCase{
		{name: "none asked for", worker: has("gpu")},
		{name: "in any order", spec: devices("gpu", "camera"), worker: has("camera", "gpu", "lidar")},
		{name: "one is missing", spec: devices("camera", "gpu"), worker: has("camera"), want: "devices: it has no device gpu"},
	})
}

func TestArea(t *testing.T) {
	north := func(s *spec.ServiceSpec) { s.Placement.Area = "north" }
	in := func(a string) func(*Worker) { return func(w *Worker) { w.Area = a } }
	testRule(t, Area{}, []ruleCase{
		{name: "there", spec: north, worker: in("north")},
		{name: "elsewhere", spec: north, worker: in("south"), want: `area: it is in area "south", not "north"`},
		{name: "nowhere", spec: north, want: `area: it is in no area; "north" is asked for`},
		{name: "none asked for", worker: in("south")},
	})
}

func TestTaints(t *testing.T) {
	tolerate := func(list ...spec.Toleration) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Placement.Tolerations = list }
	}
	tainted := func(list ...string) func(*Worker) { return func(w *Worker) { w.Taints = list } }
	testRule(t, Taints{}, []ruleCase{
		{name: "none"},
		{name: "not tolerated", worker: tainted("gpu=only"), want: "taint: it is tainted gpu=only"},
		{name: "by key", worker: tainted("gpu=only"), spec: tolerate(spec.Toleration{Key: "gpu"})},
		{name: "by key and value", worker: tainted("gpu=only"), spec: tolerate(spec.Toleration{Key: "gpu", Value: "only"})},
		{name: "another value", worker: tainted("gpu=only"), spec: tolerate(spec.Toleration{Key: "gpu", Value: "some"}), want: "taint: it is tainted gpu=only"},
		{name: "one of two", worker: tainted("a", "b"), spec: tolerate(spec.Toleration{Key: "a"}), want: "taint: it is tainted b"},
		{name: "all", worker: tainted("a", "b=c"), spec: tolerate(spec.Toleration{Key: "*"})},
	})
}

// Beyond 63 kinds the summaries know less, and the answer is still exact; kinds that nobody is of are used anew.
func TestManyKinds(t *testing.T) {
	s := NewSite()
	for i := range 200 {
		s.Set(worker(nameOf(i), 4000, skerry.GiB, func(w *Worker) { w.Area = fmt.Sprint("area", i) }))
	}
	for i := range 200 {
		r := request(1, 1, func(s *spec.ServiceSpec) { s.Placement.Area = fmt.Sprint("area", i) })
		if d := s.Place(epoch, ROM(), r, 1); d.Chosen != nameOf(i) {
			t.Fatalf("area%d: %q", i, d.Chosen)
		}
	}
	for round := range 50 {
		for i := range 200 {
			s.Set(worker(nameOf(i), 4000, skerry.GiB, func(w *Worker) { w.Area = fmt.Sprint("area", i, "-", round) }))
		}
	}
	if len(s.kinds) > 300 || len(s.kindID) != 200 {
		t.Errorf("%d kinds are kept for 200", len(s.kinds))
	}
	r := request(1, 1, func(s *spec.ServiceSpec) { s.Placement.Area = "area7-49" })
	if d := s.Place(epoch, ROM(), r, 1); d.Chosen != nameOf(7) {
		t.Errorf("%q %v", d.Chosen, d.Why)
	}
}

func TestAbilities(t *testing.T) {
	limited := func(list ...string) func(*Worker) {
		return func(w *Worker) { w.Limited, w.Abilities = true, list }
	}
	native := func(edit ...func(*spec.ServiceSpec)) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) {
			*s = spec.ServiceSpec{Name: "s", Runtime: "native", Resources: s.Resources}
			s.Command = []string{"/bin/true"}
			for _, f := range edit {
				f(s)
			}
		}
	}
	ports := func(s *spec.ServiceSpec) { s.Ports = []spec.Port{{Port: 80}} }
	probes := func(s *spec.ServiceSpec) { s.Probes.Liveness = &spec.Probe{} }
	testRule(t, Abilities{}, []ruleCase{
		{name: "Skerry's own does all", spec: native(ports, probes)},
		{name: "a process", spec: native(), worker: limited()},
		{name: "unconfined is what it is", spec: native(func(s *spec.ServiceSpec) { s.Security.Seccomp = "unconfined" }), worker: limited()},
		{name: "what it said", spec: native(ports), worker: limited("ports")},
		{name: "one of two", spec: native(ports, probes), worker: limited("ports"), want: "ability: its agent is not Skerry's own and does not do probes"},
		{name: "none of two", spec: native(ports, probes), worker: limited("volumes"), want: "ability: its agent is not Skerry's own and does not do ports, probes"},
	})
}
