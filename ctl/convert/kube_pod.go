package convert

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

// pod is a pod that is being converted.
type pod struct {
	*kube
	load *workload
	meta *fields
	spec *fields
	main int                 // of the containers
	name string              // of the container that is being converted
	uses map[string]*kubeUse // of its volumes
	// envSecrets are the entries of Secrets that variables are of.
	envSecrets map[string][]string
}

// kubePodLeft are fields of a pod that need no counterpart.
var kubePodLeft = map[string]string{
	"serviceAccountName":           "left out: programs get no account of Skerry",
	"serviceAccount":               "left out: programs get no account of Skerry",
	"automountServiceAccountToken": "left out: programs get no account of Skerry",
	"enableServiceLinks":           "left out: services are found by name",
	"imagePullSecrets":             "left out: the operator gives credentials for registries: --registry-config",
	"dnsConfig":                    "left out: instances ask their worker",
	"subdomain":                    "left out: the name of an instance is its number before the service's",
	"setHostnameAsFQDN":            "left out: a container's name is that of its instance",
	"priorityClassName":            "left out: write placement.priority",
	"preemptionPolicy":             "left out: instances of a higher placement.priority make room",
	"schedulerName":                "left out: write placement.policy",
	"topologySpreadConstraints":    "placement.policy: spread, over workers",
	"overhead":                     "left out: what a runtime takes is counted by the worker",
	"os":                           "left out: workers run Linux",
	"activeDeadlineSeconds":        "left out: write job.finishBefore",
}

// kubePodRefusals is a table: why a field of a pod is refused.
var kubePodRefusals = map[string]string{
	"hostNetwork":     "an instance has a network of its own: publish ports with hostPort",
	"hostPID":         "an instance has its own processes; a helper can be a sidecar, which shares them",
	"hostIPC":         "an instance has its own",
	"priority":        "write placement.priority, from -1000 to 1000",
	"readinessGates":  "an instance is ready when its probes say so",
	"resourceClaims":  "devices are asked for by their class: devices: [{cdi: ...}]",
	"schedulingGates": "apply --register stores a manifest without deploying it",
	"hostUsers":       "the site's operator says which instances have users of their own",
}

// pod converts a pod, which is in the fields metadata and spec of a template, or of an object.
func (conv *kube) pod(load *workload, from *fields) {
	it := &pod{kube: conv, load: load, meta: load.object.meta, spec: from.sub("spec"), uses: map[string]*kubeUse{}}
	svc := &load.svc
	if load.object.kind != "Pod" {
		it.meta = from.sub("metadata")
	}
	it.metadata()
	containers := it.spec.each("containers")
	if len(containers) == 0 {
		it.spec.refuse("containers", "there are none")
		return
	}
	it.main = it.principal(containers)
	it.volumes()
	it.placement()
	it.ends()
	it.hosts()
	for i, container := range containers {
		if i == it.main {
			container.kept("name", "the main container; %v is known as main here", container.m["name"])
			conv.container(it, container, &svc.Container, &svc.Resources)
			it.probes(container)
			container.nothingLike(kubeContainerRefusals)
			continue
		}
		container.approx("", "sidecars: it starts before the main container, and stops after it")
		svc.Sidecars = append(svc.Sidecars, it.beside(container))
	}
	for _, container := range it.spec.each("initContainers") {
		if policy := container.text("restartPolicy", ""); policy == "Always" {
			container.kept("restartPolicy", "sidecars")
			svc.Sidecars = append(svc.Sidecars, it.beside(container))
			continue
		} else if policy != "" {
			container.refuse("restartPolicy", "an init container runs once, or is a sidecar with Always")
		}
		init := spec.SideContainer{Name: it.sideName(container)}
		conv.container(it, container, &init.Container, &init.Resources)
		container.nothingLike(kubeContainerRefusals)
		svc.Init = append(svc.Init, init)
	}
	it.unmounted()
	it.podSecurity(svc)
	it.spec.leave(kubePodLeft)
	it.spec.nothingLike(kubePodRefusals)
}

// principal chooses the container that is the service itself: the others are its sidecars.
func (it *pod) principal(containers []*fields) int {
	said := textAt(it.meta.m, "annotations", "kubectl.kubernetes.io/default-container")
	for i, container := range containers {
		if said != "" && container.m["name"] == said {
			return i
		}
	}
	for i, container := range containers {
		if container.has("readinessProbe") || container.has("ports") {
			return i
		}
	}
	return 0
}

