package convert

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/sirupsen/logrus"
	"go.yaml.in/yaml/v3"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Options are what a file itself does not say.
type Options struct {
	Name     string   // of the application; empty: the file's, or that of its directory
	Base     string   // of the file's name, without its ending, or of its directory's; for files that say no name of an application
	Dir      string   // where the file is: other files are found from there; empty: nowhere
	Profiles []string // of a Compose file

	Namespace string // where the application is to be; empty: the default one. Images that a Compose file has built are named after it
	Build     bool   // images of a Compose file are built, also where one is named that could be pulled
	Builds    bool   // whoever converts builds the images, so that nobody has to do it by hand
}

// compose is a Compose file that is being converted.
type compose struct {
	*Result
	opt     Options
	dir     string
	labels  map[string]string   // names of services here, by those in the file
	volumes map[string][]sharer // who mounts a named volume, or a directory of this machine
	private map[string]bool     // networks that lead nowhere else
	aliases map[string][]string // further names of services, by their names here
	jobs    map[string]bool     // services whose success others wait for
	checked map[string]bool     // services with a check of their health
	said    string              // what the file gives programs as variables and arguments, where they may name others
	nfs     map[string]*composeNFS
	files   map[string]*fields // top-level configs
	hidden  map[string]*fields // top-level secrets
}

// Compose converts a Compose file. What it refers to is read, as docker compose would: .env, env_file, extends, include, configs.
func Compose(ctx context.Context, data []byte, opt Options) (*Result, error) {
	conv := &compose{Result: newResult(FormatCompose), opt: opt,
		dir: opt.Dir, labels: map[string]string{}, volumes: map[string][]sharer{}, private: map[string]bool{},
		nfs: map[string]*composeNFS{}, aliases: map[string][]string{}, jobs: map[string]bool{}, checked: map[string]bool{}}
	dir := opt.Dir
	if dir == "" {
		dir = "/"
	}
	file := filepath.Join(dir, "compose.yaml")
	project, err := conv.load(ctx, file, data, opt)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the Compose file is not valid: %s", explain(data, file, err))
	}
	text, err := project.MarshalJSON()
	if err != nil {
		return nil, err
	}
	top := newFields("", map[string]any{}, conv.Result)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&top.m); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(project.DisabledServices)) {
		top.approx("services."+name, "left out: none of its profiles is active (%s); --profile activates one",
			strings.Join(project.DisabledServices[name].Profiles, ", "))
	}
	conv.App.Metadata.Name = Name(top.text("name", ""))
	conv.networks(top)
	conv.networkVolumes(top)
	_, conv.files = top.named("configs")
	_, conv.hidden = top.named("secrets")
	names, services := top.named("services")
	for _, name := range names {
		for _, file := range project.Services[name].EnvFiles {
			if why := conv.outside(file.Path); why != "" {
				services[name].refuse("env_file", "%s", why)
			}
		}
	}
	taken := map[string]string{}
	for _, name := range names {
		label := Name(name)
		if other := taken[label]; other != "" || label == "" {
			services[name].refuse("", "%q cannot be a name here, and %q is taken by %q", name, label, other)
		} else if taken[label] = name; label != name {
			services[name].approx("", "it is called %s here: who asks for %s must ask for that", label, name)
		}
		conv.labels[name] = label
	}
	for _, name := range names {
		for _, key := range []string{"environment", "command", "entrypoint"} {
			conv.said += fmt.Sprintln(services[name].m[key])
		}
		check := project.Services[name].HealthCheck
		conv.checked[conv.labels[name]] = check != nil && !check.Disable && len(check.Test) > 0 && check.Test[0] != "NONE"
		for other, dependency := range project.Services[name].DependsOn {
			if dependency.Condition == types.ServiceConditionCompletedSuccessfully {
				conv.jobs[conv.labels[other]] = true
			}
		}
	}
	for _, name := range names {
		conv.App.Spec.Services = append(conv.App.Spec.Services, conv.service(conv.labels[name], services[name]))
	}
	for i := range conv.App.Spec.Services {
		svc := &conv.App.Spec.Services[i]
		svc.Aliases = conv.aliases[svc.Name]
	}
	conv.together()
	conv.sharedVolumes(top)
	top.nothingLike(nil)
	var tree yaml.Node
	if yaml.Unmarshal(data, &tree) == nil {
		conv.sources = []source{{node: &tree}}
	}
	return conv.Result, conv.finish()
}

