package sched

import "testing"

func TestSignatures(t *testing.T) {
	signed := func(r *Request) { r.Signed = true }
	testRule(t, Signatures{}, []ruleCase{
		{name: "none are asked for"},
		{name: "asked for", ask: signed, worker: func(w *Worker) { w.Signatures = true }},
		{name: "asked for, where nobody knows of them", ask: signed, want: "signatures: its agent is older than signatures of images, and would start what is not signed"},
	})
}
