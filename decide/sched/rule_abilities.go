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
func needsAbilities(s *spec.ServiceSpec) (out []string) {
	security := s.Security
	if security.Seccomp == "unconfined" {
		security.Seccomp = ""
	}
	for _, a := range []struct {
		name string
		need bool
	}{
		{"images", s.Image != ""},
		{"init", len(s.Init) > 0},
		{"sidecars", len(s.Sidecars) > 0},
		{"volumes", len(s.Volumes) > 0 || len(s.Mounts) > 0},
		{"localVolumes", s.KeepsData()},
		{"devices", len(s.Devices) > 0},
		{"io", s.LimitsIO()},
		{"config", len(s.Config) > 0},
		{"secrets", len(s.Secrets) > 0},
		{"ports", len(s.Ports) > 0},
		{"overlay", s.Addresses != nil || len(s.Export) > 0 || len(s.Ingress) > 0},
		{"probes", s.Probes.Startup != nil || s.Probes.Readiness != nil || s.Probes.Liveness != nil},
		{"security", security.Privileged || security.ReadOnlyRoot || security.NewPrivs || security.Seccomp != "" || len(security.AddCaps)+len(security.DropCaps) > 0},
		{"user", s.User != ""},
		{"tty", s.TTY},
	} {
		if a.need {
			out = append(out, a.name)
		}
	}
	return out
}
