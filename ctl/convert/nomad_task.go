package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// task converts a task: the main container of a service, or one beside it.
func (conv *nomad) task(from *fields, svc *spec.ServiceSpec, main bool) {
	side := spec.SideContainer{Name: cmp.Or(Name(label(from)), "side")}
	container, resources := &side.Container, &side.Resources
	if main {
		container, resources = &svc.Container, &svc.Resources
	}
	switch driver := from.text("driver", ""); driver {
	case "docker", "podman":
		from.kept("driver", "as without it: a container")
	default:
		from.refuse("driver", "containers are converted; a program of the host is runtime: native")
	}
	environment := block(from, "env")
	if from.r != nil && environment.m == nil {
		environment = from.sub("env")
	}
	for _, name := range slices.Sorted(maps.Keys(environment.m)) {
		if container.Env == nil {
			container.Env = map[string]string{}
		}
		container.Env[name] = conv.known(environment, name, environment.text(name, "env"))
	}
	config := block(from, "config")
	conv.called(config, svc)
	config.extraHosts(svc)
	conv.config(config, container)
	conv.resources(block(from, "resources"), resources)
	for _, template := range from.each("template") {
		conv.template(template, svc, container)
	}
	for _, mount := range from.each("volume_mount") {
		one := spec.Mount{Volume: Name(mount.text("volume", "")), Path: under(mount.text("destination", "mounts")),
			ReadOnly: mount.flag("read_only", "mounts")}
		mount.kept("volume", "mounts")
		mount.nothingLike(map[string]string{"propagation_mode": "what is mounted in an instance stays there"})
		container.Mounts = append(container.Mounts, one)
	}
	container.User = from.text("user", "user")
	container.StopSignal = from.text("kill_signal", "stopSignal")
	if d := from.duration("kill_timeout", "terminationGrace"); d > 0 {
		svc.TerminationGrace = &d
	}
	logs := block(from, "logs")
	if n := logs.number("max_file_size", "logs.maxSize"); n != nil {
		svc.Logs.MaxSize = skerry.Bytes(*n) * skerry.MiB
	}
	logs.leave(map[string]string{"max_files": "left out: one old file is kept", "disabled": "left out: Skerry keeps the output"})
	logs.nothingLike(nil)
	conv.where(from, svc)
	if restart := block(from, "restart"); restart.m != nil {
		conv.restart(restart, svc)
	}
	for _, service := range from.each("service") {
		conv.service(service, svc)
	}
	from.leave(map[string]string{"leader": "the main container", "meta": "left out: nothing here reads it",
		"shutdown_delay": "left out: clients are sent elsewhere before an instance is asked to end",
		"affinity":       "left out: workers are preferred by placement.policy"})
	conv.lifecycle(block(from, "lifecycle"), svc, side, main)
	from.nothingLike(map[string]string{
		"artifact": "what is downloaded before the start is part of the image", "vault": "secrets are Skerry's own: skerry secret create",
		"identity": "programs get no account of Skerry", "dispatch_payload": "a job has no parameters",
	})
}

// lifecycle puts a task that is not the main one in its place.
func (conv *nomad) lifecycle(from *fields, svc *spec.ServiceSpec, side spec.SideContainer, main bool) {
	hook, beside := from.text("hook", "init, or sidecars"), from.flag("sidecar", "sidecars")
	from.nothingLike(nil)
	switch {
	case main:
	case hook == "prestart" && !beside:
		svc.Init = append(svc.Init, side)
	case hook == "" || beside:
		svc.Sidecars = append(svc.Sidecars, side)
		from.approx("", "sidecars: %s starts before the main container, and stops after it", side.Name)
	default:
		from.refuse("hook", "nothing runs once after the start, or after the end")
	}
}

