package convert

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

// workload is an object that has pods: a service here.
type workload struct {
	object *object
	svc    spec.ServiceSpec
	labels map[string]string // of its pods
	ports  []kubePort        // of its containers
	claims map[string]*fields
	// account is the one that its pods have.
	account string
}

// kubePort is a port of a container.
type kubePort struct {
	name     string
	number   int
	protocol string // in lower case
}

// podOf gives the path of an object's pod.
func podOf(kind string) []string {
	switch kind {
	case "Pod":
		return nil
	case "CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return []string{"spec", "template"}
}

// newWorkload looks into an object without taking its fields.
func newWorkload(obj *object) *workload {
	load := &workload{object: obj, svc: spec.ServiceSpec{Name: Name(obj.name)}, claims: map[string]*fields{}}
	pod := obj.m
	if obj.kind == "Pod" {
		load.labels = textsAt(obj.meta.m, "labels")
	} else {
		for _, key := range podOf(obj.kind) {
			pod, _ = pod[key].(map[string]any)
		}
		load.labels = textsAt(pod, "metadata", "labels")
	}
	obj.labels = load.labels
	of, _ := pod["spec"].(map[string]any)
	load.account = cmp.Or(textAt(of, "serviceAccountName"), textAt(of, "serviceAccount"), "default")
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := of[list].([]any)
		for _, one := range containers {
			container, _ := one.(map[string]any)
			ports, _ := container["ports"].([]any)
			for _, one := range ports {
				port, _ := one.(map[string]any)
				number, _ := strconv.Atoi(textAt(port, "containerPort"))
				protocol := strings.ToLower(textAt(port, "protocol"))
				if protocol == "" {
					protocol = "tcp"
				}
				load.ports = append(load.ports, kubePort{textAt(port, "name"), number, protocol})
			}
		}
	}
	return load
}

// convert converts a workload.
func (conv *kube) convert(load *workload) {
	obj := load.object
	if obj.m == nil {
		return
	}
	if obj.kind == "Pod" {
		conv.pod(load, obj.fields)
		return
	}
	from := obj.sub("spec")
	if from.m == nil {
		obj.refuse("spec", "there is none")
		return
	}
	conv.selector(load, from)
	switch obj.kind {
	case "Deployment", "ReplicaSet", "ReplicationController":
		conv.replicas(load, from)
		conv.deployment(load, from)
	case "StatefulSet":
		conv.replicas(load, from)
		conv.stateful(load, from)
	case "DaemonSet":
		load.svc.Mode = spec.ModePerWorker
		conv.daemons(load, from)
	case "Job":
		load.svc.Mode = spec.ModeJob
		conv.job(load, from)
	case "CronJob":
		load.svc.Mode = spec.ModeCron
		conv.cron(load, from)
		return
	}
	conv.template(load, from)
	from.nothingLike(kubeWorkloadRefusals)
}

// kubeWorkloadRefusals is a table: why a field of a workload is refused.
var kubeWorkloadRefusals = map[string]string{
	"podFailurePolicy": "every failure counts against job.backoffLimit",
	"successPolicy":    "a job is done when all of its completions are",
}

// template takes the template of pods.
func (conv *kube) template(load *workload, from *fields) {
	pod := from.sub("template")
	if pod.m == nil {
		from.refuse("template", "there is none")
		return
	}
	conv.pod(load, pod)
	pod.nothingLike(nil)
}

// selector takes which pods are a workload's own: here always those of its template.
func (conv *kube) selector(load *workload, from *fields) {
	if load.object.kind == "Job" || load.object.kind == "CronJob" {
		from.without("selector", "left out: the instances of a job are its own")
		from.without("manualSelector", "left out: the instances of a job are its own")
		return
	}
	if load.object.kind == "ReplicationController" {
		from.without("selector", "left out: instances are those of the service")
		return
	}
	selector := from.sub("selector")
	matches := selector.pairs("matchLabels", "")
	for key, value := range matches {
		if load.labels[key] != value {
			selector.refuse("matchLabels."+key, "the template has no such label")
		}
	}
	if len(matches) > 0 {
		selector.kept("matchLabels", "instances are those of the service")
	}
	selector.without("matchExpressions", "left out: instances are those of the service")
	selector.nothingLike(nil)
}

