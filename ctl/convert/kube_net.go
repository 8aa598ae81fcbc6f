package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

// peer is a Service that leads to workloads.
type peer struct {
	object *object
	loads  []*workload
	name   string      // by which others ask for it here
	ports  map[int]int // those of the workloads, by those of the Service; where they differ, the Service's
	list   []int       // the same, in order
	names  []string    // those of the Service, in order
	// targets are those of each workload.
	targets map[*workload][]int
}

// services finds where Services lead, and has each workload named after one of them: that is the name by which others ask for it.
func (conv *kube) services() {
	leading, shared := map[*workload][]*peer{}, map[string]bool{}
	for _, obj := range conv.objects["Service"] {
		if obj.m == nil {
			continue
		}
		selector := textsAt(obj.m, "spec", "selector")
		loads := conv.matched(selector)
		kind := textAt(obj.m, "spec", "type")
		switch {
		case kind == "ExternalName":
			obj.refuse("spec.type", "a name outside has no other here: write %s where it is used", textAt(obj.m, "spec", "externalName"))
		case len(selector) == 0:
			obj.refuse("spec.selector", "there is none, and addresses outside have no name of a service")
		case len(loads) == 0:
			obj.refuse("spec.selector", "it leads to no workload of these files")
		case len(loads) > 1 && (Name(obj.name) != obj.name || slices.Contains(spec.Balances(), spec.Balance(obj.name))):
			obj.refuse("metadata.name", "it leads to %s and %s, and cannot be the name of both", loads[0].object.name, loads[1].object.name)
		default:
			one := &peer{object: obj, loads: loads, ports: map[int]int{}, targets: map[*workload][]int{}}
			one.look()
			obj.labels = loads[0].labels
			conv.peers[obj.name] = one
			if len(loads) == 1 {
				leading[loads[0]] = append(leading[loads[0]], one)
			} else {
				shared[obj.name] = true
			}
			continue
		}
		obj.m = nil
	}
	conv.nameWorkloads(leading, shared)
	conv.namePeers()
	conv.hostsPattern()
}

// look finds the ports of a Service, and those of the workload to which they lead.
func (one *peer) look() {
	of, _ := one.object.m["spec"].(map[string]any)
	ports, _ := of["ports"].([]any)
	for _, each := range ports {
		port, _ := each.(map[string]any)
		number, _ := strconv.Atoi(textAt(port, "port"))
		text := textAt(port, "targetPort")
		target := one.loads[0].target(text, number)
		for _, load := range one.loads {
			own := load.target(text, number)
			one.targets[load] = append(one.targets[load], own)
			if own != target {
				target = number // each is reached there by a port of its own
			}
		}
		one.ports[number] = target
		one.list, one.names = append(one.list, target), append(one.names, textAt(port, "name"))
	}
}

// target gives the port of the workload that a Service means; 0: there is none of that name.
func (load *workload) target(text string, port int) int {
	if text == "" || text == "0" {
		return port
	}
	if number, err := strconv.Atoi(text); err == nil {
		return number
	}
	for _, named := range load.ports {
		if named.name == text {
			return named.number
		}
	}
	return 0
}

// outsideName is a name of a Service in the DNS of Kubernetes.
var outsideName = late(`\b[a-z0-9-]+\.[a-z0-9-]+\.svc(\.cluster\.local)?\b`)

