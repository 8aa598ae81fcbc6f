package spec

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
)

// MaxExtraHosts bounds the further lines of an instance's hosts file, and MaxHostname the name of a machine, as the kernel does.
const (
	MaxExtraHosts = 100
	MaxHostname   = 64
)

// HostEntry is a line of an instance's hosts file.
type HostEntry struct {
	Address netip.Addr `json:"address" doc:"Address to which the names lead."`
	Names   []string   `json:"names" doc:"Host names, in lower case."`
}

// hosts checks what an instance's containers call themselves and others.
func (check *checker) hosts(path string, service *ServiceSpec) {
	if service.Hostname != "" {
		if err := CheckHost(service.Hostname); err != nil || strings.HasPrefix(service.Hostname, "*") || len(service.Hostname) > MaxHostname {
			check.add(path+".hostname", "write a name in lower case of at most 64 characters, such as mail or mail.example.org",
				"%q is not a host name", service.Hostname)
		}
	}
	check.atMost(path+".extraHosts", len(service.ExtraHosts), MaxExtraHosts)
	for i, entry := range service.ExtraHosts {
		at := fmt.Sprintf("%s.extraHosts[%d]", path, i)
		if !entry.Address.IsValid() || entry.Address.IsUnspecified() || entry.Address.IsMulticast() || entry.Address.Zone() != "" {
			check.add(at+".address", "", "%q is no address of a host", entry.Address)
		}
		if len(entry.Names) == 0 {
			check.add(at+".names", "", "a name is missing")
		}
		check.atMost(at+".names", len(entry.Names), MaxExtraHosts)
		for j, name := range entry.Names {
			if err := CheckHost(name); err != nil || strings.HasPrefix(name, "*") {
				check.add(fmt.Sprintf("%s.names[%d]", at, j), "", "%q is not a host name in lower case", name)
			}
		}
	}
}

// Hook is done before a container is asked to end: exactly one of exec, http and sleep.
type Hook struct {
	Exec  *ExecProbe `json:"exec,omitempty" doc:"A command in the container."`
	HTTP  *HTTPProbe `json:"http,omitempty" doc:"A GET to the instance; its answer has no effect."`
	Sleep Duration   `json:"sleep,omitempty" doc:"Time to wait."`
}

// preStop checks what is done before a container ends.
func (check *checker) preStop(path string, hook *Hook, service *ServiceSpec) {
	if hook == nil {
		return
	}
	kinds := 0
	for _, is := range []bool{hook.Exec != nil, hook.HTTP != nil, hook.Sleep != 0} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		check.add(path, "write exactly one of exec, http and sleep", "%d kinds of hook are given", kinds)
	}
	if hook.Exec != nil && len(hook.Exec.Command) == 0 {
		check.add(path+".exec.command", "", "a command is missing")
	}
	if hook.HTTP != nil {
		check.between(path+".http.port", hook.HTTP.Port, 1, 65535)
		if hook.HTTP.Path != "" && !strings.HasPrefix(hook.HTTP.Path, "/") {
			check.add(path+".http.path", "", "%q must begin with /", hook.HTTP.Path)
		}
	}
	grace := DefaultGrace
	if service.TerminationGrace != nil {
		grace = time.Duration(*service.TerminationGrace)
	}
	if time.Duration(hook.Sleep) > grace {
		check.add(path+".sleep", "raise terminationGrace", "%s is longer than terminationGrace, %s, in which the program must end, too",
			hook.Sleep, grace)
	}
}

// DefaultGrace is the time between the stop signal and the kill of a service that names none.
const DefaultGrace = 10 * time.Second

// MaxSubPath bounds the path of a part of a volume.
const MaxSubPath = 1024

// subPath checks the part of a volume that is mounted.
func (c *checker) subPath(p, sub string) {
	if sub == "" {
		return
	}
	upwards := sub == "." || sub == ".." || strings.HasPrefix(sub, "../")
	if path.IsAbs(sub) || path.Clean(sub) != sub || upwards || strings.ContainsRune(sub, 0) || len(sub) > MaxSubPath {
		c.add(p, "write it from the volume's root on, such as data/web", "%q is not a path within a volume without . or .. parts", sub)
	}
}

// hasHook reports whether a container of a service runs a command before it ends.
func hasHook(k *Container) bool { return k.PreStop != nil && k.PreStop.Exec != nil }

// subPathIn gives the first mount of a part of a volume, as a path below the service, or "".
func subPathIn(s *ServiceSpec) string {
	return inContainers("mounts", func(k *Container) bool {
		return slices.ContainsFunc(k.Mounts, func(m Mount) bool { return m.SubPath != "" })
	})(s)
}

// HookOf gives what is done before a container ends; nil: nothing.
func HookOf(s *ServiceSpec, container string) *Hook {
	if container == MainContainer {
		return s.PreStop
	}
	for i := range s.Sidecars {
		if s.Sidecars[i].Name == container {
			return s.Sidecars[i].PreStop
		}
	}
	return nil
}
