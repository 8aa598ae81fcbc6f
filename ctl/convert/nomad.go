package convert

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// nomad is a job of Nomad that is being converted: each of its groups is a service, and the tasks of a group are its containers.
type nomad struct {
	*Result
	job   string
	mode  spec.Mode
	ports map[string]int // of the group that is being converted, inside an instance
}

// Nomad converts a job of Nomad, in its own language.
func Nomad(data []byte, opt Options) (*Result, error) {
	conv := &nomad{Result: newResult(FormatNomad)}
	body, lines, err := readHCL(data)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the Nomad job is not valid: %s", err)
	}
	conv.sources = []source{{places: lines}}
	top := newFields("", body, conv.Result)
	jobs := top.each("job")
	if len(jobs) != 1 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the Nomad job is not valid: the file has %d jobs; one is needed", len(jobs)).
			WithHint("a job in JSON is written in Nomad's language by: nomad job inspect -hcl")
	}
	conv.run(jobs[0], opt)
	top.nothingLike(map[string]string{"variable": "variables are not computed: write their values"})
	return conv.Result, conv.finish()
}

// label gives the label of a block, which is the name of what is in it.
func label(from *fields) string {
	list := from.texts("", "")
	if len(list) > 0 {
		return list[0]
	}
	return ""
}

// block takes a block that is there once at most.
func block(from *fields, key string) *fields {
	list := from.each(key)
	if len(list) == 0 {
		return newFields(from.at+"."+key, nil, from.r)
	}
	for _, other := range list[1:] {
		other.refuse("", "there is one already")
	}
	return list[0]
}

func (conv *nomad) run(from *fields, opt Options) {
	conv.job = label(from)
	name := from.text("name", "metadata.name")
	conv.App.Metadata.Name = Name(cmp.Or(opt.Name, name, conv.job))
	switch kind := from.text("type", "mode"); kind {
	case "", "service":
	case "batch":
		conv.mode = spec.ModeJob
	case "system":
		conv.mode = spec.ModePerWorker
	default:
		from.refuse("type", "jobs are services, batch or system")
	}
	from.leave(map[string]string{
		"id": "left out: an application has its name", "region": "left out: placement.clusters chooses sites",
		"datacenters": "left out: placement.clusters chooses sites", "namespace": "left out: skerry -n says the namespace",
		"node_pool": "left out: workers are chosen by placement.labels", "priority": "left out: write placement.priority",
		"all_at_once": "left out: instances are placed one by one", "meta": "left out: nothing here reads it",
		"affinity": "left out: workers are preferred by placement.policy", "migrate": "left out: a new instance is ready before one is moved",
		"reschedule": "left out: what has failed is placed again", "ui": "left out: nothing here reads it",
	})
	var shared spec.ServiceSpec
	conv.where(from, &shared)
	if periodic := block(from, "periodic"); periodic.m != nil {
		conv.mode = spec.ModeCron
		shared.Cron = conv.periodic(periodic)
	}
	conv.update(block(from, "update"), &shared)
	for _, group := range from.each("group") {
		conv.App.Spec.Services = append(conv.App.Spec.Services, conv.group(group, shared))
	}
	from.nothingLike(map[string]string{
		"parameterized": "a job has no parameters: apply a manifest for each",
		"vault":         "secrets are Skerry's own: skerry secret create",
	})
}

