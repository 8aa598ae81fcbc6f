package spec

import (
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry"
)

// lack is something that a service may ask for and that some runtimes do not do on any machine. Placement never looks at those
// runtimes then, and a service that names one is refused with the reason.
type lack struct {
	what string
	// in tells where a service asks for it, as a path below the service, or "".
	in func(s *ServiceSpec) string
	// why tells the reason for each runtime that does not do it.
	why reasons
}

// reasons are by row of the table of runtimes; empty: none. An array, because placement asks for each service and runtime.
type reasons [numRuntimes]string

// lacks is the table of runtimes and abilities. What a runtime can do only on some machines is not in it: the
// self-tests of the workers tell.
var lacks = []lack{
	{"terminals", inContainers("tty", func(k *Container) bool { return k.TTY }), reasons{
		rowWasm: "WASI knows streams alone", rowUnikernel: "its console is a serial line", rowVM: "its console is a serial line"}},
	{"users", inContainers("user", func(k *Container) bool { return k.User != "" }), reasons{
		rowWasm: "a module is nobody", rowUnikernel: "it is a kernel, which has none",
		rowVM: "users are the affair of the system on its disk"}},
	{"privileges on the host", inContainers("security.privileged", func(k *Container) bool { return k.Security.Privileged }),
		reasons{
			rowWasm: "a module makes no system calls", rowGVisor: "system calls are answered by a kernel that has none itself",
			rowSandboxedClass: "system calls are answered by a kernel that has none itself",
			rowHardwareClass:  "nobody has seen what a shim of machines then hands in of the host",
			rowUnikernel:      "nothing of the host is in its machine", rowVM: "nothing of the host is in its machine"}},
	{"capabilities", inContainers("security.addCaps", func(k *Container) bool { return len(k.Security.AddCaps) > 0 }), reasons{
		rowWasm: "a module makes no system calls", rowUnikernel: "it is the kernel itself",
		rowVM: "the system on its disk has its own"}},
	{"set-user-ID programs", inContainers("security.newPrivileges", func(k *Container) bool { return k.Security.NewPrivs }), reasons{
		rowWasm: "a module starts no programs", rowUnikernel: "it starts no programs", rowVM: "the system on its disk has its own"}},
	{"read-only root", inContainers("security.readOnlyRoot", func(k *Container) bool { return k.Security.ReadOnlyRoot }), reasons{
		rowNative: "a process sees the host's root", rowVM: "a system writes to the disk that it is on; what it wrote is gone with the instance"}},
	{"working directory", inContainers("workingDir", func(k *Container) bool { return k.WorkingDir != "" }), reasons{
		rowUnikernel: "it is a kernel, which has none", rowVM: "what is on its disk decides where it runs"}},
	{"resource limits", inContainers("ulimits", func(k *Container) bool { return len(k.Ulimits) > 0 }), reasons{
		rowWasm: "WASI has none but those of the runtime", rowUnikernel: "it is a kernel, which has none",
		rowVM: "the system on its disk has its own"}},
	{"kernel parameters", inContainers("sysctls", func(k *Container) bool { return len(k.Sysctls) > 0 }), reasons{
		rowNative: "they would change the host", rowWasm: "a module has no network of its own to set",
		rowGVisor: "the sandbox's kernel has none", rowSandboxedClass: "the sandbox's kernel has none",
		rowHardwareClass: "nobody has seen its kernel take them", rowUnikernel: "it is a kernel, which has its own",
		rowVM: "the system on its disk has its own"}},
	{"sidecars", func(s *ServiceSpec) string {
		if len(s.Sidecars) > 0 {
			return "sidecars"
		}
		return ""
	}, reasons{
		rowHardwareClass: "a machine holds one container, and machines do not share a network interface",
		rowMicroVM:       "a machine holds one container, and machines do not share a network interface",
		rowUnikernel:     "a machine holds one kernel, and machines do not share a network interface",
		rowVM:            "a machine holds one system, and machines do not share a network interface"}},
	{"volumes", inContainers("mounts", func(k *Container) bool { return len(k.Mounts) > 0 }), reasons{
		rowUnikernel: "nothing of the host is in its machine",
		rowVM:        "its disk is its own, and directories of the host are not in its machine"}},
	{"devices", func(s *ServiceSpec) string {
		if len(s.Devices) > 0 {
			return "devices"
		}
		return ""
	}, reasons{
		rowNative: "a process sees those of the host that its user may use",
		rowGVisor: "system calls are answered by a kernel that has no drivers", rowWasm: "WASI has none",
		rowSandboxedClass: "system calls are answered by a kernel that has no drivers",
		rowHardwareClass:  "its machine has none but disks and a network",
		rowMicroVM:        "its machine has none but disks and a network", rowUnikernel: "its machine has none but disks and a network",
		rowVM: "its machine has none but disks and a network"}},
	{"huge pages", func(s *ServiceSpec) string {
		if s.Resources.HugePages != (HugePages{}) {
			return "resources.hugePages"
		}
		return ""
	}, reasons{
		rowGVisor: "the memory of a sandbox is its own kernel's", rowWasm: "WASI knows linear memory alone",
		rowSandboxedClass: "the memory of a sandbox is its own kernel's", rowHardwareClass: "the memory of a machine is its guest's",
		rowMicroVM: "the memory of a machine is its guest's", rowUnikernel: "the memory of a machine is its guest's",
		rowVM: "the memory of a machine is its guest's"}},
	{"command of its own", inContainers("command", func(k *Container) bool { return len(k.Command)+len(k.Args) > 0 }), reasons{
		rowVM: "what is on its disk decides what runs; tell it by machine.userData"}},
	{"config files", func(s *ServiceSpec) string {
		if len(s.Config) > 0 {
			return "config"
		}
		return ""
	}, reasons{
		rowUnikernel: "it has no files but its own; tell it by args"}},
	{"secrets", func(s *ServiceSpec) string {
		if len(s.Secrets) > 0 {
			return "secrets"
		}
		return ""
	}, reasons{
		rowUnikernel: "it has no files but its own", rowVM: "what cloud-init is told stays on the machine's disk"}},
	{"commands run as probes", func(s *ServiceSpec) string {
		for _, q := range []struct {
			field string
			probe *Probe
		}{{"startup", s.Probes.Startup}, {"readiness", s.Probes.Readiness}, {"liveness", s.Probes.Liveness}} {
			if q.probe != nil && q.probe.Exec != nil {
				return "probes." + q.field + ".exec"
			}
		}
		return ""
	}, reasons{
		rowWasm:      "a module has no other processes; probe by http or tcp",
		rowUnikernel: "it has no other processes; probe by http or tcp",
		rowVM:        "there is no agent of ours in its system; probe by http or tcp"}},
	{"commands run after the start", inContainers("postStart.exec", runsAfterStart), reasons{
		rowWasm:      "a module has no other processes; ask by http",
		rowUnikernel: "it has no other processes; ask by http",
		rowVM:        "there is no agent of ours in its system; ask by http"}},
	{"commands run before the end", inContainers("preStop.exec", runsBeforeEnd), reasons{
		rowWasm:      "a module has no other processes; ask by http",
		rowUnikernel: "it has no other processes; ask by http",
		rowVM:        "there is no agent of ours in its system; ask by http"}},
	{"hostname", func(s *ServiceSpec) string {
		if s.Hostname != "" {
			return "hostname"
		}
		return ""
	}, reasons{
		rowWasm: "WASI does not know the name of its machine", rowUnikernel: "it is a kernel, which names itself"}},
	{"hosts file of its own", func(s *ServiceSpec) string {
		if len(s.ExtraHosts) > 0 {
			return "extraHosts"
		}
		return ""
	}, reasons{
		rowNative: "a process sees the host's", rowWasm: "a module looks up no names",
		rowUnikernel: "it has no files but its own",
		rowVM:        "the system on its disk has its own; tell it by machine.userData"}},
	{"service ports", servicePortLack, reasons{
		rowGVisor:         "the kernel of a sandbox takes packets before its worker's could translate them",
		rowSandboxedClass: "the kernel of a sandbox takes packets before its worker's could translate them",
		rowHardwareClass:  "a machine takes packets before its worker's kernel could translate them",
		rowMicroVM:        "a machine takes packets before its worker's kernel could translate them",
		rowUnikernel:      "a machine takes packets before its worker's kernel could translate them",
		rowVM:             "a machine takes packets before its worker's kernel could translate them"}},
	{"ports other than TCP", func(s *ServiceSpec) string {
		for i, p := range s.Ports {
			if p.Protocol != "" && p.Protocol != "tcp" {
				return fmt.Sprintf("ports[%d].protocol", i)
			}
		}
		return ""
	}, reasons{
		rowWasm: "WASI listens by TCP alone"}},
}

