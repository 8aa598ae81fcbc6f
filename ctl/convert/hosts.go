package convert

import (
	"fmt"
	"net/netip"
	"strings"

	"skerry.dev/skerry/spec"
)

// hostNames takes what a Compose service calls itself, and names that it finds in its hosts file.
func (conv *compose) hostNames(from *fields, svc *spec.ServiceSpec) {
	host, domain := from.text("hostname", ""), from.text("domainname", "")
	switch full := strings.ToLower(strings.Trim(host+"."+domain, ".")); {
	case full == "":
	case spec.CheckHost(full) != nil || strings.HasPrefix(full, "*") || len(full) > spec.MaxHostname:
		key := "hostname"
		if host == "" {
			key = "domainname"
		}
		from.refuse(key, "%q is not a host name", full)
	case host == "":
		from.approx("domainname", "left out: without hostname the name is that of the instance")
	default:
		svc.Hostname = full
		if domain != "" {
			from.approx("domainname", "hostname: %s", full)
		}
		from.kept("hostname", "hostname; others do not find it by that, as in Docker")
	}
	from.extraHosts(svc)
}

// extraHosts takes names that a container of Docker finds in its hosts file: name:address or name=address.
func (f *fields) extraHosts(svc *spec.ServiceSpec) {
	for i, line := range f.texts("extra_hosts", "") {
		at := fmt.Sprintf("extra_hosts[%d]", i)
		name, address, ok := strings.Cut(line, "=")
		if !ok {
			name, address, _ = strings.Cut(line, ":")
		}
		if address == "host-gateway" {
			f.approx(at, "left out: instances do not reach services of their worker's own; have %s be a service, or an address outside",
				name)
			continue
		}
		f.host(at, strings.Trim(address, "[]"), []string{name}, svc)
	}
}

// called takes what a group or a task of Nomad calls itself. The containers of an instance have one name.
func (conv *nomad) called(from *fields, svc *spec.ServiceSpec) {
	text := from.text("hostname", "")
	if text == "" {
		return
	}
	switch name := strings.ToLower(conv.known(from, "hostname", text)); {
	case spec.CheckHost(name) != nil || strings.HasPrefix(name, "*") || len(name) > spec.MaxHostname:
		from.refuse("hostname", "%q is not a host name", name)
	case svc.Hostname != "" && svc.Hostname != name:
		from.refuse("hostname", "the containers of an instance have one name, %s here", svc.Hostname)
	default:
		svc.Hostname = name
		from.kept("hostname", "hostname; others do not find it by that")
	}
}

// host adds a line to the hosts file.
func (f *fields) host(at, address string, names []string, svc *spec.ServiceSpec) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		f.refuse(at, "%q is not an address", address)
		return
	}
	for i := range names {
		names[i] = strings.ToLower(names[i])
		if spec.CheckHost(names[i]) != nil || strings.HasPrefix(names[i], "*") {
			f.refuse(at, "%q is not a host name", names[i])
			return
		}
	}
	f.kept(at, "extraHosts")
	svc.ExtraHosts = append(svc.ExtraHosts, spec.HostEntry{Address: ip, Names: names})
}

// hosts takes what pods call themselves, and names that they find in their hosts file.
func (it *pod) hosts() {
	if name := it.spec.text("hostname", ""); name != "" {
		it.load.svc.Hostname = name
		it.spec.kept("hostname", "hostname")
	}
	for _, entry := range it.spec.each("hostAliases") {
		address, names := entry.text("ip", ""), entry.texts("hostnames", "")
		entry.nothingLike(nil)
		entry.host("", address, names, &it.load.svc)
	}
}

// hostAddress takes the address at which alone a port is published, or "". It is not ok if there is none like it here: the port must not be
// published then, for without the address it would be open to more than it was.
func (f *fields) hostAddress(key string) (at string, ok bool) {
	text := f.text(key, "")
	if text == "" {
		return "", true
	}
	addr, err := netip.ParseAddr(text)
	switch addr = addr.Unmap(); {
	case err != nil:
		f.refuse(key, "%q is not an address; the port is not published", text)
		return "", false
	case addr.IsUnspecified():
		return "", true
	case addr.Is4():
		f.kept(key, "hostAddress")
		return addr.String(), true
	case addr.IsLoopback():
		f.approx(key, "hostAddress: 127.0.0.1; ports of workers are published at IPv4 addresses")
		return "127.0.0.1", true
	}
	f.refuse(key, "the port is not published: ports of workers are published at IPv4 addresses; give one as hostAddress")
	return "", false
}