// peersIn writes in a text the names of Services as Skerry's resolver knows them, with the ports that instances have: a name in its
// long form is not answered, and an address leads to the port that was asked for.
func (conv *kube) peersIn(at *fields, key, text string) string {
	out := text
	if conv.hosts != nil {
		var parts strings.Builder
		last := 0
		for _, match := range conv.hosts.FindAllStringSubmatchIndex(text, -1) {
			if match[0] > 0 && strings.ContainsRune(hostLetters, rune(text[match[0]-1])) {
				continue
			}
			end := match[1]
			if end < len(text) && (strings.ContainsRune(nameLetters, rune(text[end])) ||
				text[end] == '.' && end+1 < len(text) && strings.ContainsRune(nameLetters, rune(text[end+1]))) {
				continue
			}
			group := func(n int) string {
				if match[2*n] < 0 {
					return ""
				}
				return text[match[2*n]:match[2*n+1]]
			}
			parts.WriteString(text[last:match[0]])
			if name := conv.peers[group(4)].name; name != group(4) && group(1)+group(5)+group(6) == "" {
				at.approx(key, "if %s is the Service of that name, write %s", group(4), name) // or it is any word
				parts.WriteString(text[match[0]:match[1]])
			} else {
				parts.WriteString(conv.peerName(group))
			}
			last = match[1]
		}
		parts.WriteString(text[last:])
		out = parts.String()
	}
	if out != text {
		at.approx(key, "names of services and their ports are written as they are here")
	}
	if name := outsideName().FindString(out); name != "" {
		at.approx(key, "%s is not of these files: Skerry does not answer that name; export the service from its application", name)
	}
	return out
}

const (
	nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	hostLetters = nameLetters + "."
)

// peerName writes what was found: a scheme, a pod's workload and number, the Service, its namespace, and a port.
func (conv *kube) peerName(group func(int) string) string {
	scheme, pod, number, name, long, port := group(1), group(2), group(3), group(4), group(5), group(6)
	one := conv.peers[name]
	host := one.name
	of := slices.IndexFunc(one.loads, func(load *workload) bool { return load.object.name == pod })
	switch {
	case number != "" && of >= 0:
		host = number + "." + one.loads[of].svc.Name
	case number != "":
		host = pod + "-" + number + "." + name + long
	}
	asked, _ := strconv.Atoi(port)
	standard := map[string]int{"http:": 80, "https": 443}[scheme[:min(5, len(scheme))]]
	switch target := one.ports[asked]; {
	case port != "" && target > 0:
		port = ":" + strconv.Itoa(target)
	case port != "":
		port = ":" + port
	case scheme != "" && one.ports[standard] > 0 && one.ports[standard] != standard:
		port = ":" + strconv.Itoa(one.ports[standard])
	}
	return scheme + host + port
}

// kubeServiceLeft are fields of a Service that need no counterpart.
var kubeServiceLeft = map[string]string{
	"clusterIPs": "left out: addresses are given by Skerry", "ipFamilies": "left out: services have both",
	"ipFamilyPolicy": "left out: services have both", "loadBalancerIP": "left out: workers have their own addresses",
	"loadBalancerClass": "left out: the workers themselves are the ingress", "healthCheckNodePort": "left out: nothing asks it",
	"externalTrafficPolicy":         "left out: a worker passes requests on to the instance that ingress.policy says",
	"internalTrafficPolicy":         "left out: closest.NAME leads to an instance on the same worker, if there is one",
	"publishNotReadyAddresses":      "left out: a service's address leads to ready instances; those by number lead to any",
	"trafficDistribution":           "left out: closest.NAME leads to the closest instance",
	"allocateLoadBalancerNodePorts": "left out: an ingress has one port",
	"sessionAffinityConfig":         "left out: a connection stays with its instance",
}

// published takes how Services are reached: by their names, and from outside.
func (conv *kube) published() {
	for _, obj := range conv.objects["Service"] {
		one := conv.peers[obj.name]
		if obj.m == nil || one == nil {
			continue
		}
		svc, from := &one.loads[0].svc, obj.sub("spec")
		from.take("selector")
		var of []string
		for _, load := range one.loads {
			of = append(of, load.svc.Name)
		}
		switch from.kept("selector", "the service %s", strings.Join(of, " and ")); {
		case slices.Contains(svc.Aliases, obj.name):
			obj.kept("metadata.name", "aliases of %s", strings.Join(of, " and "))
		case svc.Name != obj.name:
			obj.approx("metadata.name", "who asks for %s must ask for %s", obj.name, svc.Name)
		}
		if ip := from.text("clusterIP", ""); ip == "None" {
			from.approx("clusterIP", "%s leads to the instances in turn, 0.%s to one of them", one.name, svc.Name)
		} else if ip != "" {
			from.approx("clusterIP", "left out: addresses are given by Skerry")
		}
		if affinity := from.text("sessionAffinity", ""); affinity == "None" {
			from.kept("sessionAffinity", "as always")
		} else if affinity != "" {
			from.approx("sessionAffinity", "left out: a connection stays with its instance, a client need not")
		}
		kind := from.text("type", "")
		for _, port := range from.each("ports") {
			conv.servicePort(one, port, kind)
		}
		if kind != "" {
			from.kept("type", "ports")
		}
		from.leave(kubeServiceLeft)
		from.nothingLike(map[string]string{"loadBalancerSourceRanges": "an ingress is open to every client",
			"externalIPs": "workers have their own addresses"})
	}
}

