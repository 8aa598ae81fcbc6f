package convert

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// kubeContainerRefusals is a table: why a field of a container is refused.
var kubeContainerRefusals = map[string]string{
	"volumeDevices": "volumes are directories",
	"restartPolicy": "only an init container has one, which makes it a sidecar",
}

// container takes what main, init and side containers have alike.
func (conv *kube) container(it *pod, from *fields, out *spec.Container, res *spec.Resources) {
	it.name = from.text("name", "")
	out.Image = from.text("image", "image")
	if out.Image == "" {
		from.refuse("image", "there is none")
	}
	conv.environment(it, from, out)
	texts := func(key, became string) (list []string) {
		for i, text := range from.texts(key, became) {
			list = append(list, conv.peersIn(from, fmt.Sprintf("%s[%d]", key, i), conv.expand(from, key, text, out)))
		}
		return list
	}
	out.Command, out.Args = texts("command", "command"), texts("args", "args")
	out.WorkingDir = from.text("workingDir", "workingDir")
	out.TTY = from.flag("tty", "tty")
	from.leave(map[string]string{
		"imagePullPolicy":          "left out: a tag is looked up when the manifest is applied",
		"terminationMessagePath":   "left out: skerry logs shows the output",
		"terminationMessagePolicy": "left out: skerry logs shows the output",
		"resizePolicy":             "left out: update.limits says how limits change",
		"stdinOnce":                "left out: the program has no input",
	})
	if from.flag("stdin", "") {
		from.approx("stdin", "left out: the program has no input; skerry exec gives one to a command")
	}
	conv.containerSecurity(from.sub("securityContext"), out)
	conv.containerPorts(it, from)
	kubeResources(from.sub("resources"), res)
	it.mounts(from, out)
	it.lifecycle(from.sub("lifecycle"), out)
}

