package convert

import (
	"fmt"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

// deploy takes how many there are, what they may use, where they run and how they are updated and restarted.
func (conv *compose) deploy(from *fields, svc *spec.ServiceSpec) {
	deploy := from.sub("deploy")
	scale := from.number("scale", "replicas")
	if n := deploy.number("replicas", "replicas"); n != nil {
		scale = n
	}
	if scale != nil && *scale != 1 {
		svc.Replicas = scale
	}
	switch mode := deploy.text("mode", ""); mode {
	case "", "replicated":
	case "global":
		svc.Mode, svc.Replicas = spec.ModePerWorker, nil
		deploy.kept("mode", "mode: perWorker")
	case "replicated-job", "global-job":
		deploy.refuse("mode", "write mode: job, and how often it must succeed")
	}
	deploy.without("labels", "left out: nothing here reads them")
	deploy.without("endpoint_mode", "left out: a service's name leads to its instances in turn")
	deploy.without("rollback_config", "left out: a version that fails is taken back at once")
	conv.resources(from, deploy.sub("resources"), svc)
	conv.placement(deploy.sub("placement"), svc)
	conv.update(deploy.sub("update_config"), svc)
	conv.restart(from, deploy.sub("restart_policy"), svc)
	deploy.nothingLike(nil)
}

func (conv *compose) resources(from, both *fields, svc *spec.ServiceSpec) {
	res := &svc.Resources
	limits, least := both.sub("limits"), both.sub("reservations")
	res.CPU, res.Memory = least.cores("cpus", "resources.cpu"), least.bytes("memory", "resources.memory")
	if n := from.bytes("mem_reservation", "resources.memory"); n > 0 {
		res.Memory = n
	}
	most := spec.Limits{CPU: limits.cores("cpus", "resources.limits.cpu"), Memory: limits.bytes("memory", "resources.limits.memory")}
	if n := from.cores("cpus", "resources.limits.cpu"); n > 0 {
		most.CPU = n
	}
	if n := from.bytes("mem_limit", "resources.limits.memory"); n > 0 {
		most.Memory = n
	}
	// A limit alone is reserved, too: that is what makes it hold.
	if res.CPU == 0 {
		res.CPU, most.CPU = most.CPU, 0
	}
	if res.Memory == 0 {
		res.Memory, most.Memory = most.Memory, 0
	}
	if most != (spec.Limits{}) {
		res.Limits = most
	}
	for _, n := range []*int{limits.number("pids", "resources.pids"), from.number("pids_limit", "resources.pids")} {
		if n != nil {
			res.Pids = *n
		}
	}
	if set := from.text("cpuset", ""); set != "" {
		from.approx("cpuset", "left out: resources.exclusiveCPUs gives processors of its own")
	}
	for _, device := range least.each("devices") {
		gpu := false
		for _, ability := range device.texts("capabilities", "") {
			gpu = gpu || ability == "gpu"
		}
		n := device.number("count", "")
		if ids := device.texts("device_ids", ""); len(ids) > 0 {
			count := len(ids)
			n = &count
		}
		device.without("driver", "left out: the worker's class for graphics processors says which")
		if !gpu || n == nil || *n < 1 {
			device.refuse("", "write resources.gpus with a number, or devices with a class")
			device.m = nil
			continue
		}
		res.GPUs = *n
		device.kept("", "resources.gpus")
		device.nothingLike(nil)
	}
	limits.nothingLike(nil)
	least.nothingLike(nil)
	both.nothingLike(nil)
}

func (conv *compose) placement(place *fields, svc *spec.ServiceSpec) {
	for index, text := range place.texts("constraints", "") {
		at := fmt.Sprintf("constraints[%d]", index)
		name, value, is := strings.Cut(text, "==")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		label, ofNode := strings.CutPrefix(name, "node.labels.")
		switch {
		case is && ofNode:
			if svc.Placement.Labels == nil {
				svc.Placement.Labels = map[string]string{}
			}
			svc.Placement.Labels[label] = value
			place.kept(at, "placement.labels")
		case is && name == "node.hostname":
			svc.Placement.Worker = value
			place.kept(at, "placement.worker")
		case is && name == "node.platform.arch":
			svc.Placement.Arch = []string{strings.NewReplacer("x86_64", "amd64", "aarch64", "arm64").Replace(value)}
			place.kept(at, "placement.arch")
		case strings.HasPrefix(name, "node.role"):
			place.approx(at, "left out: workers have no such roles")
		default:
			place.refuse(at, "workers are chosen by labels, name and architecture")
		}
	}
	for _, x := range place.each("preferences") {
		x.approx("", "placement.policy: spread, over workers")
		svc.Placement.Policy, x.m = "spread", nil
	}
	if n := place.number("max_replicas_per_node", ""); n != nil {
		if *n == 1 {
			place.approx("max_replicas_per_node", "placement.policy: spread")
			svc.Placement.Policy = "spread"
		} else {
			place.refuse("max_replicas_per_node", "Skerry has nothing like it")
		}
	}
	place.nothingLike(nil)
}

func (conv *compose) update(update *fields, svc *spec.ServiceSpec) {
	if n := update.number("parallelism", "update.batch"); n != nil {
		svc.Update.Batch = *n
	}
	svc.Update.Pause = update.duration("delay", "update.pause")
	if healthy := update.duration("monitor", "update.healthyTime"); healthy > 0 {
		svc.Update.HealthyTime = &healthy
	}
	switch action := update.text("failure_action", ""); action {
	case "":
	case "rollback":
		update.kept("failure_action", "as without it: a version that fails is taken back")
	default:
		update.approx("failure_action", "update.rollback: off; the update stands still where it is")
		svc.Update.Rollback = "off"
	}
	if order := update.text("order", ""); order == "stop-first" {
		zero, one := 0, 1
		svc.Update.MaxSurge, svc.Update.MaxUnavailable = &zero, &one
		update.kept("order", "update.maxSurge, update.maxUnavailable")
	} else if order != "" {
		update.kept("order", "as without it: the new one starts first")
	}
	update.without("max_failure_ratio", "left out: update.failures counts them")
	update.nothingLike(nil)
}

// restart takes what happens when the program ends. Without a word Docker does nothing, and Skerry starts a service again.
func (conv *compose) restart(from, given *fields, svc *spec.ServiceSpec) {
	policy, most, _ := strings.Cut(from.text("restart", ""), ":")
	told := policy != ""
	if condition := given.text("condition", ""); condition != "" {
		policy, told = condition, true
		given.kept("condition", "restart.policy")
	} else if told {
		from.kept("restart", "restart.policy")
	}
	switch policy {
	case "no", "none":
		svc.Restart.Policy = "never"
	case "on-failure":
		svc.Restart.Policy = "onFailure"
	case "":
		if conv.jobs[svc.Name] {
			break
		}
		from.approx("restart", "it is not set: Skerry starts a service again that ends; write mode: job for what is to end")
	}
	if n := given.number("max_attempts", "restart.maxAttempts"); n != nil {
		svc.Restart.MaxAttempts = n
	} else if most != "" {
		if n, err := strconv.Atoi(most); err == nil {
			svc.Restart.MaxAttempts = &n
		} else {
			from.refuse("restart", "%q is not a number of attempts", most)
		}
	}
	svc.Restart.Backoff = given.duration("delay", "restart.backoff")
	svc.Restart.Window = given.duration("window", "restart.window")
	given.nothingLike(nil)
}