// where takes constraints, which a job, a group and a task may have.
func (conv *nomad) where(from *fields, svc *spec.ServiceSpec) {
	place := &svc.Placement
	if spread := from.each("spread"); len(spread) > 0 {
		place.Policy = "spread"
		for _, one := range spread {
			one.approx("", "placement.policy: spread, over workers")
		}
	}
	for _, one := range from.each("constraint") {
		attribute := strings.Trim(one.text("attribute", ""), "${}")
		operator, value := cmp.Or(one.text("operator", ""), "="), one.text("value", "")
		one.nothingLike(nil)
		meta, isMeta := strings.CutPrefix(attribute, "meta.")
		switch {
		case operator == "distinct_hosts":
			place.Policy = "spread"
			one.approx("", "placement.policy: spread")
		case operator != "=" && operator != "==" && operator != "is":
			one.refuse("operator", "workers are chosen by labels that they have")
		case isMeta:
			place.Labels = maps.Clone(place.Labels)
			if place.Labels == nil {
				place.Labels = map[string]string{}
			}
			place.Labels[meta] = value
			one.kept("", "placement.labels")
		case attribute == "attr.cpu.arch":
			place.Arch = []string{value}
			one.kept("", "placement.arch")
		case attribute == "attr.kernel.name" && value == "linux":
			one.kept("", "as always: workers run Linux")
		case attribute == "node.unique.name":
			place.Worker = value
			one.kept("", "placement.worker")
		default:
			one.refuse("attribute", "workers are chosen by labels, name and architecture")
		}
	}
}

func (conv *nomad) periodic(from *fields) *spec.CronSpec {
	cron := &spec.CronSpec{Schedule: from.text("cron", "cron.schedule"), Concurrency: "allow"}
	if zone := from.text("time_zone", "cron.schedule, with CRON_TZ"); zone != "" {
		cron.Schedule = "CRON_TZ=" + zone + " " + cron.Schedule
	}
	if from.flag("prohibit_overlap", "cron.concurrency") {
		cron.Concurrency = "forbid"
	}
	if from.has("enabled") && !from.flag("enabled", "") {
		from.refuse("enabled", "apply --register stores a manifest without deploying it")
	}
	from.nothingLike(map[string]string{"crons": "a service has one schedule"})
	return cron
}

func (conv *nomad) update(from *fields, svc *spec.ServiceSpec) {
	update := &svc.Update
	if from.m != nil && (conv.mode == spec.ModeJob || conv.mode == spec.ModeCron) {
		from.approx("", "left out: a job is not updated while it runs")
		return
	}
	if n := from.number("max_parallel", ""); n != nil && *n > 0 {
		if conv.mode == spec.ModePerWorker {
			update.MaxUnavailable = n
		} else {
			update.Batch = *n
		}
		from.kept("max_parallel", "update.batch, or maxUnavailable")
	}
	if d := from.duration("min_healthy_time", "update.healthyTime"); d > 0 {
		update.HealthyTime = &d
	}
	if d := from.duration("healthy_deadline", "update.deadline"); d > 0 {
		update.Deadline = &d
	}
	if n := from.number("canary", "update.canary"); n != nil && *n > 0 {
		update.Canary = &spec.Canary{Count: *n}
	}
	if from.has("auto_revert") {
		if from.flag("auto_revert", "update.rollback"); from.m != nil {
			update.Rollback = "automatic"
		}
	}
	from.leave(map[string]string{
		"progress_deadline": "left out: update.deadline is for one instance", "health_check": "left out: probes say it",
		"stagger": "left out: update.pause is between waves", "auto_promote": "left out: canaries that stay ready are followed by the rest",
	})
	from.nothingLike(nil)
}

