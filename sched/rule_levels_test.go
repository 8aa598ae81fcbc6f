package sched

import (
	"testing"

	"skerry.dev/skerry"
)

func TestLevels(t *testing.T) {
	at := func(l skerry.SecurityLevel) func(*Request) { return func(r *Request) { r.Level = l } }
	holds := func(w *Worker) { w.Levels = true }
	testRule(t, Levels{}, []ruleCase{
		{name: "no level"},
		{name: "privileged", ask: at(skerry.LevelPrivileged)},
		{name: "restricted", ask: at(skerry.LevelRestricted), worker: holds},
		{name: "restricted, where nobody knows of it", ask: at(skerry.LevelRestricted), want: "levels: its agent is older than security levels, and would give the service more than level restricted"},
		{name: "baseline, where nobody knows of it", ask: at(skerry.LevelBaseline), want: "levels: its agent is older than security levels, and would give the service more than level baseline"},
	})
}
