package convert

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// hostNames takes what a Compose service calls itself, and names that it finds in its hosts file.
func (conv *compose) hostNames(from *fields, svc *spec.ServiceSpec) {
	host, domain := from.text("hostname", ""), from.text("domainname", "")
	switch full := strings.ToLower(strings.Trim(host+"."+domain, ".")); {
	case full == "":
	case spec.CheckHost(full) != nil || strings.HasPrefix(full, "*") || len(full) > spec.MaxHostname:
		key := "hostname"
		if host == "" {
			key = "domainname"
		}
		from.refuse(key, "%q is not a host name", full)
	case host == "":
		from.approx("domainname", "left out: without hostname the name is that of the instance")
	default:
		svc.Hostname = full
		if domain != "" {
			from.approx("domainname", "hostname: %s", full)
		}
		from.kept("hostname", "hostname; others do not find it by that, as in Docker")
	}
	for i, line := range from.texts("extra_hosts", "") {
		at := fmt.Sprintf("extra_hosts[%d]", i)
		name, address, ok := strings.Cut(line, "=")
		if !ok {
			name, address, _ = strings.Cut(line, ":")
		}
		if address == "host-gateway" {
			from.approx(at, "left out: instances do not reach services of their worker's own; have %s be a service, or an address outside",
				name)
			continue
		}
		from.host(at, strings.Trim(address, "[]"), []string{name}, svc)
	}
}

// host adds a line to the hosts file.
func (f *fields) host(at, address string, names []string, svc *spec.ServiceSpec) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		f.refuse(at, "%q is not an address", address)
		return
	}
	for i := range names {
		names[i] = strings.ToLower(names[i])
		if spec.CheckHost(names[i]) != nil || strings.HasPrefix(names[i], "*") {
			f.refuse(at, "%q is not a host name", names[i])
			return
		}
	}
	f.kept(at, "extraHosts")
	svc.ExtraHosts = append(svc.ExtraHosts, spec.HostEntry{Address: ip, Names: names})
}

// sharedMemory gives a container memory that its processes share, in place of the little that it has there.
func (f *fields) sharedMemory(svc *spec.ServiceSpec) {
	size := f.bytes("shm_size", "volumes: empty, in memory, at /dev/shm")
	if size == 0 {
		return
	}
	name := "shm"
	for slices.ContainsFunc(svc.Volumes, func(v spec.Volume) bool { return v.Name == name }) {
		name += "-memory"
	}
	svc.Volumes = append(svc.Volumes, spec.Volume{Name: name, Empty: &spec.EmptyVolume{Memory: true, Size: skerry.Bytes(size)}})
	svc.Mounts = append(svc.Mounts, spec.Mount{Volume: name, Path: "/dev/shm"})
}

// hosts takes what pods call themselves, and names that they find in their hosts file.
func (it *pod) hosts() {
	if name := it.spec.text("hostname", ""); name != "" {
		it.load.svc.Hostname = name
		it.spec.kept("hostname", "hostname")
	}
	for _, entry := range it.spec.each("hostAliases") {
		address, names := entry.text("ip", ""), entry.texts("hostnames", "")
		entry.nothingLike(nil)
		entry.host("", address, names, &it.load.svc)
	}
}

// lifecycle takes what is done when a container has started, and before it ends.
func (it *pod) lifecycle(from *fields, out *spec.Container) {
	if stop := from.sub("preStop"); stop.m != nil {
		out.PreStop = it.hook(stop)
	}
	if signal := from.text("stopSignal", ""); signal != "" {
		from.refuse("stopSignal", "write stopSignal of the container")
	}
	from.nothingLike(map[string]string{"postStart": "nothing runs when a container has started: write an init container"})
}

func (it *pod) hook(from *fields) *spec.Hook {
	hook := &spec.Hook{}
	if from.has("exec") {
		run := from.sub("exec")
		hook.Exec = &spec.ExecProbe{Command: run.texts("command", "")}
		run.nothingLike(nil)
	}
	if from.has("httpGet") {
		get := from.sub("httpGet")
		hook.HTTP = it.get(get, "preStop")
		if strings.EqualFold(get.text("scheme", ""), "https") {
			get.refuse("scheme", "it is asked without TLS; run a command")
		}
		get.nothingLike(map[string]string{"host": "the instance itself is asked"})
	}
	if from.has("sleep") {
		wait := from.sub("sleep")
		hook.Sleep = wait.duration("seconds", "")
		wait.nothingLike(nil)
	}
	from.kept("", "preStop")
	from.nothingLike(map[string]string{"tcpSocket": "write exec, httpGet or sleep"})
	if *hook == (spec.Hook{}) {
		return nil
	}
	return hook
}

// get takes a request by HTTP.
func (it *pod) get(from *fields, became string) *spec.HTTPProbe {
	number, at := it.portOf(from), from.text("path", became+".http.path")
	headers := map[string]string{}
	for _, header := range from.each("httpHeaders") {
		headers[header.text("name", "")] = header.text("value", "")
		header.kept("", "%s.http.headers", became)
		header.nothingLike(nil)
	}
	if len(headers) == 0 {
		headers = nil
	}
	if at != "" && !strings.HasPrefix(at, "/") {
		at = "/" + at
	}
	return &spec.HTTPProbe{Port: number, Path: at, Headers: headers}
}

// part gives a path within a volume as a manifest has it; "" for the whole. It refuses one that leads out.
func (f *fields) part(key, below string) string {
	if below == "" {
		return ""
	}
	clean := path.Clean(below)
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		f.refuse(key, "%q is not a path within the volume", below)
		return ""
	}
	if clean == "." {
		return ""
	}
	return clean
}

// hooks takes what a Compose service has done before it ends.
func (conv *compose) hooks(from *fields, svc *spec.ServiceSpec) {
	list := from.each("pre_stop")
	for i, hook := range list {
		command := hook.texts("command", "")
		for _, key := range []string{"user", "privileged", "working_dir", "environment"} {
			if v, ok := hook.take(key); ok && !empty(v) && v != false {
				hook.refuse(key, "a command before the end runs as the container does")
			}
		}
		switch {
		case i > 0:
			hook.refuse("", "there is one command before the end: write a script")
		case len(command) == 0:
			hook.refuse("command", "there is none")
		default:
			svc.PreStop = &spec.Hook{Exec: &spec.ExecProbe{Command: command}}
			hook.kept("", "preStop")
		}
		hook.nothingLike(nil)
	}
}