// inContainers looks for the first container that asks for something.
func inContainers(field string, asks func(*Container) bool) func(*ServiceSpec) string {
	return func(s *ServiceSpec) string {
		if asks(&s.Container) {
			return field
		}
		for i := range s.Init {
			if asks(&s.Init[i].Container) {
				return fmt.Sprintf("init[%d].%s", i, field)
			}
		}
		for i := range s.Sidecars {
			if asks(&s.Sidecars[i].Container) {
				return fmt.Sprintf("sidecars[%d].%s", i, field)
			}
		}
		return ""
	}
}

// text tells that the runtime of a row does not do it.
func (l *lack) text(row int) string { return fmt.Sprintf("has no %s: %s", l.what, l.why[row]) }

// lackOf gives what a service asks for and the runtime of a row does not do, or nil.
func (s *ServiceSpec) lackOf(row int) *lack {
	for i := range lacks {
		if lacks[i].why[row] != "" && lacks[i].in(s) != "" {
			return &lacks[i]
		}
	}
	return nil
}

// lacking tells of each row whether its runtime does not do something that a service asks for.
func lacking(s *ServiceSpec) (out [numRuntimes]bool) {
	for i := range lacks {
		if lacks[i].in(s) == "" {
			continue
		}
		for row, why := range lacks[i].why {
			out[row] = out[row] || why != ""
		}
	}
	return out
}

