package runtime

import (
	"fmt"
	"strings"

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

// Hosts is the hosts file of an instance on a network.
func Hosts(a *wire.Attachment, hostname string) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
	if hostname != "" {
		for _, p := range a.Addresses {
			fmt.Fprintf(&b, "%s %s\n", p.Addr(), hostname)
		}
	}
	return b.String()
}