// load has the file read, with variables and everything that it refers to put in their places.
func (conv *compose) load(ctx context.Context, file string, data []byte, opt Options) (*types.Project, error) {
	env := map[string]string{}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	beside := filepath.Join(opt.Dir, ".env")
	if _, err := os.Stat(beside); opt.Dir != "" && !errors.Is(err, fs.ErrNotExist) {
		more, err := dotenv.GetEnvFromFile(env, []string{beside})
		if err != nil {
			return nil, fmt.Errorf(".env: %w", err)
		}
		for name, value := range more {
			if _, there := env[name]; !there {
				env[name] = value
			}
		}
	}
	var raw map[string]any
	if yaml.Unmarshal(data, &raw) == nil {
		for name, v := range template.ExtractVariables(raw, template.DefaultPattern) {
			if _, there := env[name]; !there && v.DefaultValue == "" && v.PresenceValue == "" && !v.Required {
				conv.add("$"+name, Approximated, "it is not set, and taken for empty")
			}
		}
	}
	log := logrus.StandardLogger()
	log.SetOutput(io.Discard) // what it warns of is in the report
	defer log.SetOutput(os.Stderr)
	name := opt.Name
	if name == "" {
		if name, _ = raw["name"].(string); name == "" {
			name = filepath.Base(opt.Dir)
		}
	}
	if name = Name(name); name == "" {
		name = "app"
	}
	details := types.ConfigDetails{WorkingDir: filepath.Dir(file), Environment: env,
		ConfigFiles: []types.ConfigFile{{Filename: file, Content: data}}}
	return loader.LoadWithContext(ctx, details, func(o *loader.Options) {
		o.SetProjectName(name, true)
		o.Profiles = opt.Profiles
	})
}

// networks takes what the file says of its networks. Here all services of an application share one.
func (conv *compose) networks(top *fields) {
	names, all := top.named("networks")
	for _, name := range names {
		from := all[name]
		from.take("name")
		from.without("labels", "left out: networks have none")
		from.without("attachable", "left out: who may join is decided by exports")
		if driver := from.text("driver", ""); driver != "" && driver != "bridge" && driver != "overlay" {
			from.refuse("driver", "instances have the overlay, whatever network their worker is in")
		}
		if from.flag("external", "") {
			from.approx("external", "services of this file reach each other, and others by exports and imports")
		}
		if from.flag("internal", "") {
			from.kept("internal", "egress: {} of its services")
			conv.private[name] = true
		}
		from.without("ipam", "left out: addresses are given by Skerry")
		from.without("enable_ipv6", "left out: instances have both")
		from.without("enable_ipv4", "left out: instances have both")
		from.nothingLike(nil)
	}
	if len(names) > 1 {
		top.approx("networks", "all services of an application reach each other; put what must be apart into applications of its own")
	}
}

// shared lists fields that need no counterpart, with what stands in for it.
var shared = map[string]string{
	"container_name":   "left out: an instance has the name of its service and a number",
	"labels":           "left out: nothing here reads them",
	"annotations":      "left out: nothing here reads them",
	"stdin_open":       "left out: the program has no input; skerry exec gives one to a command",
	"logging":          "left out: Skerry keeps the output (skerry logs)",
	"pull_policy":      "left out: a tag is looked up when the manifest is applied",
	"init":             "left out: the program is the first process; it must collect its own children",
	"attach":           "left out: it is of the command that starts it",
	"cgroup":           "left out: a container has a cgroup namespace of its own",
	"oom_score_adj":    "left out: priorities are placement.priority",
	"mem_swappiness":   "left out",
	"memswap_limit":    "left out: what swap there is, is the worker's",
	"oom_kill_disable": "left out: what exceeds its limit is ended",
	"cpu_shares":       "left out: resources.cpu is what it gets under load",
	"develop":          "left out: it is of the command that starts it",
	"dns":              "left out: instances ask their worker, which asks its own servers",
	"dns_search":       "left out: names of services need none",
	"dns_opt":          "left out: names of services need none",
	"uts":              "left out: a container has a name of its own",
	"isolation":        "left out: it is of Windows",
	"storage_opt":      "left out: resources.storage limits what it writes",
}

