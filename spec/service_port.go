package spec

import "fmt"

// ServicePortsOf lists a service's ports with a servicePort.
func ServicePortsOf(s *ServiceSpec) (out []Port) {
	for _, port := range s.Ports {
		if port.ServicePort != 0 {
			out = append(out, port)
		}
	}
	return out
}

// servicePort checks that of a service's port of that index.
func (c *checker) servicePort(p string, s *ServiceSpec, index int) {
	port := s.Ports[index]
	if port.ServicePort == 0 {
		return
	}
	c.between(p, port.ServicePort, 1, 65535)
	if port.Proto() != "tcp" && port.Proto() != "udp" {
		c.add(p, "list one port for tcp and one for udp", "only ports of tcp and udp are translated, not %s", port.Proto())
	}
	for i, other := range s.Ports {
		if other.Proto() != port.Proto() && other.Proto() != "any" {
			continue
		}
		if other.Port == port.ServicePort {
			c.add(p, "leave it out where both are the same", "the service listens at port %d itself", other.Port)
		}
		if i < index && other.ServicePort == port.ServicePort {
			c.add(p, "", "service port %d is used twice", port.ServicePort)
		}
	}
}

// servicePortLack says where a service asks for a translation of ports, for the table of what runtimes do not do.
func servicePortLack(s *ServiceSpec) string {
	for i := range s.Ports {
		if s.Ports[i].ServicePort != 0 {
			return fmt.Sprintf("ports[%d].servicePort", i)
		}
	}
	return ""
}