// reachedAt has a port be reached at another one, too, and says whether it can: a port has one other, at which nothing of the workload
// listens, and the kernel of a sandbox or a machine translates none.
func (conv *kube) reachedAt(load *workload, ref spec.PortRef, number int) bool {
	ports := load.svc.Ports
	at := slices.IndexFunc(ports, func(p spec.Port) bool { return p.PortName() == string(ref) })
	taken := slices.ContainsFunc(load.ports, func(p kubePort) bool { return p.number == number })
	for _, one := range conv.peers { // those of Services that are still to come, too
		taken = taken || slices.Contains(one.targets[load], number)
	}
	if at < 0 || taken || ports[at].ServicePort != 0 && ports[at].ServicePort != number || number < 1 || number > 65535 ||
		ports[at].Proto() != "tcp" && ports[at].Proto() != "udp" || load.svc.Isolation != "" {
		return false
	}
	for i, other := range ports {
		if other.Proto() == ports[at].Proto() && (other.Port == number || i != at && other.ServicePort == number) {
			return false
		}
	}
	ports[at].ServicePort = number
	return true
}

func (conv *kube) servicePort(one *peer, from *fields, kind string) {
	number, name := from.number("port", ""), from.text("name", "")
	protocol := strings.ToLower(from.text("protocol", ""))
	text, nodePort := from.text("targetPort", ""), from.number("nodePort", "")
	from.without("appProtocol", "left out: an ingress says what it speaks")
	from.nothingLike(nil)
	if number == nil {
		from.refuse("port", "there is none")
		return
	}
	ref, ok := conv.listenAt(one, from, name, text, protocol, *number)
	if !ok {
		return
	}
	if name != "" && string(ref) != Name(name) {
		from.approx("name", "the port is called %s", ref)
	}
	publish := func(host int) {
		for _, load := range one.loads {
			load.listen(name, load.target(text, *number), host, protocol)
		}
	}
	listen := 0
	switch {
	case kind == "LoadBalancer":
		listen = *number
	case kind == "NodePort" && nodePort != nil:
		listen = *nodePort
	case kind == "NodePort":
		publish(-1)
		from.approx("nodePort", "ports, with a hostPort that each worker chooses for its instance")
		return
	default:
		if nodePort != nil {
			from.approx("nodePort", "left out: it is not of type NodePort")
		}
		return
	}
	if kind == "LoadBalancer" && nodePort != nil {
		from.approx("nodePort", "left out: an ingress has one port")
	}
	if protocol != "" && protocol != "tcp" {
		publish(listen)
		from.approx("protocol", "ports, with hostPort: each worker with an instance has the port")
		return
	}
	if other := conv.entries[listen]; other != "" {
		publish(-1)
		from.approx("port", "ports, with a hostPort that each worker chooses: its ingress has port %d for %s", listen, other)
		return
	}
	conv.entries[listen] = one.name
	ingress := spec.Ingress{Port: ref, Protocol: spec.IngressTCP, Listen: listen}
	if listen == 80 {
		ingress = spec.Ingress{Port: ref}
		from.approx("port", "ingress, at port 80 of every worker that has one, as HTTP; give it a host if others are there, too")
	} else {
		from.approx("port", "ingress, at port %d of every worker that has one", listen)
	}
	if why := one.enter(ingress); why != "" {
		from.refuse("type", "%s", why)
	}
}