// refusals say why, where more can be said than that there is nothing like it.
var refusals = map[string]string{
	"network_mode": "an instance has a network of its own",
	"ipc":          "an instance has its own",
	"pid":          "an instance has its own; a helper can be a sidecar, which shares it",
	"devices":      "devices are asked for by their class: devices: [{cdi: ...}]",
}

// service converts a service.
func (conv *compose) service(name string, from *fields) spec.ServiceSpec {
	svc := spec.ServiceSpec{Name: name}
	svc.Image = from.text("image", "image")
	conv.build(from, &svc)
	svc.Command = from.texts("entrypoint", "command")
	svc.Args = from.texts("command", "args")
	svc.Env = from.pairs("environment", "env")
	from.take("env_file") // its variables are in the environment
	svc.WorkingDir = from.text("working_dir", "workingDir")
	svc.User = from.text("user", "user")
	svc.StopSignal = from.text("stop_signal", "stopSignal")
	svc.TTY = from.flag("tty", "tty")
	svc.Ulimits = from.sub("ulimits").ulimits()
	sysctls := map[string]any{}
	for name, value := range from.pairs("sysctls", "") {
		sysctls[name] = value
	}
	svc.Sysctls = newFields(from.at+".sysctls", sysctls, from.r).sysctls()
	if d := from.duration("stop_grace_period", "terminationGrace"); d > 0 {
		svc.TerminationGrace = &d
	}
	conv.hostNames(from, &svc)
	conv.security(from, &svc.Security)
	conv.ports(from, &svc)
	conv.reach(from, &svc)
	conv.mounts(from, &svc)
	from.sharedMemory(&svc)
	conv.hooks(from, &svc)
	conv.configs(from, &svc)
	conv.secrets(from, &svc)
	conv.health(from, &svc)
	conv.deploy(from, &svc)
	if conv.jobs[svc.Name] {
		conv.asJob(from, &svc)
	}
	if platform := from.text("platform", ""); platform != "" {
		if arch, ok := strings.CutPrefix(platform, "linux/"); ok {
			arch, _, _ = strings.Cut(arch, "/")
			svc.Placement.Arch = []string{arch}
			from.kept("platform", "placement.arch")
		} else {
			from.refuse("platform", "workers run Linux")
		}
	}
	from.take("profiles") // one of them is active, or there is none
	from.leave(shared)
	from.nothingLike(refusals)
	return svc
}