// group converts a group.
func (conv *nomad) group(from *fields, shared spec.ServiceSpec) spec.ServiceSpec {
	svc := shared
	name := label(from)
	svc.Name, svc.Mode = Name(name), conv.mode
	if n := from.number("count", "replicas"); n != nil && *n != 1 {
		switch svc.Mode {
		case "":
			svc.Replicas = n
		case spec.ModePerWorker:
			from.approx("count", "left out: mode perWorker follows the workers")
		default:
			svc.Job = &spec.JobSpec{Completions: n, Parallelism: n}
		}
	}
	conv.ports = map[string]int{}
	conv.network(block(from, "network"), &svc)
	conv.where(from, &svc)
	if update := block(from, "update"); update.m != nil {
		conv.update(update, &svc)
	}
	conv.restart(block(from, "restart"), &svc)
	disk := block(from, "ephemeral_disk")
	if n := disk.number("size", "resources.storage"); n != nil {
		svc.Resources.Storage = skerry.Bytes(*n) * skerry.MiB
	}
	disk.leave(map[string]string{"migrate": "left out: it is empty after a move", "sticky": "left out: it is empty after a move"})
	disk.nothingLike(nil)
	conv.volumes(from, &svc)
	from.leave(map[string]string{
		"meta": "left out: nothing here reads it", "reschedule": "left out: what has failed is placed again",
		"affinity": "left out: workers are preferred by placement.policy", "migrate": "left out: a new instance is ready before one is moved",
		"shutdown_delay": "left out: clients are sent elsewhere before an instance is asked to end",
		"disconnect":     "left out: write onDisconnect and onReconnect",
	})
	tasks := from.each("task")
	main := conv.principal(tasks)
	for i, task := range tasks {
		conv.task(task, &svc, i == main)
	}
	if len(tasks) == 0 {
		from.refuse("task", "there is none")
	}
	for _, service := range from.each("service") {
		conv.service(service, &svc)
	}
	from.nothingLike(map[string]string{"scaling": "write scale", "consul": "services are found by their names"})
	return svc
}

// principal chooses the task that is the service itself.
func (conv *nomad) principal(tasks []*fields) int {
	first := 0
	for i, task := range slices.Backward(tasks) {
		if leader, _ := asText(task.m["leader"]); leader == "true" {
			return i
		}
		if task.m["lifecycle"] == nil {
			first = i
		}
	}
	return first
}

func (conv *nomad) network(from *fields, svc *spec.ServiceSpec) {
	switch mode := from.text("mode", ""); mode {
	case "":
	case "bridge":
		from.kept("mode", "as always: an instance has a network of its own")
	case "host":
		from.approx("mode", "left out: an instance has a network of its own, and its ports are published")
	default:
		from.refuse("mode", "an instance has the overlay")
	}
	from.without("mbits", "left out: write resources.bandwidthOut")
	conv.called(from, svc)
	for _, port := range from.each("port") {
		name := label(port)
		static, to := port.number("static", ""), port.number("to", "")
		port.without("host_network", "left out: the port is published at the worker's own address")
		port.nothingLike(nil)
		one := spec.Port{Name: Name(name), HostPort: -1}
		switch {
		case to != nil && *to > 0:
			one.Port = *to
		case static != nil:
			one.Port = *static
		default:
			port.refuse("to", "write the port that the program listens at: it is not given one")
			continue
		}
		if static != nil {
			one.HostPort = *static
		}
		port.kept("", "ports")
		conv.ports[name] = one.Port
		svc.Ports = append(svc.Ports, one)
	}
	from.nothingLike(map[string]string{"dns": "instances ask their worker", "cni": "an instance has the overlay"})
}

func (conv *nomad) restart(from *fields, svc *spec.ServiceSpec) {
	if n := from.number("attempts", "restart.maxAttempts"); n != nil {
		svc.Restart.MaxAttempts = n
	}
	svc.Restart.Window = from.duration("interval", "restart.window")
	svc.Restart.Backoff = from.duration("delay", "restart.backoff")
	if mode := from.text("mode", ""); mode == "fail" {
		from.kept("mode", "as always: then it is placed again")
	} else if mode != "" {
		from.approx("mode", "left out: after maxAttempts it is placed again")
	}
	from.without("render_templates", "left out: files are as they were applied")
	from.nothingLike(nil)
}

