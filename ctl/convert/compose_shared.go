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
		conv.reorder(main, group)
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
	if conv.around(group) {
		return nil
	}
	ports, files, secrets := map[string]bool{}, map[string]spec.ConfigFile{}, 0
	for at, each := range all {
		init := each.Mode == spec.ModeJob && waitsFor(main, each.Name) && !conv.awaited(each.Name, group) &&
			waitsForJobs(each, all[:at], all)
		if each != main && each.Name == spec.MainContainer {
			return nil // two containers would be called so
		}
		if each.Mode != "" && !init || each.Replicas != nil || len(each.Devices)+len(each.Init) > 0 ||
			!reflect.DeepEqual(each.Placement, spec.Placement{}) {
			return nil
		}
		for _, port := range each.Ports {
			if ports[port.PortName()] {
				return nil // they would be in one network
			}
			ports[port.PortName()] = true
		}
		for _, file := range each.Config {
			if other, there := files[file.Path]; there && other != file {
				return nil
			}
			files[file.Path] = file
		}
		secrets += len(each.Secrets)
	}
	if secrets > 1 {
		return nil
	}
	return main
}

func waitsFor(s *spec.ServiceSpec, other string) bool {
	return slices.ContainsFunc(s.StartAfter, func(a spec.StartAfter) bool { return a.Service == other })
}

// waitsForJobs reports whether all of a group that a job waits for are jobs that run before it.
func waitsForJobs(job *spec.ServiceSpec, before, group []*spec.ServiceSpec) bool {
	for _, other := range group {
		if waitsFor(job, other.Name) && (other.Mode != spec.ModeJob || !slices.Contains(before, other)) {
			return false
		}
	}
	return true
}

// around reports whether services of a group wait for another one that waits for one of the group: made one, they would wait for
// themselves.
func (conv *compose) around(group []string) bool {
	seen := map[string]bool{}
	var back func(name string) bool
	back = func(name string) bool {
		service := conv.App.Spec.Service(name)
		if service == nil {
			return false
		}
		for _, after := range service.StartAfter {
			if slices.Contains(group, after.Service) {
				return true
			}
			if !seen[after.Service] {
				if seen[after.Service] = true; back(after.Service) {
					return true
				}
			}
		}
		return false
	}
	for _, name := range group {
		for _, after := range conv.App.Spec.Service(name).StartAfter {
			if !slices.Contains(group, after.Service) && back(after.Service) {
				return true
			}
		}
	}
	return false
}

// reorder says what becomes of the order within a group: sidecars start before the main container, and nobody waits for their checks.
func (conv *compose) reorder(main *spec.ServiceSpec, group []string) {
	for _, name := range group {
		s := conv.App.Spec.Service(name)
		for _, after := range s.StartAfter {
			at := "services." + conv.given(name) + ".depends_on." + conv.given(after.Service)
			switch other := conv.App.Spec.Service(after.Service); {
			case !slices.Contains(group, after.Service), other.Mode == spec.ModeJob: // an init container comes before all others
			case name != main.Name:
				conv.add(at, Approximated, "left out: the containers of an instance start together, sidecars before the main one")
			case after.Condition == spec.AfterReady:
				conv.add(at, Approximated, "it starts before, as a sidecar, and its check is not waited for")
			}
		}
	}
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
		if one.PostStart != nil {
			conv.add(at+".post_start", Approximated, "left out: an init container runs alone")
			one.PostStart = nil
		}
		if one.PreStop != nil {
			conv.add(at+".pre_stop", Approximated, "left out: an init container ends by itself")
			one.PreStop = nil
		}
		main.Init = append(main.Init, one)
		conv.add(at, Approximated, "an init container of %s, because they share a volume, and that waits for its success: it runs before "+
			"each start of an instance", main.Name)
	} else {
		main.Sidecars = append(main.Sidecars, one)
		for _, alias := range append([]string{name}, side.Aliases...) {
			if !slices.Contains(main.Aliases, alias) {
				main.Aliases = append(main.Aliases, alias)
			}
		}
		conv.add(at, Approximated, "a sidecar of %s, because they share a volume: it starts before that, on the same worker, in the same "+
			"network, where only one of them listens at a port; %s answers to its name", main.Name, main.Name)
	}
	if side.Probes != (spec.Probes{}) {
		conv.add(at+".healthcheck", Approximated, "left out: probes are of the main container; a sidecar that ends is started again")
	}
	conv.joinRest(main, side, at)
	main.Ports = append(main.Ports, side.Ports...)
	for _, file := range side.Config {
		if !slices.Contains(main.Config, file) {
			main.Config = append(main.Config, file)
		}
	}
	main.Secrets = append(main.Secrets, side.Secrets...)
	main.ExtraHosts = append(main.ExtraHosts, side.ExtraHosts...)
	main.Links, main.StartAfter = append(main.Links, side.Links...), append(main.StartAfter, side.StartAfter...)
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

// joinRest takes what one service has for all of its containers.
func (conv *compose) joinRest(main, side *spec.ServiceSpec, at string) {
	if side.Restart != (spec.RestartSpec{}) {
		conv.add(at+".restart", Approximated, "left out: a sidecar that ends is started again, whatever its status")
	}
	if side.Update != (spec.UpdateSpec{}) {
		conv.add(at+".deploy.update_config", Approximated, "left out: it is updated with %s", main.Name)
	}
	all := "services." + conv.given(main.Name)
	for _, one := range []struct {
		s    *spec.ServiceSpec
		at   string
		with string
	}{{main, all, side.Name}, {side, at, main.Name}} {
		if len(one.s.Config) > 0 {
			conv.add(one.at, Approximated, "its files of configs and binds are in the container %s, too", one.with)
		}
		if len(one.s.Secrets) > 0 {
			conv.add(one.at+".secrets", Approximated, "the container %s has them, too", one.with)
		}
	}
	switch {
	case side.Egress == nil && main.Egress != nil:
		main.Egress = nil
		conv.add(all+".networks", Approximated, "what is outside is reached: %s, beside it, does", side.Name)
	case side.Egress != nil && main.Egress == nil:
		conv.add(at+".networks", Approximated, "what is outside is reached: %s, beside it, does", main.Name)
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
		same := slices.IndexFunc(service.StartAfter, func(o spec.StartAfter) bool { return o.Service == one.Service })
		switch {
		case one.Service == service.Name:
		case same < 0:
			service.StartAfter = append(service.StartAfter, one)
		case one.Condition == spec.AfterReady: // which is further than running
			service.StartAfter[same] = one
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