func (conv *compose) security(from *fields, svc *spec.Security) {
	svc.Privileged = from.flag("privileged", "security.privileged")
	svc.ReadOnlyRoot = from.flag("read_only", "security.readOnlyRoot")
	caps := func(key, became string) (out []string) {
		for _, name := range from.texts(key, became) {
			out = append(out, strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
		}
		return out
	}
	svc.AddCaps, svc.DropCaps = caps("cap_add", "security.addCaps"), caps("cap_drop", "security.dropCaps")
	for _, o := range from.texts("security_opt", "") {
		switch name, value, _ := strings.Cut(strings.Replace(o, ":", "=", 1), "="); {
		case name == "no-new-privileges" && value != "false":
			from.kept("security_opt", "as without it: programs gain no privileges")
		case name == "seccomp" && value == "unconfined":
			svc.Seccomp = "unconfined"
			from.kept("security_opt", "security.seccomp")
		case name == "apparmor" || name == "label":
			from.approx("security_opt", "%s is left out: profiles of AppArmor and SELinux are the worker's", o)
		default:
			from.refuse("security_opt", "Skerry has nothing like %s", o)
		}
	}
}

// ports takes the ports that are published, and those that are only exposed.
func (conv *compose) ports(from *fields, svc *spec.ServiceSpec) {
	put := func(port, host int, at, protocol string) {
		if protocol == "tcp" {
			protocol = ""
		}
		same := func(p spec.Port) bool {
			return p.Port == port && p.Protocol == protocol && (host == 0 || p.HostPort == host && p.HostAddress == at)
		}
		if slices.ContainsFunc(svc.Ports, same) {
			return
		}
		name, times := "", 1
		for _, p := range svc.Ports {
			if p.Port == port && p.Protocol == protocol { // it is published more than once
				times++
				name = fmt.Sprintf("%s-%d-%d", cmp.Or(protocol, "tcp"), port, times)
			}
		}
		svc.Ports = append(svc.Ports, spec.Port{Name: name, Port: port, HostPort: host, HostAddress: at, Protocol: protocol})
	}
	for _, pub := range from.each("ports") {
		target, published := pub.number("target", ""), pub.text("published", "")
		at, ok := pub.hostAddress("host_ip")
		protocol := pub.text("protocol", "")
		pub.without("name", "left out: ports have the names of their protocol and number")
		pub.without("app_protocol", "left out: an ingress says what it speaks")
		if pub.take("mode"); target == nil {
			pub.refuse("target", "there is none")
			continue
		}
		number, err := strconv.Atoi(published)
		switch {
		case !ok:
			number = 0
		case published == "":
			number = -1
			pub.kept("", "ports: a port that the worker chooses")
		case err != nil:
			pub.refuse("published", "%q is not one port", published)
			continue
		default:
			pub.kept("", "ports, with hostPort")
		}
		put(*target, number, at, protocol)
		pub.nothingLike(nil)
	}
	for i, text := range from.texts("expose", "ports") {
		port, protocol, _ := strings.Cut(text, "/")
		number, err := strconv.Atoi(port)
		if err != nil {
			from.refuse(fmt.Sprintf("expose[%d]", i), "%q is not one port", text)
			continue
		}
		put(number, 0, "", protocol)
	}
}

// reach takes with whom a service talks.
func (conv *compose) reach(from *fields, svc *spec.ServiceSpec) {
	names, on := from.named("depends_on")
	for _, name := range names {
		conv.dependsOn(on[name], conv.labels[name], svc)
	}
	for i, text := range from.texts("links", "") {
		name, alias, _ := strings.Cut(text, ":")
		label, at := conv.labels[name], fmt.Sprintf("links[%d]", i)
		if label == "" || label == svc.Name {
			from.refuse(at, "there is no other service %s", name)
			continue
		}
		if !slices.ContainsFunc(svc.Links, func(l spec.Link) bool { return l.Service == label }) {
			svc.Links = append(svc.Links, spec.Link{Service: label})
		}
		if why := conv.alias(label, cmp.Or(alias, label)); why != "" {
			from.refuse(at, "%s", why)
		} else if alias != "" && alias != label {
			from.approx(at, "links, and an alias of %s, by which all services reach it", label)
		} else {
			from.kept(at, "links")
		}
	}
	if name := from.text("container_name", ""); name != "" {
		said := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(conv.said)
		switch {
		case name == svc.Name:
			from.kept("container_name", "the name of the service")
		case said && conv.alias(svc.Name, name) == "":
			from.kept("container_name", "aliases: others ask for it by that name")
		case said:
			from.approx("container_name", "who asks for %s must ask for %s", name, svc.Name)
		default:
			from.approx("container_name", "%s", shared["container_name"])
		}
	}
	names, nets := from.named("networks")
	outside := len(names) == 0
	for _, name := range names {
		outside = outside || !conv.private[name]
		net := nets[name]
		for _, alias := range net.texts("aliases", "") {
			if why := conv.alias(svc.Name, alias); why != "" {
				net.refuse("aliases", "%s", why)
			} else {
				net.kept("aliases", "aliases")
			}
		}
		net.without("ipv4_address", "left out: addresses are given by Skerry; names lead to them")
		net.without("ipv6_address", "left out: addresses are given by Skerry; names lead to them")
		net.without("priority", "left out: there is one network")
		net.without("gw_priority", "left out: there is one network")
		net.nothingLike(nil)
	}
	if !outside {
		svc.Egress = &spec.Egress{}
	}
	switch from.text("network_mode", "") {
	case "":
	case "bridge", "default":
		from.kept("network_mode", "as without it: a network of its own")
	default:
		from.refuse("network_mode", "%s", refusals["network_mode"])
	}
}

// dependsOn takes for whom a service waits before it starts. It talks to those that go on.
func (conv *compose) dependsOn(from *fields, label string, svc *spec.ServiceSpec) {
	condition := from.text("condition", "")
	from.take("required") // what is not there was left out by its profile
	if from.flag("restart", "") {
		from.approx("restart", "left out: a service goes on when another is started anew")
	}
	after := spec.StartAfter{Service: label, Condition: spec.AfterRunning}
	switch condition {
	case "", "service_started":
	case "service_healthy":
		after.Condition = spec.AfterReady
	case "service_completed_successfully":
		after.Condition = spec.AfterCompleted
	default:
		from.refuse("condition", "%q is no such condition", condition)
		from.m = nil
		return
	}
	switch {
	case conv.jobs[label] && after.Condition != spec.AfterCompleted:
		after.Condition = spec.AfterCompleted
		from.approx("", "startAfter: %s is a job, because others wait for its success, and so does this one", label)
	case after.Condition == spec.AfterReady && !conv.checked[label]:
		from.approx("", "startAfter: %s has no check in this file, and counts as ready when it runs", label)
	default:
		from.kept("", "startAfter")
	}
	svc.StartAfter = append(svc.StartAfter, after)
	if after.Condition != spec.AfterCompleted {
		svc.Links = append(svc.Links, spec.Link{Service: label})
	}
	from.nothingLike(nil)
}

// asJob has a service be a job, because others wait for its success.
func (conv *compose) asJob(from *fields, svc *spec.ServiceSpec) {
	if svc.Replicas != nil || svc.Mode != "" {
		from.approx("deploy", "it is run once, however many there are")
	}
	svc.Mode, svc.Replicas = spec.ModeJob, nil
	switch zero := 0; {
	case svc.Restart.Policy != "onFailure": // where it is not set, nothing starts it again either
		svc.Job = &spec.JobSpec{BackoffLimit: &zero}
	case svc.Restart.MaxAttempts != nil:
		svc.Job = &spec.JobSpec{BackoffLimit: svc.Restart.MaxAttempts}
	}
	svc.Restart = spec.RestartSpec{}
	if svc.Probes != (spec.Probes{}) {
		from.approx("healthcheck", "left out: a job is done when it has ended")
	}
	if svc.Update != (spec.UpdateSpec{}) {
		from.approx("deploy.update_config", "left out: a job is run again when it changes")
	}
	svc.Probes, svc.Update = spec.Probes{}, spec.UpdateSpec{}
	from.kept("", "mode: job, because others wait for its success")
}

// alias gives a service a further name, if nothing else has that. It gives the reason why not.
func (conv *compose) alias(service, name string) string {
	switch {
	case name == service || slices.Contains(conv.aliases[service], name):
		return ""
	case Name(name) != name || slices.Contains(spec.Balances(), spec.Balance(name)):
		return fmt.Sprintf("%q cannot be a name here; others must ask for %s", name, service)
	}
	for _, label := range conv.labels {
		if label == name {
			return fmt.Sprintf("there is a service %s", name)
		}
	}
	conv.aliases[service] = append(conv.aliases[service], name)
	return ""
}

// health takes the check of a container's health. Docker shows what it finds; here it decides about traffic.
func (conv *compose) health(from *fields, svc *spec.ServiceSpec) {
	if !from.has("healthcheck") {
		return
	}
	check := from.sub("healthcheck")
	if check.flag("disable", "") {
		from.kept("healthcheck", "no probe")
		check.m = nil
		return
	}
	probe := &spec.Probe{Interval: spec.Duration(30e9), Timeout: spec.Duration(30e9)}
	if test := check.texts("test", ""); len(test) > 0 {
		switch test[0] {
		case "NONE":
			from.kept("healthcheck", "no probe")
			check.m = nil
			return
		case "CMD":
			probe.Exec = &spec.ExecProbe{Command: test[1:]}
		case "CMD-SHELL":
			probe.Exec = &spec.ExecProbe{Command: []string{"/bin/sh", "-c", strings.Join(test[1:], " ")}}
		default:
			probe.Exec = &spec.ExecProbe{Command: test}
		}
		check.kept("test", "probes.readiness.exec")
	} else {
		check.refuse("", "the check of the image is not taken over: write test")
		check.m = nil
		return
	}
	if d := check.duration("interval", "probes.readiness.interval"); d > 0 {
		probe.Interval = d
	}
	if d := check.duration("timeout", "probes.readiness.timeout"); d > 0 {
		probe.Timeout = d
	}
	if n := check.number("retries", "probes.readiness.failures"); n != nil {
		probe.Failures = *n
	}
	probe.InitialDelay = check.duration("start_period", "")
	if probe.InitialDelay > 0 {
		check.approx("start_period", "probes.readiness.initialDelay: it is not ready before")
	}
	check.without("start_interval", "left out: interval counts from the start on")
	check.nothingLike(nil)
	svc.Probes.Readiness = probe
}
