package convert

import (
	"reflect"
	"slices"

	"skerry.dev/skerry/spec"
)

// sharer is a service that mounts a named volume, or a directory of this machine, with the name that it has for it.
type sharer struct{ service, volume string }

// together makes services that share a volume one: a volume belongs to one service, whose containers share it. The others become its
// sidecars, or init containers where it waits for their success, and it answers to their names. What cannot be one is left, and refused
// with the volume.
func (conv *compose) together() {
	for _, group := range conv.groups() {
		main := conv.principal(group)
		if main == nil {
			continue
		}
		left := main.Name // main is a place in the list, and the list is to be shorter
		for _, name := range group {
			if name != left {
				conv.join(main, name)
			}
		}
		conv.App.Spec.Services = slices.DeleteFunc(conv.App.Spec.Services, func(s spec.ServiceSpec) bool {
			return s.Name != left && slices.Contains(group, s.Name)
		})
	}
}

// groups lists the services that share volumes, by their names, in the order of the file.
func (conv *compose) groups() (out [][]string) {
	of := map[string]string{} // the first of its group
	var find func(name string) string
	find = func(name string) string {
		if up := of[name]; up != "" && up != name {
			return find(up)
		}
		return name
	}
	for _, list := range conv.volumes {
		for _, other := range list[1:] {
			a, b := find(list[0].service), find(other.service)
			if a != b {
				of[max(a, b)] = min(a, b)
			}
		}
	}
	at := map[string]int{}
	for i := range conv.App.Spec.Services {
		name := conv.App.Spec.Services[i].Name
		first := find(name)
		if _, known := at[first]; !known {
			at[first] = len(out)
			out = append(out, nil)
		}
		out[at[first]] = append(out[at[first]], name)
	}
	return slices.DeleteFunc(out, func(group []string) bool { return len(group) < 2 })
}

// principal chooses the service that the others of a group are beside: one that clients outside reach, else one that listens. It is nil
// where they cannot be one.
func (conv *compose) principal(group []string) (main *spec.ServiceSpec) {
	rank := func(s *spec.ServiceSpec) int {
		switch {
		case s.Mode != "":
			return 0
		case slices.ContainsFunc(s.Ports, func(p spec.Port) bool { return p.HostPort != 0 }):
			return 3
		case len(s.Ports) > 0:
			return 2
		}
		return 1
	}
	var all []*spec.ServiceSpec
	for _, name := range group {
		s := conv.App.Spec.Service(name)
		all = append(all, s)
		if rank(s) > 0 && (main == nil || rank(s) > rank(main)) {
			main = s
		}
	}
	if main == nil {
		return nil
	}
	ports, files, secrets := map[string]bool{}, map[string]string{}, 0
	for _, s := range all {
		init := s.Mode == spec.ModeJob && waitsFor(main, s.Name) && !conv.awaited(s.Name, group)
		if s.Mode != "" && !init || s.Replicas != nil || len(s.Devices)+len(s.Init) > 0 ||
			!reflect.DeepEqual(s.Placement, spec.Placement{}) {
			return nil
		}
		for _, port := range s.Ports {
			if ports[port.PortName()] {
				return nil // they would be in one network
			}
			ports[port.PortName()] = true
		}
		for _, file := range s.Config {
			if text, there := files[file.Path]; there && text != file.Content {
				return nil
			}
			files[file.Path] = file.Content
		}
		secrets += len(s.Secrets)
	}
	if secrets > 1 {
		return nil
	}
	return main
}

func waitsFor(s *spec.ServiceSpec, other string) bool {
	return slices.ContainsFunc(s.StartAfter, func(a spec.StartAfter) bool { return a.Service == other })
}

// awaited reports whether a service outside a group waits for another.
func (conv *compose) awaited(name string, group []string) bool {
	return slices.ContainsFunc(conv.App.Spec.Services, func(s spec.ServiceSpec) bool {
		return !slices.Contains(group, s.Name) && waitsFor(&s, name)
	})
}

