package sched

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func TestCapacity(t *testing.T) {
	need := func(r spec.Resources) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Resources = r }
	}
	in := func(runtime string, i spec.Isolation, memory skerry.Bytes) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) {
			s.Runtime, s.Isolation, s.Resources = runtime, i, spec.Resources{Memory: memory}
		}
	}
	has := func(names ...string) func(*Worker) { return func(w *Worker) { w.Runtimes = names } }
	testRule(t, Capacity{}, []ruleCase{
		{name: "enough", spec: need(spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB})},
		{name: "nothing asked for", spec: need(spec.Resources{}), worker: func(w *Worker) { w.Available = spec.Resources{CPU: -5} }},
		{name: "one millicore short", spec: need(spec.Resources{CPU: 4001}), want: "cpu: needs 4.001 of cpu, 4 is free"},
		{name: "accelerators", spec: need(spec.Resources{GPUs: 1}), want: "gpus: needs 1 of gpus, 0 is free"},
		{name: "accelerators there", spec: need(spec.Resources{GPUs: 1, TPUs: 1}), worker: func(w *Worker) { w.Available.GPUs, w.Available.TPUs = 1, 1 }},
		{name: "bandwidth", spec: need(spec.Resources{BandwidthOut: skerry.MiB}), want: "bandwidthOut: needs 1Mi of bandwidthOut, 0 is free"},
		{name: "storage", spec: need(spec.Resources{Storage: 2 * skerry.GiB}), worker: func(w *Worker) { w.Available.Storage = skerry.GiB }, want: "storage: needs 2Gi of storage, 1Gi is free"},
		{name: "the resource that is missing most is told", spec: need(spec.Resources{CPU: 4100, Memory: 40 * skerry.GiB}), want: "memory: needs 40Gi of memory, 4Gi is free"},
		{name: "with its runtime", spec: in("oci", spec.IsolationShared, 4*skerry.GiB-2*skerry.MiB)},
		{name: "not with its runtime", spec: in("oci", spec.IsolationShared, 4*skerry.GiB-skerry.MiB), want: "memory: needs 4095Mi of memory, and 2Mi for runtime oci, 4Gi is free"},
		{name: "the cheaper one", spec: in("auto", spec.IsolationSandboxed, 4*skerry.GiB-100*skerry.MiB), worker: has("gvisor", "microvm")},
		{name: "the one that it has", spec: in("auto", spec.IsolationSandboxed, 4*skerry.GiB-100*skerry.MiB), worker: has("microvm"), others: []*Worker{worker("b", 1, 1, has("gvisor"))},
			want: "memory: needs 3996Mi of memory, and 210Mi for runtime microvm, 4Gi is free"},
		{name: "over-committed", spec: need(spec.Resources{CPU: 1}), worker: func(w *Worker) { w.Available.CPU = -100 }, want: "cpu: needs 0.001 of cpu, 0 is free"},
	})
}
