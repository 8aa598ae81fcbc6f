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
func (c *checker) hosts(p string, s *ServiceSpec) {
	if s.Hostname != "" {
		if err := CheckHost(s.Hostname); err != nil || strings.HasPrefix(s.Hostname, "*") || len(s.Hostname) > MaxHostname {
			c.add(p+".hostname", "write a name in lower case of at most 64 characters, such as mail or mail.example.org", "%q is not a host name", s.Hostname)
		}
	}
	c.atMost(p+".extraHosts", len(s.ExtraHosts), MaxExtraHosts)
	for i, entry := range s.ExtraHosts {
		at := fmt.Sprintf("%s.extraHosts[%d]", p, i)
		if !entry.Address.IsValid() || entry.Address.IsUnspecified() || entry.Address.IsMulticast() || entry.Address.Zone() != "" {
			c.add(at+".address", "", "%q is no address of a host", entry.Address)
		}
		if len(entry.Names) == 0 {
			c.add(at+".names", "", "a name is missing")
		}
		c.atMost(at+".names", len(entry.Names), MaxExtraHosts)
		for j, name := range entry.Names {
			if err := CheckHost(name); err != nil || strings.HasPrefix(name, "*") {
				c.add(fmt.Sprintf("%s.names[%d]", at, j), "", "%q is not a host name in lower case", name)
			}
		}
	}
}

// Hook is done before a container is asked to end: exactly one of exec, http and sleep.
type Hook struct {
	Exec  *ExecProbe `json:"exec,omitempty" doc:"A command in the container. Its result is not waited for beyond the service's terminationGrace."`
	HTTP  *HTTPProbe `json:"http,omitempty" doc:"A GET to the instance; its answer has no effect."`
	Sleep Duration   `json:"sleep,omitempty" doc:"Time to wait."`
}

// preStop checks what is done before a container ends.
func (c *checker) preStop(p string, h *Hook, s *ServiceSpec) {
	if h == nil {
		return
	}
	kinds := 0
	for _, is := range []bool{h.Exec != nil, h.HTTP != nil, h.Sleep != 0} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		c.add(p, "write exactly one of exec, http and sleep", "%d kinds of hook are given", kinds)
	}
	if h.Exec != nil && len(h.Exec.Command) == 0 {
		c.add(p+".exec.command", "", "a command is missing")
	}
	if h.HTTP != nil {
		c.between(p+".http.port", h.HTTP.Port, 1, 65535)
		if h.HTTP.Path != "" && !strings.HasPrefix(h.HTTP.Path, "/") {
			c.add(p+".http.path", "", "%q must begin with /", h.HTTP.Path)
		}
	}
	grace := DefaultGrace
	if s.TerminationGrace != nil {
		grace = time.Duration(*s.TerminationGrace)
	}
	if time.Duration(h.Sleep) > grace {
		c.add(p+".sleep", "raise terminationGrace", "%s is longer than terminationGrace, %s, in which the program must end, too", h.Sleep, grace)
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
	if path.IsAbs(sub) || path.Clean(sub) != sub || sub == "." || sub == ".." || strings.HasPrefix(sub, "../") || strings.ContainsRune(sub, 0) ||
		len(sub) > MaxSubPath {
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
func (s *ServiceSpec) HookOf(container string) *Hook {
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