// listenAt has the workloads of a Service listen at a port that others reach at a number, and gives the port of the first one.
func (conv *kube) listenAt(one *peer, from *fields, name, text, protocol string, number int) (ref spec.PortRef, ok bool) {
	targets := map[int]bool{}
	kept := true
	for _, load := range slices.Backward(one.loads) {
		target := load.target(text, number)
		if target == 0 {
			from.refuse("targetPort", "no container of %s has a port %q", load.object.name, text)
			return "", false
		}
		targets[target] = true
		ref = load.listen(name, target, 0, protocol)
		kept = (target == number || conv.reachedAt(load, ref, number)) && kept
	}
	target := one.ports[number]
	switch {
	case kept && target == number && len(targets) == 1:
		from.kept("", "ports")
	case kept:
		from.kept("", "ports: servicePort")
	case len(targets) > 1:
		from.refuse("targetPort", "its workloads listen at different ports, and cannot all be reached at %d", number)
		return "", false
	default:
		from.approx("", "%s listens at %d: who asks for port %d must ask for that; where these files do, they do now", one.name, target,
			number)
	}
	return ref, true
}

// enter has clients outside reach what a Service leads to. It gives the reason why they cannot.
func (one *peer) enter(way spec.Ingress) (why string) {
	first := &one.loads[0].svc
	if len(one.loads) > 1 {
		way.Alias = one.name
		port, _ := way.Port.Find(first.Ports)
		var all [][]spec.Port
		for _, load := range one.loads {
			all = append(all, load.svc.Ports)
		}
		if spec.CommonPort(port, all...) == 0 {
			return "its workloads are not all reached at the same port"
		}
	}
	first.Ingress = append(first.Ingress, way)
	return ""
}

// ingress takes an Ingress.
func (conv *kube) ingress(obj *object) {
	from := obj.sub("spec")
	from.without("ingressClassName", "left out: the workers themselves are the ingress")
	certificates := map[string]spec.IngressTLS{}
	for _, tls := range from.each("tls") {
		secret := tls.text("secretName", "")
		hosts := tls.texts("hosts", "")
		certificate := spec.IngressTLS(Name(secret))
		if certificate == "" {
			certificate = spec.TLSSelf
			tls.approx("", "ingress.tls: self, a certificate of the site's own authority")
		} else {
			tls.approx("", "ingress.tls: upload it before: skerry certificate put %s --cert FILE --key FILE", certificate)
		}
		if obj := conv.find("Secret", secret); obj != nil {
			obj.used = true
		}
		for _, host := range hosts {
			certificates[host] = certificate
		}
		tls.nothingLike(nil)
	}
	if backend := from.sub("defaultBackend"); backend.m != nil {
		conv.backend(backend, spec.Ingress{})
	}
	for _, rule := range from.each("rules") {
		host := rule.text("host", "")
		for _, entry := range rule.sub("http").each("paths") {
			path := entry.text("path", "")
			switch kind := entry.text("pathType", ""); {
			case strings.HasSuffix(path, "/*") && !strings.ContainsAny(path[:len(path)-2], "()*[]|$^?"):
				path = path[:len(path)-2]
				entry.approx("path", "ingress.path: a prefix")
			case strings.ContainsAny(path, "()*[]|$^?"):
				entry.refuse("path", "a path is a prefix, not an expression")
			case kind == "Exact":
				entry.approx("pathType", "ingress.path: a prefix; paths below it are served, too")
			case kind != "" && kind != "Prefix" && kind != "ImplementationSpecific":
				entry.refuse("pathType", "%q is no such type", kind)
			}
			path = strings.TrimSuffix(path, "/")
			conv.backend(entry.sub("backend"), spec.Ingress{Host: host, Path: path, TLS: certificates[host]})
			entry.kept("", "ingress")
			entry.nothingLike(nil)
		}
		rule.nothingLike(nil)
	}
	from.nothingLike(nil)
}

