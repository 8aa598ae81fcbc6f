package sched

import "skerry.dev/skerry/wire"

// Signatures rules out workers that would start what nobody has signed.
type Signatures struct{}

func (Signatures) Name() string { return "signatures" }

func (Signatures) Lasting() bool { return false }

func (Signatures) For(q *Query) Check {
	if !q.Signed {
		return nil
	}
	return byKind(q, "signatures", func(k *kind) bool { return k.signatures }, func(*kind) wire.Reason {
		return wire.Reason{What: "signatures", Text: "its agent is older than signatures of images, and would start what is not signed",
			Hint: "upgrade the worker's agent (`skerry upgrade workers`), or ask for no signatures in the site's admission policy"}
	})
}
