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
	return &entryJudge{entries: map[string]*AppIngress{}, ports: map[int]*AppIngress{}, hosts: map[string]*AppIngress{}, names: map[int][]*AppIngress{}}
}

// take gives an entry to who asks for it, or the reason for not doing so.
func (j *entryJudge) take(a *AppIngress) string {
	whose := func(o *AppIngress) string {
		if o.Org == a.Org {
			return "application " + o.App.String()
		}
		return "another organisation"
	}
	if o := j.entries[a.entry]; o != nil {
		return "the same host, path and port lead to a service of " + whose(o) + " already"
	}
	if o := j.ports[a.Listen]; o != nil && (o.Protocol != a.Protocol || o.EncryptedName() != a.EncryptedName()) {
		return fmt.Sprintf("port %d is used in another way (%s) by %s", a.Listen, kindOf(o), whose(o))
	}
	host := fmt.Sprint(a.Listen, " ", a.Host)
	o := j.hosts[host]
	if o != nil && (o.TLS != a.TLS || o.Org != a.Org && a.TLS != spec.TLSOff && a.TLS != spec.TLSSelf) {
		return fmt.Sprintf("the host has another certificate on port %d, of %s", a.Listen, whose(o))
	}
	// Paths below a host of somebody else's would get what its users send there.
	if a.Host != "" {
		for _, o := range j.names[a.Listen] {
			if o.Org != a.Org && o.Host != "" && overlap(o.Host, a.Host) {
				if o.Host != a.Host { // whose name is the other's affair
					return fmt.Sprintf("host %s has names in common with a host of another organisation on port %d", a.Host, a.Listen)
				}
				return fmt.Sprintf("host %s belongs to another organisation on port %d", a.Host, a.Listen)
			}
		}
	}
	j.entries[a.entry] = a
	if j.ports[a.Listen] == nil {
		j.ports[a.Listen] = a
	}
	if o == nil {
		j.hosts[host] = a
		j.names[a.Listen] = append(j.names[a.Listen], a)
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
