package spec

import (
	"slices"

	"skerry.dev/skerry"
)

// Isolation says what keeps a service apart from others on the same machine.
type Isolation string

// The isolations, the weakest first.
const (
	IsolationShared    Isolation = "shared"    // namespaces and filters of one kernel
	IsolationSandboxed Isolation = "sandboxed" // a kernel or machine of its own in user space stands between the service and the host's kernel
	IsolationHardware  Isolation = "hardware"  // a virtual machine
)

// Isolations lists them, the weakest first.
func Isolations() []string {
	return []string{string(IsolationShared), string(IsolationSandboxed), string(IsolationHardware)}
}

// The runtimes that a service may name. RuntimeAuto leaves the choice to the site.
const (
	RuntimeAuto   = "auto"
	RuntimeOCI    = "oci"    // a container
	RuntimeNative = "native" // a process of the host
	RuntimeGVisor = "gvisor" // a container on gVisor's kernel, which is a process of the host
	// RuntimeContainerd is a container that a containerd of the machine's operator runs.
	RuntimeContainerd = "containerd"
	RuntimeWasm       = "wasm"    // a WebAssembly module with WASI
	RuntimeMicroVM    = "microvm" // a container in a small virtual machine
	RuntimeVM         = "vm"      // a disk in a virtual machine, with whatever system is on it
	// RuntimeUnikernel is a kernel that is the whole program, in a small virtual machine.
	RuntimeUnikernel = "unikernel"
)

// RuntimeKind is what is known of a runtime on any machine.
type RuntimeKind struct {
	Name      string
	Isolation Isolation
	// Memory is what a container takes beside its workload: supervisor, sandbox, guest kernel.
	Memory skerry.Bytes
	// Source tells where that figure is from.
	Source string
	// Chosen says that auto may choose it for every image with programs. The others it chooses for images that are made for them.
	Chosen bool
}

// The rows of the table of runtimes.
const (
	rowNative = iota
	rowOCI
	rowContainerd
	rowSharedClass
	rowWasm
	rowGVisor
	rowSandboxedClass
	rowUnikernel
	rowVM
	rowHardwareClass
	rowMicroVM
	numRuntimes
)

// runtimeKinds is the table of runtimes, the cheapest first.
var runtimeKinds = [numRuntimes]RuntimeKind{
	rowNative:      {RuntimeNative, IsolationShared, 2 * skerry.MiB, "budget container.mem", false},
	rowOCI:         {RuntimeOCI, IsolationShared, 2 * skerry.MiB, "budget container.mem", true},
	rowContainerd:  {RuntimeContainerd, IsolationShared, 22 * skerry.MiB, "measured on amd64: shim 12 MiB, keeper 10", true},
	rowSharedClass: {runtimeSharedClass, IsolationShared, 22 * skerry.MiB, "measured on amd64 with runc: shim 12 MiB, keeper 10", true},
	rowWasm: {RuntimeWasm, IsolationSandboxed, 24 * skerry.MiB,
		"measured on amd64: 5 MiB beside a small module, 24 beside one of 3 MB made by Go", false},
	rowGVisor:         {RuntimeGVisor, IsolationSandboxed, 40 * skerry.MiB, "measured on amd64: sandbox 24 MiB, gofer 13 MiB", true},
	rowSandboxedClass: {runtimeSandboxedClass, IsolationSandboxed, 62 * skerry.MiB, "as gvisor, and for shim and keeper as containerd", true},
	rowUnikernel: {RuntimeUnikernel, IsolationHardware, 32 * skerry.MiB,
		"measured on amd64, emulated: QEMU and vm-run 17 MiB, and the code that it translates", false},
	rowVM: {RuntimeVM, IsolationHardware, 96 * skerry.MiB,
		"measured on amd64, emulated: QEMU and vm-run 23 MiB, and up to 64 of the code that it translates", false},
	rowHardwareClass: {runtimeHardwareClass, IsolationHardware, 162 * skerry.MiB,
		"published: thesis, section 2.3.2, Kata Containers on QEMU 152 MiB (135 on Firecracker, runc 10); and keeper 10", true},
	rowMicroVM: {RuntimeMicroVM, IsolationHardware, 210 * skerry.MiB, "measured on amd64, emulated: guest kernel, QEMU and its translated code, vm-run",
		true},
}

// RuntimeNames lists what a manifest may name.
func RuntimeNames() []string {
	out := []string{RuntimeAuto}
	for i := range runtimeKinds {
		if !runtimeKinds[i].forClasses() {
			out = append(out, runtimeKinds[i].Name)
		}
	}
	return out
}

// RuntimeNamed gives what is known of a runtime, or of a class; nil for one that is not known.
func RuntimeNamed(name string) *RuntimeKind {
	if row := runtimeRow(name); row >= 0 {
		return &runtimeKinds[row]
	}
	return nil
}

// runtimeRow finds the row of a runtime, or of a class; -1: there is none.
func runtimeRow(name string) int {
	name, _ = ParseRuntime(name)
	for i := range runtimeKinds {
		if runtimeKinds[i].Name == name {
			return i
		}
	}
	return -1
}

// Suits reports whether a runtime keeps a service apart as much as that asks for.
func (k *RuntimeKind) Suits(s *ServiceSpec) bool {
	list := Isolations()
	return slices.Index(list, string(k.Isolation)) >= slices.Index(list, string(s.Isolation))
}

// Runtimes lists the runtimes that may run a service, in the order in which a worker that has several takes them: the cheapest first.
func (s *ServiceSpec) Runtimes() []string {
	if s.named() {
		return []string{s.Runtime}
	}
	out, lacks := make([]string, 0, numRuntimes), lacking(s)
	for i := range runtimeKinds {
		if k := &runtimeKinds[i]; !lacks[i] && unsuited(s, k) == "" {
			out = append(out, s.inClass(k))
		}
	}
	return out
}

// RuntimeOn gives the runtime in which a service runs on a worker of an architecture that has some, at costs that may
// differ from the published ones; "" is none.
func (s *ServiceSpec) RuntimeOn(arch string, has []string, costs RuntimeCosts) string {
	return s.RuntimeAmong(s.Runtimes(), arch, has, costs)
}

// RuntimeAmong is RuntimeOn for who asks of many workers: wanted are the service's Runtimes.
func (s *ServiceSpec) RuntimeAmong(wanted []string, arch string, has []string, costs RuntimeCosts) string {
	var list []string
	for _, w := range wanted {
		found := "" // of several classes, the first by name
		for _, h := range has {
			if Offers(h, w) && s.builtOn(h, arch) && (found == "" || h < found) {
				found = h
			}
		}
		if found == "" {
			continue
		}
		if s.ExpectedRate <= 0 {
			return found // the cheapest will do
		}
		list = append(list, found)
	}
	return s.choose(list, costs)
}

// LeastCost is what an instance takes of a worker in the cheapest runtime that may run it.
func (s *ServiceSpec) LeastCost() Resources {
	if list := s.Runtimes(); len(list) > 0 {
		return s.Need().Add(s.Overhead(list[0]))
	}
	return s.Need()
}

// Overhead is what an instance takes of a worker beside what its containers ask for, in a runtime.
func (s *ServiceSpec) Overhead(runtime string) Resources {
	k := RuntimeNamed(runtime)
	if k == nil {
		return Resources{}
	}
	return Resources{Memory: k.Memory * skerry.Bytes(1+len(s.Sidecars))}
}