func (conv *kube) replicas(load *workload, from *fields) {
	if n := from.number("replicas", "replicas"); n != nil && *n != 1 {
		load.svc.Replicas = n
	}
}

func (conv *kube) deployment(load *workload, from *fields) {
	if healthy := from.duration("minReadySeconds", "update.healthyTime"); healthy > 0 {
		load.svc.Update.HealthyTime = &healthy
	}
	if d := from.duration("progressDeadlineSeconds", "update.deadline"); d > 0 {
		load.svc.Update.Deadline = &d
	}
	from.without("revisionHistoryLimit", "left out: Skerry keeps earlier versions")
	if from.flag("paused", "") {
		from.refuse("paused", "an update cannot stand still from the beginning; apply --register stores a manifest without deploying it")
	}
	how := from.sub("strategy")
	switch kind := how.text("type", ""); kind {
	case "", "RollingUpdate":
	case "Recreate":
		load.svc.Update.Strategy = "recreate"
		how.kept("type", "update.strategy")
	default:
		how.refuse("type", "%q is no strategy", kind)
	}
	conv.rolling(load, how.sub("rollingUpdate"))
	how.nothingLike(nil)
}

// rolling takes how many instances may be missing, or be too many, during an update.
func (conv *kube) rolling(load *workload, how *fields) {
	replicas := 1
	if load.svc.Replicas != nil {
		replicas = *load.svc.Replicas
	}
	count := func(key, became string, round func(float64) float64) *int {
		text := how.text(key, "")
		share, percent := strings.CutSuffix(text, "%")
		n, err := strconv.Atoi(share)
		switch {
		case text == "":
			return nil
		case err != nil || n < 0 || n > 10000:
			how.refuse(key, "%q is no number of instances", text)
			return nil
		case percent:
			n = int(round(float64(n) * float64(replicas) / 100))
			how.approx(key, "%s: %d, which is %s of the replicas now", became, n, text)
		default:
			how.kept(key, "%s", became)
		}
		return &n
	}
	load.svc.Update.MaxSurge = count("maxSurge", "update.maxSurge", math.Ceil)
	load.svc.Update.MaxUnavailable = count("maxUnavailable", "update.maxUnavailable", math.Floor)
	how.nothingLike(map[string]string{"partition": "a part of the instances cannot keep the old version; update.canary is for a while"})
	if surge, gone := load.svc.Update.MaxSurge, load.svc.Update.MaxUnavailable; surge != nil && gone != nil && *surge == 0 && *gone == 0 {
		*gone = 1
	}
}

func (conv *kube) stateful(load *workload, from *fields) {
	if from.text("serviceName", "") != "" {
		from.approx("serviceName", "instances have names such as 0.%s", load.svc.Name)
	}
	if healthy := from.duration("minReadySeconds", "update.healthyTime"); healthy > 0 {
		load.svc.Update.HealthyTime = &healthy
	}
	from.without("revisionHistoryLimit", "left out: Skerry keeps earlier versions")
	switch policy := from.text("podManagementPolicy", ""); {
	case policy == "Parallel":
		from.kept("podManagementPolicy", "as always: all start at the same time")
	case policy != "":
		from.approx("podManagementPolicy", "left out: all start at the same time")
	}
	conv.updateStrategy(load, from)
	retention := from.sub("persistentVolumeClaimRetentionPolicy")
	deletes := false
	switch policy := retention.text("whenDeleted", ""); policy {
	case "", "Retain", "Delete":
		if deletes = policy == "Delete"; policy != "" {
			retention.kept("whenDeleted", "volumes: local.reclaim")
		}
	default:
		retention.refuse("whenDeleted", "volumes are retained or deleted")
	}
	switch policy := retention.text("whenScaled", ""); policy {
	case "":
	case "Retain":
		retention.kept("whenScaled", "as always: the volume of an instance stays for when it comes back")
	default:
		retention.approx("whenScaled", "left out: the volume of an instance stays for when it comes back")
	}
	retention.nothingLike(nil)
	for _, template := range from.each("volumeClaimTemplates") {
		name := textAt(template.m, "metadata", "name")
		if name == "" {
			template.refuse("", "it has no name")
			template.m = nil
			continue
		}
		local := conv.claimed(template)
		if deletes {
			local.Reclaim = spec.ReclaimDelete
		}
		load.claims[name] = template
		load.svc.Volumes = append(load.svc.Volumes, spec.Volume{Name: Name(name), Local: local})
	}
	if ordinals := from.sub("ordinals"); ordinals.text("start", "") != "" {
		ordinals.refuse("start", "instances are counted from 0")
		ordinals.nothingLike(nil)
	}
}

