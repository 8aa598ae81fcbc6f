package sched

import (
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Levels rules out workers that would give an instance more than the security level of its organisation.
type Levels struct{}

func (Levels) Name() string { return "levels" }

func (Levels) Lasting() bool { return false }

func (Levels) For(q *Query) Check {
	if q.Level == "" || q.Level == spec.LevelPrivileged {
		return nil
	}
	return byKind(q, "levels", func(k *kind) bool { return k.levels }, func(*kind) wire.Reason {
		return wire.Reason{What: "levels", Text: "its agent is older than security levels, and would give the service more than level " +
			string(q.Level), Hint: "upgrade the worker's agent (`skerry upgrade workers`), or trust the organisation in the site's admission policy"}
	})
}
