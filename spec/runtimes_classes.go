package spec

import (
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry"
)

// A class is a shim of a worker's containerd: its operator declares it under a name, with how it keeps containers apart, and the worker
// offers it as a runtime containerd/ISOLATION/NAME once its self-test passed. Where any class of an isolation will do, that is called
// containerd/ISOLATION, which is a row of the table of runtimes.
const (
	runtimeSharedClass    = RuntimeContainerd + "/" + string(IsolationShared)
	runtimeSandboxedClass = RuntimeContainerd + "/" + string(IsolationSandboxed)
	runtimeHardwareClass  = RuntimeContainerd + "/" + string(IsolationHardware)
)

// ClassRuntime names the runtime that a class is.
func ClassRuntime(i Isolation, class string) string {
	return RuntimeContainerd + "/" + string(i) + "/" + class
}

// ParseRuntime takes the name of a runtime apart: kind is what the table of runtimes knows it by, and class the name of its class; empty:
// it is none. Who reports a runtime may call it anything: what nobody can declare is no class, and of no kind.
func ParseRuntime(runtime string) (kind, class string) {
	if i := strings.LastIndexByte(runtime, '/'); i > len(RuntimeContainerd) && skerry.CheckName(runtime[i+1:]) == nil {
		return runtime[:i], runtime[i+1:]
	}
	return runtime, ""
}

// Offers reports whether a runtime that a worker has is one that is asked for, which may be any class of an isolation.
func Offers(has, wanted string) bool {
	if has == wanted {
		return true
	}
	kind, _ := ParseRuntime(has)
	return kind == wanted
}

// forClasses reports whether a row of the table stands for classes.
func (k *RuntimeKind) forClasses() bool { return strings.HasPrefix(k.Name, RuntimeContainerd+"/") }

// classed reports whether a service names a class, or any that keeps it apart more than the shim that a worker's containerd has without
// one.
func (s *ServiceSpec) classed() bool {
	return s.Runtime == RuntimeContainerd && (s.RuntimeClass != "" || s.Isolation == IsolationSandboxed || s.Isolation == IsolationHardware)
}

// named reports whether a service names one runtime, as the table knows it.
func (s *ServiceSpec) named() bool {
	return s.Runtime != "" && s.Runtime != RuntimeAuto && !s.classed()
}

// inClass names the runtime of a row for a service, with the class that it names.
func (s *ServiceSpec) inClass(k *RuntimeKind) string {
	if s.RuntimeClass == "" || !k.forClasses() {
		return k.Name
	}
	return k.Name + "/" + s.RuntimeClass
}

// Honours reports whether an instance that runs in a runtime has the isolation and the class that its service asks for.
func (s *ServiceSpec) Honours(runtime string) bool {
	k := RuntimeNamed(runtime)
	if k == nil {
		k = &RuntimeKind{Isolation: IsolationShared}
	}
	_, class := ParseRuntime(runtime)
	return k.Suits(s) && (s.RuntimeClass == "" || s.RuntimeClass == class)
}

// ClassMiss tells how near those that have some runtimes come to the class that a service names; empty where it names none.
func (s *ServiceSpec) ClassMiss(has []string) string {
	if s.RuntimeClass == "" {
		return ""
	}
	var all []string
	for _, r := range has {
		k := RuntimeNamed(r)
		_, class := ParseRuntime(r)
		switch {
		case class == "" || k == nil:
		case class != s.RuntimeClass:
			all = append(all, fmt.Sprintf("%s (%s)", class, k.Isolation))
		case !k.Suits(s):
			return fmt.Sprintf("class %s keeps a service apart as %s, and %s is asked for", class, k.Isolation, s.Isolation)
		default:
			if row := runtimeRow(r); s.lackOf(row) != nil {
				return fmt.Sprintf("class %s %s", class, s.lackOf(row).text(row))
			}
		}
	}
	if len(all) == 0 {
		return "no class " + s.RuntimeClass + " works, and no other"
	}
	slices.Sort(all)
	return "no class " + s.RuntimeClass + " works; what does is " + strings.Join(slices.Compact(all), ", ")
}

// runtimeClass checks the class that a service names.
func (c *checker) runtimeClass(p string, s *ServiceSpec) {
	if s.RuntimeClass == "" {
		return
	}
	c.name(p+".runtimeClass", s.RuntimeClass)
	if s.Runtime != RuntimeContainerd {
		runtime := s.Runtime
		orDefault(&runtime, RuntimeAuto)
		c.add(p+".runtimeClass", "write runtime: containerd beside it",
			"classes are those of runtime containerd, and the service has runtime: %s", runtime)
	}
}
