package uplink

import (
	"fmt"
	"strings"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// InCounts removes details of single workers from a service's reasons before these leave the site. How many workers were ruled out,
// and why, goes up; no name and no value of one does (docs/RATIONALE.md, "Why reasons leave a site as counts").
func InCounts(spec *spec.ServiceSpec, list []wire.Reason) []wire.Reason {
	out := make([]wire.Reason, 0, len(list))
	for _, r := range list {
		c := wire.Reason{What: r.What, Count: r.Count, Text: r.Text, Hint: r.Hint}
		switch r.What {
		case "admission", "quota", "policy", "workers", "worker":
			// these are the site's rules, and speak of no worker but one that the service names
		case "skipped": // what was wrong with the answer may name workers
			c.Text, c.Hint = "a scheduling plugin of the site gave no answer", "ask the site's operator"
		default:
			text, hint := lacking(r.What)
			if r.Link != "" {
				text = "are too far from " + r.Link + " at the other end of a link, or not measured yet"
			}
			if r.What == "arch" {
				text += " than " + strings.Join(spec.Architectures(), ", ")
			}
			c.Text = fmt.Sprintf("%d of the site's workers %s", r.Count, text)
			if r.Count == 1 {
				verb, rest, _ := strings.Cut(text, " ")
				c.Text = "a worker of the site " + singular(verb) + " " + rest
			}
			c.Hint = hint
		}
		out = append(out, c)
	}
	return out
}

// singular is the form for one worker of the verbs that lacking begins with.
func singular(verb string) string {
	switch verb {
	case "are":
		return "is"
	case "were":
		return "was"
	case "have":
		return "has"
	case "do":
		return "does"
	case "cannot":
		return verb
	}
	return verb + "s"
}

// lacking says in general terms what rules workers out.
func lacking(what string) (text, hint string) {
	switch what {
	case "cpu", "memory", "storage", "gpus", "tpus", "bandwidthIn", "bandwidthOut", "exclusiveCPUs", "hugePages.2Mi", "hugePages.1Gi":
		return "cannot spare the " + what, "ask for less " + what + ", or choose another site"
	case "runtime":
		return "cannot run it", "the site's operator sees with `skerry worker check` what is missing"
	case "arch":
		return "are of another architecture", "build the image for more architectures, and add them to placement.arch if it names some"
	case "devices":
		return "lack a device", ""
	case "area", "distance":
		return "are elsewhere", "allow a longer distance, or another area"
	case "location":
		return "do not say where they are", "the site's operator sets --location"
	case "latency":
		return "are too far in the network, or not measured yet", "allow a longer round trip"
	case "label":
		return "lack a label", ""
	case "taint":
		return "are tainted", "add the taint to placement.tolerations if the service may run there"
	case "affinity", "antiAffinity":
		return "do not meet the " + what, "set preferred: true to do without"
	case "hostPort":
		return "have the port taken", "choose another port, or hostPort: -1"
	case "tried":
		return "were tried just now and failed", ""
	case "placed":
		return "have it already", ""
	case "volumes":
		return "do not have the data of its local volumes", "it waits for the worker that has"
	case "reachable":
		return "are not in touch", ""
	case "refusing":
		return "take nothing new", ""
	case "plugin":
		return "are ruled out by a plugin of the site", "ask the site's operator"
	}
	return "are ruled out by " + what, ""
}