func (conv *kube) containerSecurity(from *fields, out *spec.Container) {
	out.User = kubeUser(from, "")
	nonRoot(from, out.User)
	svc := &out.Security
	svc.Privileged = from.flag("privileged", "security.privileged")
	svc.ReadOnlyRoot = from.flag("readOnlyRootFilesystem", "security.readOnlyRoot")
	if from.has("allowPrivilegeEscalation") {
		if svc.NewPrivs = from.flag("allowPrivilegeEscalation", "security.newPrivileges"); svc.Privileged {
			svc.NewPrivs = false // a privileged program has no more to gain
		}
	}
	caps := from.sub("capabilities")
	names := func(key, became string) (out []string) {
		for _, name := range caps.texts(key, became) {
			out = append(out, strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
		}
		return out
	}
	svc.AddCaps, svc.DropCaps = names("add", "security.addCaps"), names("drop", "security.dropCaps")
	caps.nothingLike(nil)
	told := from.has("seccompProfile")
	if kubeSeccomp(from) {
		svc.Seccomp = "unconfined"
	} else if told {
		svc.Seccomp = "default" // whatever the pod says
	}
	from.leave(map[string]string{
		"appArmorProfile": "left out: profiles of AppArmor are the worker's",
		"seLinuxOptions":  "left out: labels of SELinux are the worker's",
	})
	if mount := from.text("procMount", ""); mount == "Default" {
		from.kept("procMount", "as without it")
	} else if mount != "" {
		from.refuse("procMount", "parts of /proc stay hidden")
	}
	from.nothingLike(map[string]string{"windowsOptions": "workers run Linux"})
}

func (conv *kube) containerPorts(it *pod, from *fields) {
	for _, port := range from.each("ports") {
		number, host := port.number("containerPort", ""), port.number("hostPort", "")
		name, protocol := port.text("name", ""), strings.ToLower(port.text("protocol", ""))
		if number == nil {
			port.refuse("containerPort", "there is none")
			port.m = nil
			continue
		}
		published := 0
		if host != nil {
			published = *host
		}
		at, ok := port.hostAddress("hostIP")
		if !ok {
			published = 0
		}
		if before := it.load.published(*number, protocol); published != 0 && before != nil {
			if before.HostPort != published || before.HostAddress != at {
				port.approx("hostIP", "the port is published once, as before")
			}
			published = 0
		}
		it.load.listen(name, *number, published, protocol)
		if now := it.load.published(*number, protocol); published != 0 && now != nil {
			now.HostAddress = at
		}
		port.kept("", "ports")
		port.nothingLike(nil)
	}
}

// published gives a port of a service that is already published, or nil.
func (load *workload) published(number int, protocol string) *spec.Port {
	if protocol == "tcp" {
		protocol = ""
	}
	for i := range load.svc.Ports {
		if port := &load.svc.Ports[i]; port.Port == number && port.Protocol == protocol && port.HostPort != 0 {
			return port
		}
	}
	return nil
}

// listen notes a port of a service, and gives its name.
func (load *workload) listen(name string, number, host int, protocol string) spec.PortRef {
	if protocol == "tcp" {
		protocol = ""
	}
	ports := &load.svc.Ports
	for i := range *ports {
		if port := &(*ports)[i]; port.Port == number && port.Protocol == protocol {
			if host != 0 && port.HostPort == 0 {
				port.HostPort = host
			}
			return spec.PortRef(port.PortName())
		}
	}
	port := spec.Port{Name: Name(name), Port: number, HostPort: host, Protocol: protocol}
	if slices.ContainsFunc(*ports, func(other spec.Port) bool { return other.PortName() == port.PortName() }) {
		port.Name = ""
	}
	*ports = append(*ports, port)
	return spec.PortRef(port.PortName())
}

// kubeResources takes requests and limits.
func kubeResources(from *fields, res *spec.Resources) {
	most := spec.Limits{}
	limits, least := from.sub("limits"), from.sub("requests")
	res.CPU, res.Memory = least.cores("cpu", "resources.cpu"), least.bytes("memory", "resources.memory")
	most.CPU, most.Memory = limits.cores("cpu", "resources.limits.cpu"), limits.bytes("memory", "resources.limits.memory")
	// A limit alone is requested, too.
	if res.CPU == 0 || most.CPU <= res.CPU {
		res.CPU, most.CPU = max(res.CPU, most.CPU), 0
	}
	if res.Memory == 0 || most.Memory <= res.Memory {
		res.Memory, most.Memory = max(res.Memory, most.Memory), 0
	}
	if res.Limits = most; res.Memory > 0 && res.Memory < 4*skerry.MiB {
		res.Memory = 4 * skerry.MiB
		least.approx("memory", "resources.memory: 4Mi, which is the least")
	}
	for _, list := range []*fields{least, limits} {
		if n := list.bytes("ephemeral-storage", "resources.storage"); n > 0 {
			res.Storage = n
		}
		for key, pages := range map[string]*skerry.Bytes{"hugepages-2Mi": &res.HugePages.Size2Mi, "hugepages-1Gi": &res.HugePages.Size1Gi} {
			if n := list.bytes(key, "resources.hugePages"); n > 0 {
				*pages = n
			}
		}
		for _, key := range []string{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"} {
			if n := list.number(key, ""); n != nil {
				res.GPUs = *n
				list.approx(key, "resources.gpus, of whatever class the worker has")
			}
		}
		if n := list.number("google.com/tpu", ""); n != nil {
			res.TPUs = *n
			list.approx("google.com/tpu", "resources.tpus, of whatever class the worker has")
		}
		list.nothingLike(nil)
	}
	from.nothingLike(map[string]string{"claims": "devices are asked for by their class: devices: [{cdi: ...}]"})
}

// probes takes the probes of the main container.
func (it *pod) probes(from *fields) {
	probes := &it.load.svc.Probes
	probes.Readiness = it.probe(from, "readinessProbe", "probes.readiness")
	probes.Liveness = it.probe(from, "livenessProbe", "probes.liveness")
	probes.Startup = it.probe(from, "startupProbe", "probes.startup")
	if start := probes.Startup; start != nil { // Skerry's own are for programs that nothing is known of
		if start.Interval == 0 {
			start.Interval = spec.Duration(10e9)
		}
		if start.Failures == 0 {
			start.Failures = 3
		}
	}
}

// portOf takes a port by its number or by its name.
func (it *pod) portOf(from *fields) int {
	text := from.text("port", "")
	number, err := strconv.Atoi(text)
	for _, named := range it.load.ports {
		if err != nil && named.name == text {
			number, err = named.number, nil
		}
	}
	if err != nil {
		from.refuse("port", "there is no port %q", text)
	}
	return number
}

func (it *pod) probe(container *fields, key, became string) *spec.Probe {
	from := container.sub(key)
	if from.m == nil {
		return nil
	}
	out := &spec.Probe{}
	if from.has("httpGet") {
		get := from.sub("httpGet")
		out.HTTP = it.get(get, became)
		if strings.EqualFold(get.text("scheme", ""), "https") {
			out.HTTP, out.TCP = nil, &spec.TCPProbe{Port: out.HTTP.Port}
			get.approx("scheme", "%s.tcp: whether it accepts a connection; probes do not speak TLS", became)
		}
		get.nothingLike(map[string]string{"host": "a probe goes to the instance itself"})
	}
	if from.has("tcpSocket") {
		connect := from.sub("tcpSocket")
		out.TCP = &spec.TCPProbe{Port: it.portOf(connect)}
		connect.nothingLike(map[string]string{"host": "a probe goes to the instance itself"})
	}
	if from.has("exec") {
		run := from.sub("exec")
		command := run.texts("command", "")
		for i := range command { // the kubelet does not expand variables here, but names may be in it
			command[i] = it.peersIn(run, fmt.Sprintf("command[%d]", i), command[i])
		}
		out.Exec = &spec.ExecProbe{Command: command}
		run.nothingLike(nil)
	}
	if from.has("grpc") {
		call := from.sub("grpc")
		out.TCP = &spec.TCPProbe{Port: it.portOf(call)}
		call.without("service", "left out: the protocol of health checks is not spoken")
		call.approx("", "%s.tcp: whether it accepts a connection", became)
		call.nothingLike(nil)
	}
	from.kept("", "%s", became)
	out.InitialDelay = from.duration("initialDelaySeconds", "")
	out.Interval = from.duration("periodSeconds", "")
	out.Timeout = from.duration("timeoutSeconds", "")
	for key, to := range map[string]*int{"failureThreshold": &out.Failures, "successThreshold": &out.Successes} {
		if n := from.number(key, ""); n != nil {
			*to = *n
		}
	}
	from.without("terminationGracePeriodSeconds", "left out: terminationGrace is always the same")
	from.nothingLike(nil)
	return out
}

// data gives the entries of a ConfigMap or Secret that are texts.
func (conv *kube) data(obj *object) map[string]string {
	obj.used = true
	out := textsAt(obj.m, "data")
	if obj.kind == "Secret" {
		for key, value := range out {
			text, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), ""))
			if err != nil {
				obj.refuse("data."+key, "it is not in base64")
			}
			out[key] = string(text)
		}
		maps.Copy(out, textsAt(obj.m, "stringData"))
	}
	for key, value := range textsAt(obj.m, "binaryData") {
		text, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), ""))
		if err != nil || !utf8.Valid(text) {
			obj.refuse("binaryData."+key, "it is not text: put it into the image")
		}
		out[key] = string(text)
	}
	return out
}