// beside converts a container that runs next to the main one.
func (it *pod) beside(container *fields) spec.SideContainer {
	side := spec.SideContainer{Name: it.sideName(container)}
	it.kube.container(it, container, &side.Container, &side.Resources)
	for _, probe := range []string{"readinessProbe", "livenessProbe", "startupProbe"} {
		container.without(probe, "left out: probes are of the main container; a sidecar that ends is started again")
	}
	container.nothingLike(kubeContainerRefusals)
	return side
}

func (it *pod) sideName(container *fields) string {
	name := container.text("name", "")
	return cmp.Or(Name(name), "side")
}

// metadata takes labels and annotations of the pods.
func (it *pod) metadata() {
	if len(it.load.labels) > 0 {
		it.load.svc.Labels = it.load.labels
		it.meta.take("labels")
		it.meta.kept("labels", "labels")
	}
	notes, _ := it.meta.m["annotations"].(map[string]any)
	if textAt(map[string]any{"a": notes}, "a", "prometheus.io/scrape") == "true" {
		path := textAt(map[string]any{"a": notes}, "a", "prometheus.io/path")
		if port, err := strconv.Atoi(textAt(map[string]any{"a": notes}, "a", "prometheus.io/port")); err == nil {
			it.load.svc.Metrics = &spec.Metrics{Port: port, Path: path}
			for _, key := range []string{"scrape", "port", "path"} {
				if name := "prometheus.io/" + key; notes[name] != nil {
					it.meta.kept("annotations."+name, "metrics")
					delete(notes, name)
				}
			}
		}
	}
	if it.load.object.kind == "Pod" {
		return // the rest is taken with the object's
	}
	it.load.object.annotations(it.meta, "annotations")
	it.meta.leave(map[string]string{"name": "left out: instances are named by Skerry", "creationTimestamp": "left out",
		"namespace": "left out: a pod is where its workload is", "generateName": "left out: instances are named by Skerry",
		"finalizers": "left out: it is of the object in Kubernetes"})
	it.meta.nothingLike(nil)
}

// ends takes what happens when a program ends, and how it is ended.
func (it *pod) ends() {
	svc := &it.load.svc
	if it.spec.has("terminationGracePeriodSeconds") {
		d := it.spec.duration("terminationGracePeriodSeconds", "terminationGrace")
		svc.TerminationGrace = &d
	} else if it.load.object.m != nil && svc.Mode != spec.ModeJob && svc.Mode != spec.ModeCron {
		d := spec.Duration(30e9) // Kubernetes gives more time than Skerry
		svc.TerminationGrace = &d
	}
	policy := it.spec.text("restartPolicy", "")
	switch job := svc.Mode == spec.ModeJob || svc.Mode == spec.ModeCron; {
	case policy == "" || policy == "Always" && !job:
		if policy != "" {
			it.spec.kept("restartPolicy", "as without it")
		}
	case policy == "OnFailure" && job:
		svc.Restart.Policy = "onFailure"
		it.spec.kept("restartPolicy", "restart.policy")
	case policy == "Never" && job:
		it.spec.kept("restartPolicy", "as without it")
	case it.load.object.kind == "Pod" && policy == "Never":
		none := 0
		svc.Mode, svc.Job = spec.ModeJob, &spec.JobSpec{BackoffLimit: &none}
		it.spec.kept("restartPolicy", "mode: job, without another try")
	case it.load.object.kind == "Pod" && policy == "OnFailure":
		svc.Mode, svc.Restart.Policy = spec.ModeJob, "onFailure"
		it.spec.kept("restartPolicy", "mode: job")
	default:
		it.spec.refuse("restartPolicy", "%q is not for a %s", policy, it.load.object.kind)
	}
	if it.spec.flag("shareProcessNamespace", "") {
		it.spec.kept("shareProcessNamespace", "as always: sidecars see the processes of the main container")
	}
	switch policy := it.spec.text("dnsPolicy", ""); policy {
	case "":
	case "ClusterFirst", "ClusterFirstWithHostNet":
		it.spec.kept("dnsPolicy", "as always: names of services come first")
	case "Default":
		it.spec.approx("dnsPolicy", "left out: names of services come first, then those of the worker's name servers")
	default:
		it.spec.refuse("dnsPolicy", "instances ask their worker")
	}
	switch class := it.spec.text("runtimeClassName", ""); {
	case class == "":
	case strings.Contains(class, "gvisor") || class == "runsc":
		svc.Isolation = spec.IsolationSandboxed
		it.spec.approx("runtimeClassName", "isolation: sandboxed, which gVisor is one way to have")
	case strings.Contains(class, "kata"):
		svc.Isolation = spec.IsolationHardware
		it.spec.approx("runtimeClassName", "isolation: hardware, for a virtual machine")
	default:
		it.spec.refuse("runtimeClassName", "write runtime or isolation")
	}
}

