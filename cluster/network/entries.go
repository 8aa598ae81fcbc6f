package network

import (
	"fmt"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// AppIngress is a way in that an application asks for.
type AppIngress struct {
	App     skerry.AppKey
	Org     string
	Service string
	spec.Ingress

	entry string
	order uint64 // who came first
}

// String describes an entry for people.
func (d *AppIngress) String() string {
	host := d.Host
	if host == "" {
		host = "*"
	}
	return fmt.Sprintf("%s:%d%s", host, d.Listen, d.Path)
}

// entryJudge holds the entries that are taken.
type entryJudge struct {
	entries map[string]*AppIngress
	ports   map[int]*AppIngress
	hosts   map[string]*AppIngress // by port and host, for what all paths of a host share
	names   map[int][]*AppIngress  // hosts by port, one each
}

func newEntryJudge() *entryJudge {
	return &entryJudge{entries: map[string]*AppIngress{}, ports: map[int]*AppIngress{},
		hosts: map[string]*AppIngress{}, names: map[int][]*AppIngress{}}
}

// take gives an entry to who asks for it, or the reason for not doing so.
func (j *entryJudge) take(asked *AppIngress) string {
	whose := func(other *AppIngress) string {
		if other.Org == asked.Org {
			return "application " + other.App.String()
		}
		return "another organisation"
	}
	if other := j.entries[asked.entry]; other != nil {
		return "the same host, path and port lead to a service of " + whose(other) + " already"
	}
	if other := j.ports[asked.Listen]; other != nil && (other.Protocol != asked.Protocol || other.EncryptedName() != asked.EncryptedName()) {
		return fmt.Sprintf("port %d is used in another way (%s) by %s", asked.Listen, kindOf(other), whose(other))
	}
	host := fmt.Sprint(asked.Listen, " ", asked.Host)
	other := j.hosts[host]
	if other != nil && (other.TLS != asked.TLS || other.Org != asked.Org && asked.TLS.Named()) {
		return fmt.Sprintf("the host has another certificate on port %d, of %s", asked.Listen, whose(other))
	}
	// Paths below a host of somebody else's would get what its users send there.
	if asked.Host != "" {
		for _, other := range j.names[asked.Listen] {
			if other.Org != asked.Org && other.Host != "" && overlap(other.Host, asked.Host) {
				if other.Host != asked.Host { // whose name is the other's affair
					return fmt.Sprintf("host %s has names in common with a host of another organisation on port %d", asked.Host, asked.Listen)
				}
				return fmt.Sprintf("host %s belongs to another organisation on port %d", asked.Host, asked.Listen)
			}
		}
	}
	j.entries[asked.entry] = asked
	if j.ports[asked.Listen] == nil {
		j.ports[asked.Listen] = asked
	}
	if other == nil {
		j.hosts[host] = asked
		j.names[asked.Listen] = append(j.names[asked.Listen], asked)
	}
	return ""
}

func kindOf(a *AppIngress) string {
	if a.EncryptedName() {
		return a.Protocol + " with TLS"
	}
	return a.Protocol + " without TLS"
}

// overlap reports whether two hosts, either of which may be *.DOMAIN, have a name in common.
func overlap(a, b string) bool {
	covers := func(wild, name string) bool {
		domain, ok := strings.CutPrefix(wild, "*.")
		_, up, _ := strings.Cut(name, ".")
		return ok && up == domain
	}
	return a == b || covers(a, b) || covers(b, a)
}
