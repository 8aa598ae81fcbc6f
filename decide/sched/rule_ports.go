package sched

import (
	"fmt"
	"math/bits"
	"strings"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// HostPorts rules out workers on which a port asked for is taken.
type HostPorts struct{}

func (HostPorts) Name() string { return "host-ports" }

func (HostPorts) Lasting() bool { return false }

func (HostPorts) For(q *Query) Check {
	c := &hostPorts{s: q.Site}
	for _, p := range q.Spec.Ports {
		if p.HostPort > 0 {
			c.keys, c.ports = append(c.keys, PortKey(p)), append(c.ports, p.HostPort)
		}
	}
	if len(c.keys) == 0 {
		return nil
	}
	return c
}

// PortKey names a host port: of all addresses of the worker, or of one.
func PortKey(p spec.Port) string {
	if p.HostAddress != "" {
		return fmt.Sprintf("%s/%d@%s", p.Proto(), p.HostPort, p.HostAddress)
	}
	return fmt.Sprintf("%s/%d", p.Proto(), p.HostPort)
}

// portTaken reports whether a port is taken: the same one, or one of the same number at all addresses.
func portTaken(taken map[string]bool, key string) bool {
	all, _, one := strings.Cut(key, "@")
	if taken[all] || one {
		return taken[all] || taken[key]
	}
	for other := range taken {
		if strings.HasPrefix(other, key+"@") {
			return true
		}
	}
	return false
}

type hostPorts struct {
	s     *Site
	keys  []string
	ports []int
}

func (c *hostPorts) Impossible(*summary) bool { return false }

func (c *hostPorts) Keep(b int, mask uint64) uint64 {
	for left := mask; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		if c.taken(b*64+i) != 0 {
			mask &^= 1 << i
		}
	}
	return mask
}

// taken gives a port asked for that is taken, or 0.
func (c *hostPorts) taken(n int) int {
	if x := c.s.more[n]; x != nil && len(x.ports) > 0 {
		for i, k := range c.keys {
			if portTaken(x.ports, k) {
				return c.ports[i]
			}
		}
	}
	return 0
}

func (c *hostPorts) Miss(int) (string, float64) { return "hostPort", 1 }

func (c *hostPorts) Reason(n int) wire.Reason {
	return wire.Reason{What: "hostPort", Text: fmt.Sprintf("host port %d is taken", c.taken(n)),
		Hint: "choose another port, or hostPort: -1 to let the worker choose"}
}