func (conv *nomad) volumes(from *fields, svc *spec.ServiceSpec) {
	for _, volume := range from.each("volume") {
		name, kind := label(volume), volume.text("type", "")
		volume.leave(map[string]string{"source": "left out: the volume is made for the service", "read_only": "left out: mounts say it",
			"access_mode": "left out: the volume is for one instance", "attachment_mode": "left out: the volume is a directory",
			"per_alloc": "left out: each replica has its own", "sticky": "left out: it is always so"})
		if kind != "host" && kind != "csi" || svc.Mode != "" {
			volume.refuse("type", "a local volume belongs to a replica of a service")
		} else {
			volume.approx("type", "volumes: local, a directory of the worker, empty at first")
		}
		volume.nothingLike(nil)
		svc.Volumes = append(svc.Volumes, spec.Volume{Name: Name(name), Local: &spec.LocalVolume{}})
	}
}

// service takes how a group is found, and how its health is seen.
func (conv *nomad) service(from *fields, svc *spec.ServiceSpec) {
	if name := from.text("name", ""); name != "" && Name(name) == svc.Name {
		from.kept("name", "name")
	} else if name != "" {
		from.approx("name", "left out: it is found as %s, not as %s.service.consul", svc.Name, name)
	}
	number := conv.port(from, "port")
	from.leave(map[string]string{"provider": "left out: services are found by their names", "tags": "left out: nothing here reads them",
		"canary_tags": "left out: nothing here reads them", "address_mode": "left out: a service has addresses of its own",
		"meta": "left out: nothing here reads it", "task": "left out: all containers of an instance have its address"})
	for _, check := range from.each("check") {
		probe := &spec.Probe{Interval: check.duration("interval", "probes.readiness"), Timeout: check.duration("timeout", "probes.readiness")}
		at := number
		if check.has("port") {
			at = conv.port(check, "port")
		}
		switch kind := check.text("type", "probes.readiness"); kind {
		case "http":
			probe.HTTP = &spec.HTTPProbe{Port: at, Path: check.text("path", "probes.readiness.http.path")}
		case "tcp":
			probe.TCP = &spec.TCPProbe{Port: at}
		case "grpc":
			probe.TCP = &spec.TCPProbe{Port: at}
			check.approx("type", "probes.readiness.tcp: whether it accepts a connection")
		default:
			check.refuse("type", "a probe is http, tcp or exec in the main container")
		}
		check.leave(map[string]string{"name": "left out: there is one probe", "protocol": "left out: probes speak HTTP",
			"expose": "left out", "on_update": "left out"})
		check.nothingLike(map[string]string{"check_restart": "write probes.liveness"})
		if svc.Probes.Readiness != nil {
			check.refuse("", "there is a probe already")
			continue
		}
		svc.Probes.Readiness = probe
	}
	from.nothingLike(map[string]string{"connect": "traffic between workers is encrypted, and services are found by their names"})
}

// port takes a port by its label or number.
func (conv *nomad) port(from *fields, key string) int {
	text := from.text(key, "ports")
	if text == "" {
		return 0
	}
	if number, err := strconv.Atoi(text); err == nil {
		return number
	}
	if conv.ports[text] == 0 {
		from.refuse(key, "the group has no port %q", text)
	}
	return conv.ports[text]
}

// computed is what Nomad puts into a text on the machine.
var computed = late(`\$\{([^}]*)\}`)

// known puts in a text what is known before it runs, and refuses the rest.
func (conv *nomad) known(from *fields, key, text string) string {
	return computed().ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		if port, ok := strings.CutPrefix(name, "NOMAD_PORT_"); ok && conv.ports[port] > 0 {
			return strconv.Itoa(conv.ports[port])
		}
		switch name {
		case "NOMAD_JOB_NAME", "NOMAD_JOB_ID":
			return conv.job
		case "NOMAD_TASK_DIR":
			return "/local"
		case "NOMAD_ALLOC_DIR":
			return "/alloc"
		case "NOMAD_SECRETS_DIR":
			return "/secrets"
		}
		from.refuse(key, "%s is not known before it runs", found)
		return found
	})
}

// under gives a path of a task as containers have it: relative ones are below the root.
func under(file string) string { return path.Clean("/" + file) }