// backend has a workload served at an ingress.
func (conv *kube) backend(from *fields, way spec.Ingress) {
	to := from.sub("service")
	name, port := to.text("name", ""), to.sub("port")
	number, text := port.number("number", ""), port.text("name", "")
	if number != nil && text != "" {
		port.refuse("name", "it is given by its number already")
	}
	port.nothingLike(nil)
	to.nothingLike(nil)
	from.nothingLike(nil)
	one := conv.peers[name]
	if one == nil {
		from.refuse("", "there is no Service %q in these files", name)
		return
	}
	target := 0
	if number != nil {
		target = one.ports[*number]
	}
	for i, named := range one.names {
		if text != "" && number == nil && named == text {
			target = one.list[i]
		}
	}
	if target == 0 {
		from.refuse("service.port", "the Service %s has no such port", name)
		return
	}
	for _, load := range slices.Backward(one.loads) {
		at := slices.IndexFunc(load.svc.Ports, func(p spec.Port) bool { return len(one.loads) > 1 && p.ServicePort == target })
		if at >= 0 {
			way.Port = spec.PortRef(load.svc.Ports[at].PortName())
		} else {
			way.Port = load.listen("", target, 0, "")
		}
	}
	if why := one.enter(way); why != "" {
		from.refuse("service", "%s", why)
	}
}

// policy takes a NetworkPolicy. Here all services of an application reach each other, and nobody else without an export.
func (conv *kube) policy(obj *object) {
	from := obj.sub("spec")
	selector := from.sub("podSelector")
	labels := selector.pairs("matchLabels", "")
	loads := conv.matched(labels)
	if len(labels) == 0 && selector.m["matchExpressions"] == nil {
		loads = conv.workloads
	}
	said := !empty(selector.m["matchExpressions"])
	selector.without("matchExpressions", "left out: services are chosen by labels that they have")
	selector.nothingLike(nil)
	types := from.texts("policyTypes", "")
	if from.has("ingress") || slices.Contains(types, "Ingress") || len(types) == 0 {
		from.take("ingress")
		from.approx("ingress", "left out: services of an application reach each other, others only with an export; put what must be apart "+
			"into applications of its own")
	}
	if from.m["egress"] != nil || slices.Contains(types, "Egress") {
		egress := conv.egress(from)
		switch {
		case len(loads) > 0:
			from.kept("egress", "egress")
		case said:
			from.refuse("podSelector", "services are chosen by labels that they have, and none of these files would keep to the policy")
		default:
			from.approx("egress", "left out: no workload of these files has the labels")
		}
		for _, load := range loads {
			if load.svc.Egress == nil {
				load.svc.Egress = &spec.Egress{}
			}
			load.svc.Egress.Allow = append(load.svc.Egress.Allow, egress.Allow...) // each policy allows more
		}
	}
	from.nothingLike(nil)
}

// egress takes where pods may go.
func (conv *kube) egress(from *fields) *spec.Egress {
	out := &spec.Egress{}
	for _, rule := range from.each("egress") {
		var ports []spec.EgressPort
		for _, port := range rule.each("ports") {
			number, protocol := port.number("port", ""), strings.ToLower(port.text("protocol", ""))
			if port.nothingLike(nil); number == nil {
				port.refuse("", "a number is needed")
				continue
			}
			if protocol == "tcp" {
				protocol = ""
			}
			ports = append(ports, spec.EgressPort{Port: *number, Protocol: protocol})
		}
		to := rule.each("to")
		if len(to) == 0 {
			for _, everywhere := range []string{"0.0.0.0/0", "::/0"} {
				out.Allow = append(out.Allow, spec.EgressRule{CIDR: netip.MustParsePrefix(everywhere), Ports: ports})
			}
		}
		for _, target := range to {
			block := target.sub("ipBlock")
			if block.m == nil {
				target.approx("", "left out: services of an application reach each other, and its resolver")
				continue
			}
			cidr, err := netip.ParsePrefix(block.text("cidr", "egress.allow"))
			if err != nil {
				block.refuse("cidr", "it is no network")
				continue
			}
			one := spec.EgressRule{CIDR: cidr, Ports: ports}
			for i, text := range block.texts("except", "egress.allow") {
				if except, err := netip.ParsePrefix(text); err == nil {
					one.Except = append(one.Except, except)
				} else {
					block.refuse(fmt.Sprintf("except[%d]", i), "it is no network")
				}
			}
			out.Allow = append(out.Allow, one)
			block.nothingLike(nil)
		}
		rule.nothingLike(nil)
	}
	return out
}
