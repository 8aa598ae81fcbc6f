package convert

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"regexp"
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
	env := conv.environment(it, from)
	out.Env = env
	texts := func(key, became string) (list []string) {
		for i, text := range from.texts(key, became) {
			list = append(list, conv.peersIn(from, fmt.Sprintf("%s[%d]", key, i), conv.expand(from, key, text, env)))
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
	conv.lifecycle(from.sub("lifecycle"))
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
		if address := port.text("hostIP", ""); address != "" && address != "0.0.0.0" {
			port.approx("hostIP", "the port is published at the worker's own address")
		}
		it.load.listen(name, *number, published, protocol)
		port.kept("", "ports")
		port.nothingLike(nil)
	}
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

// sleeps is a command before the end of a container that only waits.
var sleeps = regexp.MustCompile(`^(/bin/)?(ba)?sh -c (/bin/)?sleep \d+s?$|^(/bin/|/usr/bin/)?sleep \d+s?$`)

// lifecycle takes what is done when a container has started, and before it ends.
func (conv *kube) lifecycle(from *fields) {
	if stop := from.sub("preStop"); stop.m != nil {
		_, waits := stop.m["sleep"]
		if run := strings.Join(stop.sub("exec").texts("command", ""), " "); waits || sleeps.MatchString(run) {
			stop.approx("", "left out: clients are sent elsewhere before an instance is asked to end")
			stop.m = nil
		} else {
			stop.refuse("", "nothing runs before an instance ends: have the program do it when it is asked to (stopSignal)")
			stop.m = nil
		}
	}
	if signal := from.text("stopSignal", ""); signal != "" {
		from.refuse("stopSignal", "write stopSignal of the container")
	}
	from.nothingLike(map[string]string{"postStart": "nothing runs when a container has started: write an init container"})
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

func (it *pod) probe(container *fields, key, became string) *spec.Probe {
	from := container.sub(key)
	if from.m == nil {
		return nil
	}
	out := &spec.Probe{}
	port := func(at *fields) int {
		text := at.text("port", "")
		number, err := strconv.Atoi(text)
		for _, named := range it.load.ports {
			if err != nil && named.name == text {
				number, err = named.number, nil
			}
		}
		if err != nil {
			at.refuse("port", "there is no port %q", text)
		}
		return number
	}
	if from.has("httpGet") {
		get := from.sub("httpGet")
		number, path := port(get), get.text("path", became+".http.path")
		headers := map[string]string{}
		for _, header := range get.each("httpHeaders") {
			headers[header.text("name", "")] = header.text("value", "")
			header.kept("", "%s.http.headers", became)
			header.nothingLike(nil)
		}
		if len(headers) == 0 {
			headers = nil
		}
		if path != "" && !strings.HasPrefix(path, "/") {
			path = "/" + path
		}
		out.HTTP = &spec.HTTPProbe{Port: number, Path: path, Headers: headers}
		if strings.EqualFold(get.text("scheme", ""), "https") {
			out.HTTP, out.TCP = nil, &spec.TCPProbe{Port: number}
			get.approx("scheme", "%s.tcp: whether it accepts a connection; probes do not speak TLS", became)
		}
		get.nothingLike(map[string]string{"host": "a probe goes to the instance itself"})
	}
	if from.has("tcpSocket") {
		connect := from.sub("tcpSocket")
		out.TCP = &spec.TCPProbe{Port: port(connect)}
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
		out.TCP = &spec.TCPProbe{Port: port(call)}
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

// environment takes the variables of a container, all of whose values are known then.
func (conv *kube) environment(it *pod, from *fields) map[string]string {
	env := map[string]string{}
	for _, all := range from.each("envFrom") {
		prefix := all.text("prefix", "")
		if all.m["configMapRef"] == nil && all.m["secretRef"] == nil {
			all.refuse("", "it is neither of a ConfigMap nor of a Secret")
		}
		for _, kind := range []string{"configMapRef", "secretRef"} {
			if ref := all.sub(kind); ref.m != nil {
				conv.allOf(ref, strings.TrimSuffix(kind, "Ref"), prefix, env)
			}
		}
		all.nothingLike(nil)
	}
	for _, one := range from.each("env") {
		name := one.text("name", "")
		if one.has("valueFrom") {
			if value, ok := conv.valueFrom(it, from, one); ok {
				env[name] = value
			}
		} else {
			value := one.text("value", "")
			env[name] = conv.peersIn(one, "value", conv.expand(one, "value", value, env))
			one.kept("", "env")
		}
		if !spec.CheckEnvName(name) {
			delete(env, name)
			one.refuse("name", "%q is no name of a variable", name)
		}
		one.nothingLike(nil)
	}
	if len(env) == 0 {
		return nil
	}
	return env
}

// allOf takes all variables that a ConfigMap or Secret has.
func (conv *kube) allOf(ref *fields, kind, prefix string, env map[string]string) {
	name, optional := ref.text("name", ""), ref.flag("optional", "")
	kind = map[string]string{"configMap": "ConfigMap", "secret": "Secret"}[kind]
	obj := conv.find(kind, name)
	ref.nothingLike(nil)
	switch {
	case obj == nil && optional:
		ref.approx("name", "left out: there is no %s %s in these files", kind, name)
		return
	case obj == nil:
		ref.refuse("name", "there is no %s %s in these files: give it, too", kind, name)
		return
	}
	data := conv.data(obj)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if spec.CheckEnvName(prefix + key) {
			env[prefix+key] = conv.peersIn(obj.fields, "data."+key, data[key])
		} else {
			ref.approx("name", "left out: %q is no name of a variable", prefix+key)
		}
	}
	if kind == "Secret" {
		ref.approx("name", "%s", kubeOpenSecret)
	} else {
		ref.kept("name", "env")
	}
}

const kubeOpenSecret = "env: the values are in the manifest, for everybody who may read the application; the files of a secret are not"

// valueFrom takes a variable whose value is elsewhere.
func (conv *kube) valueFrom(it *pod, container, one *fields) (string, bool) {
	from := one.sub("valueFrom")
	defer from.nothingLike(nil)
	for ref, kind := range map[string]string{"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"} {
		if !from.has(ref) {
			continue
		}
		at := from.sub(ref)
		name, key, optional := at.text("name", ""), at.text("key", ""), at.flag("optional", "")
		at.nothingLike(nil)
		obj := conv.find(kind, name)
		var value string
		there := false
		if obj != nil {
			value, there = conv.data(obj)[key]
		}
		switch {
		case !there && optional:
			at.approx("", "left out: there is no such %s in these files", kind)
			return "", false
		case !there:
			at.refuse("", "there is no %s %s with %s in these files: give it, too", kind, name, key)
			return "", false
		case kind == "Secret":
			at.approx("", "%s", kubeOpenSecret)
		default:
			at.kept("", "env")
			value = conv.peersIn(obj.fields, "data."+key, value)
		}
		return value, true
	}
	if from.has("fieldRef") {
		return conv.fieldRef(it, from.sub("fieldRef"))
	}
	if from.has("resourceFieldRef") {
		return it.resourceRef(container, from.sub("resourceFieldRef"))
	}
	return "", false
}

// kubeRuntime says where a program finds what is known only when it runs.
var kubeRuntime = map[string]string{
	"metadata.name": "SKERRY_INSTANCE", "spec.nodeName": "SKERRY_WORKER", "metadata.uid": "SKERRY_INSTANCE",
}

// fieldRef takes a variable with a field of the pod: those are given that are known before it runs.
func (conv *kube) fieldRef(it *pod, at *fields) (string, bool) {
	path := at.text("fieldPath", "")
	at.take("apiVersion")
	at.nothingLike(nil)
	name, key, _ := strings.Cut(strings.TrimSuffix(path, "']"), "['")
	switch {
	case path == "metadata.namespace":
		value := conv.namespace
		if value == "" {
			value = "default"
		}
		at.approx("", "env: %s, as in the file", value)
		return value, true
	case path == "spec.serviceAccountName":
		at.approx("", "env: default")
		return "default", true
	case name == "metadata.labels" && key != "":
		at.kept("", "env")
		return it.load.labels[key], true
	case kubeRuntime[path] != "":
		at.refuse("", "the variable %s has it, and none by another name", kubeRuntime[path])
	default:
		at.refuse("", "no variable has it")
	}
	return "", false
}

// resourceRef takes a variable with a limit of the container.
func (it *pod) resourceRef(container, at *fields) (string, bool) {
	resource, divisor, of := at.text("resource", ""), at.text("divisor", ""), at.text("containerName", "")
	at.nothingLike(nil)
	list, what, _ := strings.Cut(resource, ".")
	text := textAt(container.m, "resources", list, what)
	unit := 1.0
	if n, err := skerry.ParseBytes(strings.TrimSuffix(divisor, "m")); divisor != "" && err == nil && n > 0 {
		if unit = float64(n); strings.HasSuffix(divisor, "m") {
			unit /= 1000
		}
	}
	var amount float64
	switch what {
	case "cpu":
		n, err := skerry.ParseMilliCPU(text)
		if amount = float64(n) / 1000; err != nil {
			text = ""
		}
	case "memory", "ephemeral-storage":
		n, err := skerry.ParseBytes(text)
		if amount = float64(n); err != nil {
			text = ""
		}
	default:
		text = ""
	}
	if text == "" || of != "" && of != it.name {
		at.refuse("", "%s is not in this container's resources", resource)
		return "", false
	}
	value := strconv.FormatFloat(math.Ceil(amount/unit), 'f', -1, 64)
	at.approx("", "env: %s, as in the file", value)
	return value, true
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

// known gives the variables that texts may refer to: those before, and those that Kubernetes makes of Services.
func (conv *kube) known(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if value, ok := env[name]; ok {
			return value, true
		}
		for service, peer := range conv.peers {
			upper := strings.ToUpper(strings.ReplaceAll(service, "-", "_")) + "_SERVICE_"
			switch rest, ok := strings.CutPrefix(name, upper); {
			case ok && rest == "HOST":
				return peer.load.svc.Name, true
			case ok && rest == "PORT" && len(peer.list) > 0:
				return strconv.Itoa(peer.list[0]), true
			}
		}
		return "", false
	}
}

// reference is a variable in a text, or a dollar sign that is none's.
var reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// expand puts the values of variables in their places, as Kubernetes does. What is not known stays. Each value may be several of another
// in turn, so what comes of it is refused beyond what a manifest can have.
func (conv *kube) expand(at *fields, key, text string, env map[string]string) string {
	known := conv.known(env)
	out := reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := known(found[2 : len(found)-1]); ok && conv.expanded <= spec.MaxManifest {
			conv.expanded += len(value)
			return value
		}
		return found
	})
	if conv.expanded > spec.MaxManifest {
		at.refuse(key, "with the values of its variables it is larger than a manifest may be")
	}
	return out
}