// join puts a service beside another.
func (conv *compose) join(main *spec.ServiceSpec, name string) {
	side := conv.App.Spec.Service(name)
	one := spec.SideContainer{Name: side.Name, Container: side.Container, Resources: side.Resources}
	names := conv.joinVolumes(main, side)
	one.Mounts = slices.Clone(side.Mounts)
	for i := range one.Mounts {
		one.Mounts[i].Volume = names[one.Mounts[i].Volume]
	}
	at := "services." + conv.given(name)
	if side.Mode == spec.ModeJob {
		main.Init = append(main.Init, one)
		conv.add(at, Approximated, "an init container of %s, because they share a volume, and that waits for its success", main.Name)
	} else {
		main.Sidecars = append(main.Sidecars, one)
		main.Aliases = append(append(main.Aliases, name), side.Aliases...)
		conv.add(at, Approximated, "a sidecar of %s, because they share a volume: it starts before that, on the same worker, in the same "+
			"network, where only one of them listens at a port; %s answers to its name", main.Name, main.Name)
	}
	if side.Probes != (spec.Probes{}) {
		conv.add(at+".healthcheck", Approximated, "left out: probes are of the main container; a sidecar that ends is started again")
	}
	main.Ports = append(main.Ports, side.Ports...)
	for _, file := range side.Config {
		if !slices.Contains(main.Config, file) {
			main.Config = append(main.Config, file)
		}
	}
	main.Secrets = append(main.Secrets, side.Secrets...)
	main.ExtraHosts = append(main.ExtraHosts, side.ExtraHosts...)
	main.Links, main.StartAfter = append(main.Links, side.Links...), append(main.StartAfter, side.StartAfter...)
	if side.Egress == nil {
		main.Egress = nil
	}
	if side.Hostname != "" && side.Hostname != main.Hostname {
		conv.add(at+".hostname", Approximated, "left out: it has the name of %s", main.Name)
	}
	if side.TerminationGrace != nil && (main.TerminationGrace == nil || *side.TerminationGrace > *main.TerminationGrace) {
		main.TerminationGrace = side.TerminationGrace
	}
	for i := range conv.App.Spec.Services {
		redirect(&conv.App.Spec.Services[i], name, main.Name)
	}
	for source, list := range conv.volumes {
		for i := range list {
			if list[i].service == name {
				list[i].service = main.Name
			}
		}
		conv.volumes[source] = list
	}
}

// joinVolumes gives a service the volumes of another, and says by which names they are mounted there.
func (conv *compose) joinVolumes(main, side *spec.ServiceSpec) map[string]string {
	names := map[string]string{}
	for _, list := range conv.volumes {
		of := func(service string) int {
			return slices.IndexFunc(list, func(s sharer) bool { return s.service == service })
		}
		if a, b := of(main.Name), of(side.Name); a >= 0 && b >= 0 {
			names[list[b].volume] = list[a].volume
		}
	}
	for _, v := range side.Volumes {
		if names[v.Name] != "" {
			continue
		}
		was := v.Name
		for slices.ContainsFunc(main.Volumes, func(o spec.Volume) bool { return o.Name == v.Name }) {
			v.Name = Name(side.Name + "-" + v.Name)
		}
		names[was] = v.Name
		main.Volumes = append(main.Volumes, v)
		for source, list := range conv.volumes {
			for i := range list {
				if list[i] == (sharer{side.Name, was}) {
					conv.volumes[source][i].volume = v.Name
				}
			}
		}
	}
	return names
}

// redirect has a service talk to one in the place of another, and wait for it.
func redirect(service *spec.ServiceSpec, from, to string) {
	links, after := service.Links, service.StartAfter
	service.Links, service.StartAfter = nil, nil
	for _, link := range links {
		if link.Service == from {
			link.Service = to
		}
		if link.Service != service.Name && !slices.ContainsFunc(service.Links, func(l spec.Link) bool { return l.Service == link.Service }) {
			service.Links = append(service.Links, link)
		}
	}
	for _, one := range after {
		if one.Service == from {
			one.Service = to
		}
		if one.Service != service.Name && !waitsFor(service, one.Service) {
			service.StartAfter = append(service.StartAfter, one)
		}
	}
}

// given is the name that a service has in the file.
func (conv *compose) given(label string) string {
	for name, other := range conv.labels {
		if other == label {
			return name
		}
	}
	return label
}
