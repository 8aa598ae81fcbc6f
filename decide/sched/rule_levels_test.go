package sched

import (
	"testing"

	"skerry.dev/skerry/spec"
)

func TestLevels(t *testing.T) {
	at := func(l spec.SecurityLevel) func(*Request) { return func(r *Request) { r.Level = l } }
	holds := func(w *Worker) { w.Levels = true }
	testRule(t, Levels{}, []ruleCase{
		{name: "no level"},
		{name: "privileged", ask: at(spec.LevelPrivileged)},
		{name: "restricted", ask: at(spec.LevelRestricted), worker: holds},
		{name: "restricted, where nobody knows of it", ask: at(spec.LevelRestricted), want: "levels: its agent is older than security levels, and would give the service more than level restricted"},
		{name: "baseline, where nobody knows of it", ask: at(spec.LevelBaseline), want: "levels: its agent is older than security levels, and would give the service more than level baseline"},
	})
}