// placement takes where pods may run.
func (it *pod) placement() {
	place := &it.load.svc.Placement
	place.Worker = it.spec.text("nodeName", "placement.worker")
	selector := it.spec.sub("nodeSelector")
	for _, key := range slices.Sorted(maps.Keys(selector.m)) {
		value := selector.text(key, "")
		it.node(selector, key, key, []string{value})
	}
	if it.spec.has("topologySpreadConstraints") {
		place.Policy = "spread"
	}
	for _, taint := range it.spec.each("tolerations") {
		out := spec.Toleration{Key: cmp.Or(taint.text("key", ""), "*"), Value: taint.text("value", "")}
		taint.text("operator", "")
		if taint.has("effect") || taint.has("tolerationSeconds") {
			taint.take("effect")
			taint.take("tolerationSeconds")
			taint.approx("", "placement.tolerations: whatever the effect of the taint, and for how long it is there")
		} else {
			taint.kept("", "placement.tolerations")
		}
		taint.nothingLike(nil)
		place.Tolerations = append(place.Tolerations, out)
	}
	affinity := it.spec.sub("affinity")
	nodes := affinity.sub("nodeAffinity")
	nodes.without("preferredDuringSchedulingIgnoredDuringExecution", "left out: workers are preferred by placement.policy")
	required := nodes.sub("requiredDuringSchedulingIgnoredDuringExecution")
	terms := required.each("nodeSelectorTerms")
	for _, term := range terms {
		if len(terms) > 1 {
			term.refuse("", "one of several sets of labels cannot be asked for")
			term.m = nil
			continue
		}
		for _, match := range term.each("matchExpressions") {
			key, values := match.text("key", ""), match.texts("values", "")
			if operator := match.text("operator", ""); operator != "In" {
				match.refuse("operator", "workers are chosen by labels that they have; %s is not possible", operator)
				match.m = nil
				continue
			}
			it.node(match, "", key, values)
			match.nothingLike(nil)
		}
		term.nothingLike(map[string]string{"matchFields": "write placement.worker"})
	}
	required.nothingLike(nil)
	nodes.nothingLike(nil)
	place.Affinity = it.affinity(affinity.sub("podAffinity"), "placement.affinity")
	place.AntiAffinity = it.affinity(affinity.sub("podAntiAffinity"), "placement.antiAffinity")
	affinity.nothingLike(nil)
}

// node takes a label that a worker must have.
func (it *pod) node(at *fields, key, label string, values []string) {
	place := &it.load.svc.Placement
	switch {
	case label == "kubernetes.io/arch" || label == "beta.kubernetes.io/arch":
		place.Arch = values
		at.kept(key, "placement.arch")
	case len(values) != 1:
		at.refuse(key, "one of several values cannot be asked for")
	case label == "kubernetes.io/os" || label == "beta.kubernetes.io/os":
		if values[0] != "linux" {
			at.refuse(key, "workers run Linux")
			return
		}
		at.kept(key, "as always: workers run Linux")
	case label == "kubernetes.io/hostname":
		place.Worker = values[0]
		at.kept(key, "placement.worker")
	case label == "topology.kubernetes.io/zone" || label == "failure-domain.beta.kubernetes.io/zone":
		place.Area = values[0]
		at.approx(key, "placement.area: the operator of a site gives workers their area")
	default:
		if place.Labels == nil {
			place.Labels = map[string]string{}
		}
		place.Labels[label] = values[0]
		at.kept(key, "placement.labels")
	}
}

