package certs

import (
	"slices"

	"skerry.dev/skerry"
)

// noRoom is why a certificate that there is, is not served.
const noRoom = "its files, with the application's manifest and other certificates, are more than workers take of one application; name " +
	"*.DOMAIN in place of many hosts, or move hosts to another application"

// Leave takes for which hosts the workers get no certificate with an application, because there is no room for it; none: all are served.
// It gives those that are new.
func (c *Certs) Leave(app skerry.AppKey, hosts []string) (fresh []string) {
	was := c.left[app]
	if c.left[app] = hosts; len(hosts) == 0 {
		delete(c.left, app)
	}
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return slices.Contains(was, host) })
}

// leaves reports whether the certificate of a host is not served for some application.
func (c *Certs) leaves(host string) bool {
	for _, hosts := range c.left {
		if slices.Contains(hosts, host) {
			return true
		}
	}
	return false
}
