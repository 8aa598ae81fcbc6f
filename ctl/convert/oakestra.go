package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// oakestra is an SLA of Oakestra that is being converted.
type oakestra struct {
	*Result
	names map[string]string // of services here, by the names and IDs in the file
}

// Oakestra converts an SLA of Oakestra with one application.
func Oakestra(data []byte, opt Options) (*Result, error) {
	conv := &oakestra{Result: newResult(FormatOakestra), names: map[string]string{}}
	invalid := func(err error) error {
		return skerry.Errorf(skerry.CodeInvalid, "the SLA is not valid: %s", Shifted(err, 0))
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return nil, invalid(err)
	}
	text, err := sigsyaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, invalid(err)
	}
	top := newFields("", nil, conv.Result)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&top.m); err != nil || top.m == nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the SLA is not valid: it is not an object")
	}
	conv.sources = []source{{node: &tree}}
	if version := top.text("sla_version", "the version that is read"); !strings.HasPrefix(strings.TrimPrefix(version, "v"), "2") {
		top.refuse("sla_version", "it is %q; v2.0 is read", version)
	}
	top.without("customerID", "left out: skerry -n says in which namespace, and with that whose, the application is")
	top.without("args", "left out: Oakestra has no meaning for them either")
	for i, app := range top.each("applications") {
		if i > 0 {
			app.refuse("", "there is another application: a manifest has one, so put each into a file of its own")
			continue
		}
		conv.application(app, opt)
	}
	top.nothingLike(nil)
	return conv.Result, conv.finish()
}

func (conv *oakestra) application(from *fields, opt Options) {
	meta := &conv.App.Metadata
	if meta.Name = Name(from.text("application_name", "metadata.name")); opt.Name != "" {
		meta.Name = Name(opt.Name)
	}
	meta.Description = from.text("application_desc", "metadata.description")
	from.leave(map[string]string{
		"applicationID":         "left out: an application has its name",
		"application_namespace": "left out: skerry -n says in which namespace the application is",
	})
	services := from.each("microservices")
	for _, service := range services {
		name := textAt(service.m, "microservice_name")
		for _, known := range []string{name, textAt(service.m, "microserviceID")} {
			if known != "" {
				conv.names[known] = Name(name)
			}
		}
	}
	for _, service := range services {
		conv.App.Spec.Services = append(conv.App.Spec.Services, conv.service(service))
	}
	from.nothingLike(nil)
}

func (conv *oakestra) service(from *fields) spec.ServiceSpec {
	svc := spec.ServiceSpec{Name: Name(from.text("microservice_name", "name"))}
	from.leave(map[string]string{
		"microserviceID":         "left out: a service has its name",
		"microservice_namespace": "left out: a service is in the namespace of its application",
		"sla_violation_strategy": "left out: placement.rigidness says how soon a violation leads to another place",
	})
	svc.Image = from.text("code", "image")
	switch kind := from.text("virtualization", ""); kind {
	case "", "container", "docker":
		from.kept("virtualization", "as without it: a container")
	case "unikernel":
		svc.Runtime = spec.RuntimeUnikernel
		from.kept("virtualization", "runtime")
	case "vm":
		svc.Runtime = spec.RuntimeVM
		from.kept("virtualization", "runtime")
	default:
		from.refuse("virtualization", "%q is no runtime", kind)
	}
	if strings.Contains(svc.Image, "://") || strings.Contains(svc.Image, ",") {
		from.refuse("code", "an image is in a registry: skerry image build makes one of a kernel or program")
	}
	svc.Command = from.texts("cmd", "command")
	svc.Args = from.texts("args", "args")
	svc.Env = from.pairs("environment", "env")
	if from.flag("one_shot", "mode: job, without another try") {
		none := 0
		svc.Mode, svc.Job = spec.ModeJob, &spec.JobSpec{BackoffLimit: &none}
	}
	svc.Security.Privileged = from.flag("privileged", "security.privileged")
	svc.Placement.Worker = from.text("target_node", "placement.worker")
	conv.resources(from, &svc.Resources)
	conv.ports(from, &svc)
	conv.addresses(from.sub("addresses"), &svc)
	for _, volume := range from.each("volumes") {
		volume.refuse("", "volumes are directories of workers: write volumes and mounts")
		volume.m = nil
	}
	for _, constraint := range from.each("constraints") {
		conv.constraint(constraint, &svc.Placement)
	}
	for _, link := range from.each("connectivity") {
		conv.link(link, &svc)
	}
	from.nothingLike(map[string]string{
		"state":       "data is brought by skerry volume import",
		"added_files": "small files are config, others part of the image",
	})
	return svc
}

// resources takes what a service needs: Oakestra counts memory in megabytes, and bandwidth in kilobits per second.
func (conv *oakestra) resources(from *fields, res *spec.Resources) {
	amount := func(key, became string, unit skerry.Bytes) skerry.Bytes {
		n := from.number(key, "")
		if n == nil {
			return 0
		}
		if *n < 0 || int64(*n) > 1<<40 {
			from.refuse(key, "%d is no amount", *n)
			return 0
		}
		from.kept(key, "%s", became)
		return skerry.Bytes(*n) * unit
	}
	count := func(key, became string) int { return int(amount(key, became, 1)) }
	res.Memory = amount("memory", "resources.memory", skerry.MiB)
	res.CPU = skerry.MilliCPU(count("vcpus", "resources.cpu") * 1000)
	res.GPUs, res.TPUs = count("vgpus", "resources.gpus"), count("vtpus", "resources.tpus")
	res.BandwidthIn = amount("bandwidth_in", "resources.bandwidthIn", 125)
	res.BandwidthOut = amount("bandwidth_out", "resources.bandwidthOut", 125)
	res.Storage = amount("storage", "resources.storage", skerry.MiB)
}