// affinity takes the services near which pods run, or from which they stay away.
func (it *pod) affinity(from *fields, became string) (out []spec.Affinity) {
	term := func(term *fields, preferred bool) {
		selector := term.sub("labelSelector")
		labels := selector.pairs("matchLabels", "")
		if labels == nil {
			labels = map[string]string{}
		}
		for _, match := range selector.each("matchExpressions") {
			key, values := match.text("key", ""), match.texts("values", "")
			if match.text("operator", "") != "In" || len(values) != 1 {
				match.refuse("", "services are chosen by labels that they have")
				match.m = nil
				return
			}
			labels[key] = values[0]
		}
		affinity := spec.Affinity{Labels: labels, Preferred: preferred}
		switch key := term.text("topologyKey", ""); key {
		case "kubernetes.io/hostname", "":
		case "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone":
			affinity.Over = "area"
		default:
			term.refuse("topologyKey", "the same place is a worker or an area")
		}
		selector.nothingLike(nil)
		term.without("namespaces", "left out: services of this application are meant")
		term.without("namespaceSelector", "left out: services of this application are meant")
		term.nothingLike(nil)
		term.kept("", "%s", became)
		out = append(out, affinity)
	}
	for _, required := range from.each("requiredDuringSchedulingIgnoredDuringExecution") {
		term(required, false)
	}
	for _, preferred := range from.each("preferredDuringSchedulingIgnoredDuringExecution") {
		preferred.without("weight", "left out: all preferences count alike")
		term(preferred.sub("podAffinityTerm"), true)
		preferred.nothingLike(nil)
	}
	from.nothingLike(nil)
	return out
}

// podSecurity takes the security context of a whole pod, for the containers that say nothing else.
func (it *pod) podSecurity(svc *spec.ServiceSpec) {
	from := it.spec.sub("securityContext")
	user := kubeUser(from, "")
	from.leave(map[string]string{
		"fsGroup":             "left out: every user may write to the volumes of an instance",
		"fsGroupChangePolicy": "left out: every user may write to the volumes of an instance",
		"appArmorProfile":     "left out: profiles of AppArmor are the worker's",
		"seLinuxOptions":      "left out: labels of SELinux are the worker's",
		"seLinuxChangePolicy": "left out: labels of SELinux are the worker's",
	})
	unconfined := kubeSeccomp(from)
	nonRoot(from, user)
	for _, sysctl := range from.each("sysctls") {
		name, value := sysctl.text("name", ""), sysctl.text("value", "")
		if !spec.AllowedSysctl(name) {
			sysctl.refuse("", "%s is %s", name, wholeMachine)
			continue
		}
		if svc.Sysctls == nil {
			svc.Sysctls = map[string]string{}
		}
		svc.Sysctls[name] = value
		sysctl.kept("", "sysctls")
	}
	from.nothingLike(map[string]string{
		"supplementalGroups": "a program has one group: runAsGroup", "windowsOptions": "workers run Linux"})
	containers := []*spec.Container{&svc.Container}
	for i := range svc.Init {
		containers = append(containers, &svc.Init[i].Container)
	}
	for i := range svc.Sidecars {
		containers = append(containers, &svc.Sidecars[i].Container)
	}
	for _, container := range containers {
		if container.User == "" {
			container.User = user
		} else if strings.HasPrefix(container.User, ":") && user != "" {
			id, _, _ := strings.Cut(user, ":")
			container.User = id + container.User
		} else if _, group, has := strings.Cut(user, ":"); has && !strings.Contains(container.User, ":") {
			container.User += ":" + group
		}
		if strings.HasPrefix(container.User, ":") {
			from.refuse("runAsGroup", "a group alone cannot be given: write runAsUser, too")
		}
		if unconfined && container.Security.Seccomp == "" {
			container.Security.Seccomp = "unconfined"
		}
		if container.Security.Seccomp == "default" {
			container.Security.Seccomp = ""
		}
	}
}

// kubeUser takes the user and group of programs; a group alone begins with a colon.
func kubeUser(from *fields, was string) string {
	user, group := from.text("runAsUser", "user"), from.text("runAsGroup", "user")
	if group != "" {
		group = ":" + group
	}
	return cmp.Or(user+group, was)
}

// nonRoot takes the demand that programs run as another user than root.
func nonRoot(from *fields, user string) {
	if !from.flag("runAsNonRoot", "") {
		return
	}
	if id, _, _ := strings.Cut(user, ":"); id != "" && id != "0" {
		from.kept("runAsNonRoot", "user")
	} else {
		from.approx("runAsNonRoot", "left out: the image says the user, and nothing looks whether it is root; write user")
	}
}

// kubeSeccomp takes the filter of system calls, and reports whether there is to be none.
func kubeSeccomp(from *fields) (unconfined bool) {
	profile := from.sub("seccompProfile")
	switch kind := profile.text("type", ""); kind {
	case "":
	case "RuntimeDefault":
		profile.kept("type", "security.seccomp: default")
	case "Unconfined":
		profile.kept("type", "security.seccomp: unconfined")
		unconfined = true
	default:
		profile.refuse("type", "the filter is Skerry's own")
		profile.take("localhostProfile")
	}
	profile.nothingLike(nil)
	return unconfined
}