// RuntimeChoice is how a runtime stands to a service.
type RuntimeChoice struct {
	Runtime   string    `json:"runtime"`
	Isolation Isolation `json:"isolation"`
	// Memory is what an instance takes beside its workload; Source tells where that is from.
	Memory skerry.Bytes `json:"memory"`
	Source string       `json:"source"`
	// Out tells why no instance may run in it; empty when one may.
	Out string `json:"out,omitempty"`
	// Lacking says that it would do, but for something that it cannot do on any machine.
	Lacking bool `json:"lacking,omitempty"`
	// Unasked says that the service names another.
	Unasked bool `json:"unasked,omitempty"`
	// Workers have it working, of those that are asked; only a cluster knows.
	Workers int  `json:"workers,omitempty"`
	Chosen  bool `json:"chosen,omitempty"`
	// Processor is how much of a processor it takes for the same work, on the instance's worker where that is known to differ.
	Processor RuntimeFigure `json:"processor"`
	// These are for a service with an expected rate: at how many requests per second an instance saturates in it (0:
	// not known), what share of that the expected rate leaves (below 0: it is more; nil: not known), and why it is not
	// clear of that point, or empty.
	Saturation float64  `json:"saturation,omitempty"`
	HeadRoom   *float64 `json:"headRoom,omitempty"`
	Crowded    string   `json:"crowded,omitempty"`
}

// RuntimeChoices tells how each runtime stands to a service, the cheapest first; chosen is the one that an instance
// has, or "", and costs are those of its worker.
func (s *ServiceSpec) RuntimeChoices(chosen string, costs RuntimeCosts) []RuntimeChoice {
	out := make([]RuntimeChoice, 0, len(runtimeKinds))
	for i := range runtimeKinds {
		kind := &runtimeKinds[i]
		name, is := s.inClass(kind), Offers(chosen, kind.Name)
		if is {
			name = chosen
		} else if kind.forClasses() && !s.classed() && s.whyNot(i) != "" {
			continue // who asked for no class need not know of them
		}
		c := RuntimeChoice{Runtime: name, Isolation: kind.Isolation, Memory: s.Overhead(kind.Name).Memory, Source: kind.Source, Chosen: is,
			Processor: costs.Figure(name)}
		if s.ExpectedRate > 0 {
			c.Saturation, c.Crowded = s.Saturation(c.Processor.CPU), s.Crowded(name, costs)
			if c.Saturation > 0 {
				left := 1 - s.ExpectedRate/c.Saturation
				c.HeadRoom = &left
			}
		}
		if !s.named() {
			c.Out = s.whyNot(i)
			c.Lacking, c.Unasked = c.Out != "" && s.made(kind) && kind.Suits(s) && s.classed() == kind.forClasses(),
				s.classed() && !kind.forClasses()
		} else if s.Runtime != kind.Name {
			c.Out, c.Unasked = "the service names "+s.Runtime, true
		}
		out = append(out, c)
	}
	return out
}

// runtimes refuses a service that no runtime can run as it asks to be run.
func (c *checker) runtimes(path string, service *ServiceSpec) {
	if service.named() {
		row := runtimeRow(service.Runtime)
		for i := range lacks {
			if row < 0 || lacks[i].why[row] == "" {
				continue
			}
			if at := lacks[i].in(service); at != "" {
				c.add(path+"."+at, "leave it out, or use another runtime", "runtime %s %s", service.Runtime, lacks[i].text(row))
			}
		}
		return
	}
	if len(service.Runtimes()) > 0 || !slices.Contains(Isolations(), string(service.Isolation)) {
		return
	}
	var why []string
	for _, r := range service.RuntimeChoices("", nil) {
		if r.Lacking {
			why = append(why, r.Runtime+" "+r.Out)
		}
	}
	c.add(path+".isolation", "ask for a weaker isolation, or leave that out", "no runtime with isolation %s can run it: %s",
		service.Isolation, strings.Join(why, "; "))
}