// ports takes ports, such as 80:8080/tcp;53:53/udp, first that of the worker.
func (conv *oakestra) ports(from *fields, svc *spec.ServiceSpec) {
	for one := range strings.SplitSeq(from.text("port", "ports"), ";") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		numbers, protocol, _ := strings.Cut(one, "/")
		host, port, both := strings.Cut(numbers, ":")
		if !both {
			host, port = "0", numbers
		}
		published, badHost := strconv.Atoi(host)
		number, badPort := strconv.Atoi(port)
		if badHost != nil || badPort != nil {
			from.refuse("port", "%q is not a port", one)
			continue
		}
		if protocol == "tcp" {
			protocol = ""
		}
		svc.Ports = append(svc.Ports, spec.Port{Port: number, HostPort: published, Protocol: protocol})
	}
}

func (conv *oakestra) addresses(from *fields, svc *spec.ServiceSpec) {
	out := &spec.ServiceAddresses{}
	take := func(key, became string, to *netip.Addr) {
		text := from.text(key, "")
		if text == "" {
			return
		}
		addr, err := netip.ParseAddr(text)
		if err != nil {
			from.refuse(key, "%q is not an address", text)
			return
		}
		from.kept(key, "%s", became)
		if *to = addr; svc.Addresses == nil {
			svc.Addresses = out
		}
	}
	take("rr_ip", "addresses.roundRobin", &out.RoundRobin)
	take("closest_ip", "addresses.closest", &out.Closest)
	for _, key := range []string{"rr_ip_v6", "closest_ip_v6"} {
		from.without(key, "left out: an address has a twin in IPv6, in fd30:5ce7::/96")
	}
	if instances := from.list("instances"); len(instances) > 0 {
		from.refuse("instances", "write addresses.instances, in the order of their numbers")
	}
	from.nothingLike(nil)
}

// constraint takes where a service may run.
func (conv *oakestra) constraint(from *fields, place *spec.Placement) {
	conv.patience(from, "placement", &place.Rigidness, &place.ConvergenceTime)
	switch kind := from.text("type", ""); kind {
	case "direct":
		place.Worker, place.Cluster = from.text("node", "placement.worker"), from.text("cluster", "placement.cluster")
	case "clusters":
		place.Clusters = from.texts("allowed", "placement.clusters")
	case "latency":
		if place.Area = from.text("area", ""); place.Area != "" {
			from.approx("area", "placement.area: the operator of a site gives workers their area")
		}
		from.without("threshold", "left out: of users in an area no address is known; write placement.users and maxLatency")
	case "geo":
		lon, lat, _ := strings.Cut(strings.ReplaceAll(from.text("location", ""), ";", ","), ",")
		first, bad := strconv.ParseFloat(strings.TrimSpace(lon), 64)
		second, worse := strconv.ParseFloat(strings.TrimSpace(lat), 64)
		if bad != nil || worse != nil {
			from.refuse("location", "it is not a longitude and a latitude")
			break
		}
		place.Location = &spec.Location{Lat: second, Lon: first}
		from.approx("location", "placement.location: longitude %g, latitude %g, in the order of Oakestra's documentation", first, second)
		if km, ok := decimal(from, "threshold", "placement.maxDistance"); ok {
			place.MaxDistance = km
		}
	default:
		from.refuse("type", "%q is not known; write placement", kind)
		from.m = nil
	}
	from.nothingLike(nil)
}

// link takes a service that this one talks to.
func (conv *oakestra) link(from *fields, svc *spec.ServiceSpec) {
	target := from.text("target_microservice_id", "links")
	link := spec.Link{Service: conv.names[target]}
	if link.Service == "" {
		from.refuse("target_microservice_id", "no service of this file has the name or ID %q", target)
	}
	for _, limit := range from.each("con_constraints") {
		conv.patience(limit, "links[]", &link.Rigidness, &link.ConvergenceTime)
		kind := limit.text("type", "")
		n, ok := decimal(limit, "threshold", map[string]string{"latency": "links[].maxLatency", "geo": "links[].maxDistance",
			"bandwidth": "links[].bandwidth"}[kind])
		switch {
		case !ok:
			limit.refuse("threshold", "it is not a number")
		case kind == "latency":
			latency := spec.Duration(n * 1e6)
			link.MaxLatency = &latency
		case kind == "geo":
			link.MaxDistance = n
		case kind == "bandwidth":
			link.Bandwidth = skerry.Bytes(n * 125)
		default:
			limit.refuse("type", "a link has a latency, a distance or a bandwidth")
		}
		limit.nothingLike(nil)
	}
	from.nothingLike(nil)
	if !slices.ContainsFunc(svc.Links, func(l spec.Link) bool { return l.Service == link.Service }) {
		svc.Links = append(svc.Links, link)
	} else {
		from.refuse("target_microservice_id", "the link is there already")
	}
}

// patience takes how soon a violation counts, and how long a place is looked for.
func (conv *oakestra) patience(from *fields, became string, rigidness **float64, convergence **spec.Duration) {
	if n, ok := decimal(from, "rigidness", became+".rigidness"); ok {
		*rigidness = &n
	}
	if d := from.duration("convergence_time", became+".convergenceTime"); d > 0 {
		*convergence = &d
	}
}

// decimal takes a number; false: there is none.
func decimal(from *fields, key, became string) (float64, bool) {
	text := from.text(key, "")
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n > 1e12 {
		from.refuse(key, "%s is not a number that is meant here", fmt.Sprintf("%q", text))
		return 0, false
	}
	if became != "" {
		from.kept(key, "%s", became)
	}
	return n, true
}
