package spec

import (
	"fmt"
	"slices"

	"skerry.dev/skerry"
)

// MaxAliases bounds the further names of a service.
const MaxAliases = 20

// Alias is a name that leads to the instances of all services of an application that have it.
type Alias struct {
	Name     string
	Services []*ServiceSpec // in the order of the manifest
}

// Aliases lists the further names of an application's services, in the order of the manifest.
func (s *ApplicationSpec) Aliases() (out []Alias) {
	for i := range s.Services {
		for _, name := range s.Services[i].Aliases {
			at := slices.IndexFunc(out, func(a Alias) bool { return a.Name == name })
			if at < 0 {
				at, out = len(out), append(out, Alias{Name: name})
			}
			if !slices.Contains(out[at].Services, &s.Services[i]) {
				out[at].Services = append(out[at].Services, &s.Services[i])
			}
		}
	}
	return out
}

// Alias finds an alias by name, or gives nil.
func (s *ApplicationSpec) Alias(name string) *Alias {
	for _, alias := range s.Aliases() {
		if alias.Name == name {
			return &alias
		}
	}
	return nil
}

// Reached lists the ports of all services that have an alias, each once.
func (a *Alias) Reached() (out []Port) {
	names := map[string]bool{}
	for _, service := range a.Services {
		for _, port := range service.Ports {
			if !names[port.PortName()] {
				names[port.PortName()] = true
				out = append(out, port)
			}
		}
	}
	return out
}

// NeedAliases notes in each service of an application with aliases that its worker must know them: any of them may ask for one.
func (s *ApplicationSpec) NeedAliases() {
	var needs []string
	if len(s.Aliases()) > 0 {
		needs = []string{FeatureAliases}
	}
	for i := range s.Services {
		s.Services[i].Needs = needs
	}
}

// aliases checks the further names of an application's services, and the ways in that lead to them.
func (check *checker) aliases(app *ApplicationSpec) {
	for index := range app.Services {
		service := &app.Services[index]
		at := fmt.Sprintf("spec.services[%d]", index)
		check.atMost(at+".aliases", len(service.Aliases), MaxAliases)
		if len(service.Aliases) > 0 && service.Sleeps() {
			check.add(at+".aliases", "give it scale.min: 1",
				"the service may have no instance (scale.min: 0), and only what comes by its ingress wakes it")
		}
		for j, name := range service.Aliases {
			here := fmt.Sprintf("%s.aliases[%d]", at, j)
			check.name(here, name)
			switch {
			case slices.Contains(Balances(), Balance(name)):
				check.add(here, "", "%q is the name of a policy", name)
			case app.Service(name) != nil:
				check.add(here, "an alias is a name that no service has", "there is a service %q", name)
			case slices.Index(service.Aliases, name) < j:
				check.add(here, "", "the service has alias %q twice", name)
			}
		}
		for j := range service.Ingress {
			check.aliasIngress(fmt.Sprintf("%s.ingress[%d].alias", at, j), &service.Ingress[j], service, app)
		}
	}
}

// aliasIngress checks that a way in to an alias reaches a port of each of its services.
func (c *checker) aliasIngress(at string, way *Ingress, service *ServiceSpec, app *ApplicationSpec) {
	if way.Alias == "" {
		return
	}
	if !slices.Contains(service.Aliases, way.Alias) {
		c.add(at, "aliases are listed under the service's aliases", "the service has no alias %q", way.Alias)
		return
	}
	port, ok := way.Port.Find(service.Ports)
	if !ok {
		return // which has its own problem
	}
	var all [][]Port
	for _, other := range app.Alias(way.Alias).Services {
		all = append(all, other.Ports)
	}
	if CommonPort(port, all...) == 0 {
		c.add(at, "servicePort gives a service another one", "the services with alias %q are not all reached at the same port", way.Alias)
	}
}

// CommonPort gives the number at which several services are reached, each with its ports, by a port of one of them; 0: there is none.
func CommonPort(port Port, services ...[]Port) int {
	for _, number := range []int{port.Port, port.ServicePort} {
		all := number != 0
		for _, ports := range services {
			all = all && slices.ContainsFunc(ports, func(q Port) bool {
				return q.carries("tcp") && (q.Port == number || q.ServicePort == number)
			})
		}
		if all {
			return number
		}
	}
	return 0
}

// Leads gives the keys of its services, in an application.
func (a *Alias) Leads(app skerry.AppKey) (out []skerry.ServiceKey) {
	for _, service := range a.Services {
		out = append(out, skerry.ServiceKey{App: app, Service: service.Name})
	}
	return out
}
