//go:build linux

package e2e

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/wire"
)

// hooked is a service whose containers wait for hooks, and whose preStop fails.
const hooked = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"hooked"},"spec":{"services":[{"name":"web",
"image":"test/shell:1","env":{"DIR":"/work"},"command":["/bin/sh","-c","[ -e $DIR/side ] && echo side first; trap 'exit 0' TERM;
while :; do sleep 0.05; done"],"volumes":[{"name":"work","empty":{}}],"mounts":[{"volume":"work","path":"/work"}],
"postStart":{"exec":{"command":["/bin/sh","-c","sleep 3"]}},"preStop":{"exec":{"command":["/bin/sh","-c","exit 4"]}},
"terminationGrace":"5s","resources":{"cpu":0.1,"memory":"32Mi"},
"sidecars":[{"name":"side","image":"test/shell:1","env":{"DIR":"/work"},"mounts":[{"volume":"work","path":"/work"}],
"command":["/bin/sh","-c","trap 'exit 0' TERM; while :; do sleep 0.05; done"],
"postStart":{"exec":{"command":["/bin/sh","-c","sleep 1; echo > $DIR/side"]}}}]}]}}`

// cold is a service whose postStart fails, and which ends well when it is asked to.
const cold = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"cold"},"spec":{"services":[{"name":"web",
"image":"test/shell:1","command":["/bin/sh","-c","trap 'exit 0' TERM; while :; do sleep 0.05; done"],
"postStart":{"exec":{"command":["/bin/sh","-c","sleep 1; exit 7"]}},"restart":{"policy":"onFailure","backoff":"30s"},
"resources":{"cpu":0.1,"memory":"32Mi"}}]}}`

func (n *kubernetesTest) applies(text string) {
	n.t.Helper()
	if _, err := n.root.Apply(n.t.Context(), []byte(strings.ReplaceAll(text, "\n", " ")), api.ApplyOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// told awaits an event of an instance.
func (n *kubernetesTest) told(i wire.Instance, reason, text string) {
	n.t.Helper()
	n.await("the event "+reason, func() bool {
		events, err := n.site.Events(n.t.Context(), api.EventFilter{Instance: i.ID})
		return err == nil && slices.ContainsFunc(events, func(e wire.Event) bool { return e.Reason == reason && strings.Contains(e.Text, text) })
	})
}

// hooks has postStart hold back what comes after it, and failures of hooks be told: that of a postStart ends the container.
func (n *kubernetesTest) hooks() {
	n.t.Helper()
	n.applies(hooked)
	var i wire.Instance
	n.await("it is ready", func() bool { return n.instance("hooked", &i) && skerry.HasCondition(i.Conditions, skerry.Ready) })
	if took := time.Since(i.StartedAt); took < 2*time.Second {
		n.t.Errorf("it was ready %s after its start, want the 3s of its postStart", took)
	}
	n.printedBy(i, "main", "side first")
	n.gone("hooked")
	n.told(i, "PreStopFailed", "container main: preStop: PreStopHook failed")

	n.applies(cold)
	n.await("it has failed for its hook", func() bool {
		return n.instance("cold", &i) && i.Phase == skerry.PhaseBackOff && i.Reason == "postStart of container main failed: PostStartHook failed"
	})
	n.told(i, "PostStartFailed", "container main")
	n.gone("cold")
}
