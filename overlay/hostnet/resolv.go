package hostnet

import (
	"cmp"
	"net/netip"
	"os"
	"strings"
)

// systemdResolv lists the servers behind the stub that systemd-resolved puts on 127.0.0.53.
const systemdResolv = "/run/systemd/resolve/resolv.conf"

// resolvers reads the host's name servers for its instances. Servers on the host's loopback cannot be reached from an
// instance: those of systemd-resolved are replaced by the servers behind it, others are left out. When none remains
// the list is empty; no public server is put in, because where names are looked up is not ours to decide.
func resolvers(file string) (servers []netip.Addr, search []string) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil
	}
	servers, search = parseResolvConf(string(data))
	all := len(servers)
	servers = reachable(servers)
	if len(servers) == 0 && all > 0 {
		if data, err := os.ReadFile(systemdResolv); err == nil {
			servers, _ = parseResolvConf(string(data))
			servers = reachable(servers)
		}
	}
	return servers, search
}

// Nameservers lists the name servers of the host itself, its loopback included; an empty file is /etc/resolv.conf.
func Nameservers(file string) []netip.Addr {
	data, err := os.ReadFile(cmp.Or(file, "/etc/resolv.conf"))
	if err != nil {
		return nil
	}
	servers, _ := parseResolvConf(string(data))
	return servers
}

func reachable(in []netip.Addr) (out []netip.Addr) {
	for _, a := range in {
		// Instances have no IPv6 route out.
		if a.Is4() && !a.IsLoopback() && !a.IsUnspecified() {
			out = append(out, a)
		}
	}
	return out
}

// parseResolvConf reads resolv.conf(5): at most 3 servers count there, and the last of several search lines.
func parseResolvConf(text string) (servers []netip.Addr, search []string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(f[1]); err == nil && len(servers) < 3 {
				servers = append(servers, a.Unmap())
			}
		case "search", "domain":
			search = nil
			for _, d := range f[1:] {
				if len(d) <= 253 && len(search) < 6 && strings.IndexFunc(d,
					func(r rune) bool { return r < '!' || r > '~' || r == '#' || r == ';' }) < 0 {
					search = append(search, d)
				}
			}
		}
	}
	return servers, search
}