func (conv *kube) updateStrategy(load *workload, from *fields) {
	how := from.sub("updateStrategy")
	switch kind := how.text("type", ""); kind {
	case "", "RollingUpdate":
	default:
		how.refuse("type", "instances are updated when a new version is applied")
	}
	rolling := how.sub("rollingUpdate")
	if partition, _ := asText(rolling.m["partition"]); partition == "0" {
		rolling.take("partition")
		rolling.kept("partition", "as without it")
	}
	conv.rolling(load, rolling)
	how.nothingLike(nil)
}

func (conv *kube) daemons(load *workload, from *fields) {
	if healthy := from.duration("minReadySeconds", "update.healthyTime"); healthy > 0 {
		load.svc.Update.HealthyTime = &healthy
	}
	from.without("revisionHistoryLimit", "left out: Skerry keeps earlier versions")
	conv.updateStrategy(load, from)
}

func (conv *kube) job(load *workload, from *fields) {
	job := &spec.JobSpec{Completions: from.number("completions", "job.completions"),
		Parallelism:  from.number("parallelism", "job.parallelism"),
		BackoffLimit: from.number("backoffLimit", "job.backoffLimit")}
	if d := from.duration("ttlSecondsAfterFinished", "job.ttl"); d > 0 {
		job.TTL = &d
	}
	if d := from.duration("activeDeadlineSeconds", ""); d > 0 {
		job.FinishBefore = &d
		from.approx("activeDeadlineSeconds", "job.finishBefore: the job is placed so that it is done by then")
	}
	switch mode := from.text("completionMode", ""); {
	case mode == "Indexed":
		from.refuse("completionMode", "the number of an instance is in SKERRY_ORDINAL, not JOB_COMPLETION_INDEX")
	case mode != "":
		from.kept("completionMode", "as without it")
	}
	if from.flag("suspend", "") {
		from.refuse("suspend", "apply --register stores a manifest without deploying it")
	}
	from.without("podReplacementPolicy", "left out: a failed instance is replaced when it has ended")
	if *job != (spec.JobSpec{}) {
		load.svc.Job = job
	}
}

func (conv *kube) cron(load *workload, from *fields) {
	load.svc.Cron = &spec.CronSpec{Schedule: from.text("schedule", "cron.schedule"), Concurrency: "allow"}
	if zone := from.text("timeZone", "cron.schedule, with CRON_TZ"); zone != "" {
		load.svc.Cron.Schedule = "CRON_TZ=" + zone + " " + load.svc.Cron.Schedule
	}
	if policy := from.text("concurrencyPolicy", "cron.concurrency"); policy != "" {
		load.svc.Cron.Concurrency = strings.ToLower(policy)
	}
	if from.flag("suspend", "") {
		from.refuse("suspend", "apply --register stores a manifest without deploying it")
	}
	from.leave(map[string]string{
		"startingDeadlineSeconds":    "left out: the last of several missed runs is made up for",
		"successfulJobsHistoryLimit": "left out: job.ttl says how long ended instances are shown",
		"failedJobsHistoryLimit":     "left out: job.ttl says how long ended instances are shown",
	})
	template := from.sub("jobTemplate")
	meta := template.sub("metadata")
	meta.leave(map[string]string{"labels": "left out: those of the pods are kept", "annotations": "left out: nothing here reads them",
		"name": "left out", "creationTimestamp": "left out"})
	meta.nothingLike(nil)
	job := template.sub("spec")
	conv.selector(load, job)
	conv.job(load, job)
	conv.template(load, job)
	job.nothingLike(kubeWorkloadRefusals)
	template.nothingLike(nil)
	from.nothingLike(nil)
}

