package spec

import (
	"fmt"
	"net/netip"
	"strings"
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