// config takes what the driver of containers is told.
func (conv *nomad) config(from *fields, out *spec.Container) {
	out.Image = conv.known(from, "image", from.text("image", "image"))
	out.Command = from.texts("entrypoint", "command")
	if command := from.text("command", "args"); command != "" {
		out.Args = []string{command}
	}
	out.Args = append(out.Args, from.texts("args", "args")...)
	for _, list := range [][]string{out.Command, out.Args} {
		for i := range list {
			list[i] = conv.known(from, "args", list[i])
		}
	}
	out.WorkingDir = from.text("work_dir", "workingDir")
	out.TTY = from.flag("tty", "tty")
	out.Ulimits, out.Sysctls = block(from, "ulimit").ulimits(), block(from, "sysctl").sysctls()
	out.Security.Privileged = from.flag("privileged", "security.privileged")
	out.Security.ReadOnlyRoot = from.flag("readonly_rootfs", "security.readOnlyRoot")
	for key, to := range map[string]*[]string{"cap_add": &out.Security.AddCaps, "cap_drop": &out.Security.DropCaps} {
		for _, name := range from.texts(key, "security") {
			*to = append(*to, strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
		}
	}
	for i, name := range from.texts("ports", "ports") {
		if conv.ports[name] == 0 {
			from.refuse(fmt.Sprintf("ports[%d]", i), "the group has no port %q", name)
		}
	}
	from.leave(map[string]string{
		"force_pull": "left out: a tag is looked up when the manifest is applied", "auth_soft_fail": "left out",
		"labels":  "left out: nothing here reads them",
		"logging": "left out: Skerry keeps the output", "init": "left out: the program is the first process",
		"image_pull_timeout": "left out: an image may take as long as it needs", "interactive": "left out: the program has no input",
	})
	from.nothingLike(map[string]string{
		"auth": "the operator gives credentials for registries: --registry-config", "network_mode": "an instance has a network of its own",
		"volumes": "write volumes and mounts", "mount": "write volumes and mounts", "mounts": "write volumes and mounts",
		"devices":  "devices are asked for by their class: devices: [{cdi: ...}]",
		"shm_size": "mount a volume {empty: {memory: true, size: ...}} at /dev/shm",
	})
}

func (conv *nomad) resources(from *fields, res *spec.Resources) {
	if n := from.number("cpu", ""); n != nil {
		res.CPU = skerry.MilliCPU(*n)
		from.approx("cpu", "resources.cpu: %s cores, taking 1,000 MHz for one", res.CPU)
	}
	if n := from.number("cores", "resources.exclusiveCPUs"); n != nil {
		res.ExclusiveCPUs = *n
	}
	if n := from.number("memory", "resources.memory"); n != nil {
		res.Memory = skerry.Bytes(*n) * skerry.MiB
	}
	if n := from.number("memory_max", "resources.limits.memory"); n != nil {
		res.Limits.Memory = skerry.Bytes(*n) * skerry.MiB
	}
	for _, device := range from.each("device") {
		name, count := label(device), device.number("count", "")
		if !strings.Contains(name, "gpu") {
			device.refuse("", "devices are asked for by their class: devices: [{cdi: ...}]")
		} else if res.GPUs = 1; count != nil {
			res.GPUs = *count
		}
		device.kept("", "resources.gpus")
		device.nothingLike(nil)
	}
	from.nothingLike(map[string]string{"network": "ports belong to the group: network { port ... }"})
}

// template takes a file, or variables. What has to be filled in, Nomad does on the machine.
func (conv *nomad) template(from *fields, svc *spec.ServiceSpec, container *spec.Container) {
	data, file, mode := from.text("data", ""), from.text("destination", ""), from.text("perms", "config.mode")
	variables := from.flag("env", "env")
	from.leave(map[string]string{
		"change_mode": "left out: a change is a new version", "change_signal": "left out: a change is a new version",
		"splay": "left out: a change is a new version", "error_on_missing_key": "left out: nothing is filled in",
		"left_delimiter": "left out: nothing is filled in", "right_delimiter": "left out: nothing is filled in",
		"once": "left out: a change is a new version", "uid": "left out: everybody may read it", "gid": "left out: everybody may read it",
	})
	switch {
	case data == "":
		from.refuse("source", "write data: the file is on the machine")
	case strings.Contains(data, "{{"):
		from.refuse("data", "nothing is filled in: a service is found by its name, and secrets are Skerry's own")
	case variables:
		for line := range strings.Lines(data) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if ok && !strings.HasPrefix(name, "#") {
				if container.Env == nil {
					container.Env = map[string]string{}
				}
				container.Env[strings.TrimSpace(name)] = strings.Trim(conv.known(from, "data", strings.TrimSpace(value)), `"`)
			}
		}
		from.kept("data", "env")
	default:
		svc.Config = append(svc.Config, spec.ConfigFile{Path: under(conv.known(from, "destination", file)),
			Content: conv.known(from, "data", data), Mode: mode})
		from.kept("data", "config")
	}
	from.nothingLike(nil)
}