// autoscaler takes a HorizontalPodAutoscaler.
func (conv *kube) autoscaler(obj *object) {
	from := obj.sub("spec")
	ref := from.sub("scaleTargetRef")
	kind, name := ref.text("kind", ""), ref.text("name", "")
	ref.take("apiVersion")
	ref.nothingLike(nil)
	load := conv.workload(kind, name)
	if load == nil || load.svc.Mode != "" {
		ref.refuse("", "there is no %s %s here that could be scaled", kind, name)
		from.m = nil
		return
	}
	ref.kept("", "scale")
	scale := &spec.ScaleSpec{Min: from.number("minReplicas", "scale.min")}
	if scale.Min != nil && *scale.Min == 0 && len(load.svc.Ingress) == 0 {
		from.refuse("minReplicas", "nothing wakes a service without an ingress")
	}
	if n := from.number("maxReplicas", "scale.max"); n != nil {
		scale.Max = *n
	}
	target := func(at *fields, key string) {
		n := at.number(key, "")
		if n == nil {
			return
		}
		share := float64(*n) / 100
		if at.kept(key, "scale.target.cpu"); share > 1 || share < 0.05 {
			share = min(1, max(0.05, share))
			at.approx(key, "scale.target.cpu: %g, as it is a share of resources.cpu", share)
		}
		scale.Target.CPU = &share
	}
	target(from, "targetCPUUtilizationPercentage")
	for _, metric := range from.each("metrics") {
		conv.metric(metric, target)
	}
	behaviour := from.sub("behavior")
	for key, window := range map[string]**spec.Duration{"scaleUp": &scale.Up, "scaleDown": &scale.Down} {
		how := behaviour.sub(key)
		if how.has("stabilizationWindowSeconds") {
			d := how.duration("stabilizationWindowSeconds", "scale."+strings.ToLower(strings.TrimPrefix(key, "scale")))
			*window = &d
		}
		how.leave(map[string]string{"policies": "left out: the number follows the load at once", "selectPolicy": "left out",
			"tolerance": "left out"})
		how.nothingLike(nil)
	}
	behaviour.nothingLike(nil)
	from.nothingLike(nil)
	load.svc.Scale = scale
	if load.svc.Resources.CPU == 0 {
		from.refuse("", "it needs resources.requests.cpu of the container, of which the load is a share")
	}
}

// metric takes a metric of an autoscaler: the share of the processor, which is what Skerry has, too.
func (conv *kube) metric(metric *fields, target func(*fields, string)) {
	kind := metric.text("type", "")
	resource := metric.sub("resource")
	name := resource.text("name", "")
	goal := resource.sub("target")
	switch how := goal.text("type", ""); {
	case kind != "Resource":
		metric.refuse("type", "instances are scaled by their processors, or by what comes through their ingresses: scale.target")
	case name != "cpu":
		resource.approx("name", "left out: instances are not scaled by their %s", name)
	case how != "Utilization":
		goal.refuse("type", "write Utilization, a share of the request")
	default:
		target(goal, "averageUtilization")
		goal.nothingLike(nil)
		resource.nothingLike(nil)
		metric.nothingLike(nil)
	}
	metric.m = nil
}

// workload gives one by its kind and name; nil: there is none.
func (conv *kube) workload(kind, name string) *workload {
	for _, load := range conv.workloads {
		if load.object.kind == kind && load.object.name == name {
			return load
		}
	}
	return nil
}

// matched gives the workloads whose pods have labels; none without labels.
func (conv *kube) matched(selector map[string]string) (out []*workload) {
	for _, load := range conv.workloads {
		all := len(selector) > 0
		for _, key := range slices.Sorted(maps.Keys(selector)) {
			all = all && load.labels[key] == selector[key]
		}
		if all {
			out = append(out, load)
		}
	}
	return out
}
