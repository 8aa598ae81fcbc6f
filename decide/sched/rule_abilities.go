package sched

import (
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Abilities rules out workers whose agent is not Skerry's own and did not say that it can do what the service asks for beyond
// a process.
type Abilities struct{}

func (Abilities) Name() string { return "abilities" }

func (Abilities) Lasting() bool { return false }

func (Abilities) For(q *Query) Check {
	need := needsAbilities(q.Spec)
	if len(need) == 0 {
		return nil
	}
	lacks := func(k *kind) (out []string) {
		for _, a := range need {
			if k.limited && !slices.Contains(k.abilities, a) {
				out = append(out, a)
			}
		}
		return out
	}
	return byKind(q, "ability", func(k *kind) bool { return len(lacks(k)) == 0 },
		func(k *kind) wire.Reason {
			return wire.Reason{What: "ability", Text: "its agent is not Skerry's own and does not do " + strings.Join(lacks(k), ", "),
				Hint: "leave that out of the manifest, or run Skerry's own worker there"}
		})
}

// needsAbilities names what a service asks for that not every agent can do. docs/EXTERNAL-AGENTS.md lists the words.
func needsAbilities(service *spec.ServiceSpec) (out []string) {
	security := service.Security
	if security.Seccomp == "unconfined" {
		security.Seccomp = ""
	}
	for _, a := range []struct {
		name string
		need bool
	}{
		{"images", service.Image != ""},
		{"init", len(service.Init) > 0},
		{"sidecars", len(service.Sidecars) > 0},
		{"volumes", len(service.Volumes) > 0 || len(service.Mounts) > 0},
		{"localVolumes", service.KeepsData()},
		{"hostVolumes", slices.ContainsFunc(service.Volumes, func(v spec.Volume) bool { return v.Host != nil })},
		{"snapshots", service.Snapshots != nil},
		{"devices", len(service.Devices) > 0},
		{"io", service.LimitsIO()},
		{"config", len(service.Config) > 0},
		{"secrets", len(service.Secrets) > 0},
		{"ports", len(service.Ports) > 0},
		{"overlay", service.Addresses != nil || len(service.Export) > 0 || len(service.Ingress) > 0},
		{"probes", service.Probes.Startup != nil || service.Probes.Readiness != nil || service.Probes.Liveness != nil},
		{"security", security.Privileged || security.ReadOnlyRoot || security.NewPrivs || security.Seccomp != "" ||
			len(security.AddCaps)+len(security.DropCaps) > 0},
		{"user", service.User != ""},
		{"tty", service.TTY},
	} {
		if a.need {
			out = append(out, a.name)
		}
	}
	return out
}
