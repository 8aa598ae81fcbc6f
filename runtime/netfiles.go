package runtime

import (
	"fmt"
	"strings"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ResolvConf is the resolv.conf of an instance on a network.
func ResolvConf(a *wire.Attachment) string {
	var b strings.Builder
	for _, s := range a.DNS {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(a.Search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(a.Search, " "))
	}
	if len(a.DNS) > 0 {
		// The agent answers, and does not while it is started again, which takes a busy machine longer than the two tries of five
		// seconds after which libraries give up.
		b.WriteString("options timeout:5 attempts:4\n")
	}
	if b.Len() == 0 {
		return "# no name server is known on this worker\n"
	}
	return b.String()
}

// Hosts is the hosts file of an instance on a network, or on none: its own name, by its first label, too, and further lines.
func Hosts(a *wire.Attachment, hostname string, extra []spec.HostEntry) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
	if hostname != "" && a != nil {
		names := hostname
		if short, _, dotted := strings.Cut(hostname, "."); dotted {
			names += " " + short
		}
		for _, p := range a.Addresses {
			fmt.Fprintf(&b, "%s %s\n", p.Addr(), names)
		}
	}
	return HostLines(b.String(), extra)
}

// HostLines adds lines to a hosts file.
func HostLines(file string, extra []spec.HostEntry) string {
	var b strings.Builder
	b.WriteString(file)
	if file != "" && !strings.HasSuffix(file, "\n") {
		b.WriteByte('\n')
	}
	for _, entry := range extra {
		fmt.Fprintf(&b, "%s %s\n", entry.Address, strings.Join(entry.Names, " "))
	}
	return b.String()
}
