//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/pods/podstest"
)

// crew is a service with init containers, a sidecar that stays and one that does not.
const crew = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"crew"},"spec":{"services":[{"name":"web",
"image":"test/shell:1","command":["/bin/sh","-c","echo main; trap 'exit 0' TERM; while :; do sleep 0.05; done"],"terminationGrace":"5s",
"restart":{"backoff":"100ms"},"resources":{"cpu":0.1,"memory":"32Mi"},
"init":[{"name":"one","image":"test/shell:1","env":{"WORD":"alpha"},"command":["/bin/sh","-c","echo it is $$WORD"]},
{"name":"two","image":"test/shell:1","env":{"WORD":"beta"},"command":["/bin/sh","-c","echo $$WORD of $$SKERRY_SERVICE"]}],
"sidecars":[{"name":"log","image":"test/shell:1","env":{"WORD":"gamma"},"resources":{"cpu":0.05,"memory":"16Mi"},
"command":["/bin/sh","-c","echo $$WORD; trap 'exit 0' TERM; while :; do sleep 0.05; done"]},
{"name":"frail","image":"test/shell:1","command":["/bin/sh","-c","echo frail; sleep 1; exit 3"]}]}]}}`

// broken is a service whose second init container fails.
const broken = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"broken"},"spec":{"services":[{"name":"web",
"image":"test/shell:1","command":["/bin/sh","-c","echo never"],"restart":{"backoff":"30s"},"resources":{"cpu":0.1,"memory":"32Mi"},
"init":[{"name":"fine","image":"test/shell:1","command":["/bin/sh","-c","exit 0"]},
{"name":"check","image":"test/shell:1","command":["/bin/sh","-c","echo no good; exit 3"]}]}]}}`

// printedBy awaits the first line of a container's log.
func (n *kubernetesTest) printedBy(i wire.Instance, container, want string) {
	n.t.Helper()
	var got []string
	n.await(fmt.Sprintf("container %s has printed %q", container, want), func() bool {
		got = nil
		err := n.root.Logs(n.t.Context(), i.ID, api.LogOptions{Container: container}, func(l api.LogLine) error {
			got = append(got, l.Line)
			return nil
		})
		return err == nil && len(got) > 0 && strings.HasSuffix(got[0], want)
	})
}

// accompanied has init containers run before a service, and sidecars beside it: one that ends is started again, and the service runs on.
func (n *kubernetesTest) accompanied() {
	n.t.Helper()
	ctx := n.t.Context()
	if _, err := n.root.Apply(ctx, []byte(strings.ReplaceAll(crew, "$$", "$")), api.ApplyOptions{}); err != nil {
		n.t.Fatal(err)
	}
	var first, now wire.Instance
	n.await("it runs with its sidecars", func() bool { return n.instance("crew", &first) && first.State == skerry.Running })
	for container, want := range map[string]string{"one": " alpha", "two": "beta of web", "log": "gamma", "main": "main"} {
		n.printedBy(first, container, want)
	}
	if n.real {
		if out, errOut, status := n.command(first.ID, "log", []string{"/bin/sh", "-c", "echo $WORD"}, ""); out != "gamma\n" || status != "0 " {
			n.t.Errorf("a command in the sidecar printed %q and %q and ended with %q, want gamma, and 0", out, errOut, status)
		}
	}
	n.await("the end of a sidecar is told", func() bool {
		events, err := n.site.Events(ctx, api.EventFilter{Instance: first.ID})
		return err == nil && slices.ContainsFunc(events, func(e wire.Event) bool {
			return e.Reason == "SidecarExited" && strings.Contains(e.Text, "side container frail ended with status 3")
		})
	})
	n.await("it was started again, and counts", func() bool {
		return n.instance("crew", &now) && now.State == skerry.Running && now.Restarts > 0
	})
	if !now.StartedAt.Equal(first.StartedAt) || now.Exit != nil {
		n.t.Errorf("when a sidecar has ended, the instance runs since %s and has the exit %+v, want %s and none", now.StartedAt, now.Exit,
			first.StartedAt)
	}
	n.gone("crew")
}

// unprepared has an init container fail: its status is the instance's, and its log is kept.
func (n *kubernetesTest) unprepared() {
	n.t.Helper()
	if _, err := n.root.Apply(n.t.Context(), []byte(broken), api.ApplyOptions{}); err != nil {
		n.t.Fatal(err)
	}
	var i wire.Instance
	n.await("the init container has failed", func() bool {
		return n.instance("broken", &i) && i.Reason == "init container check ended with status 3"
	})
	if i.Exit == nil || i.Exit.Code != 3 {
		n.t.Errorf("the exit of the instance is %+v, want that of its init container, 3", i.Exit)
	}
	n.printedBy(i, "check", "no good")
	n.gone("broken")
}

// gone deletes an application, and waits until only the first one runs.
func (n *kubernetesTest) gone(app string) {
	n.t.Helper()
	if err := n.root.DeleteApp(n.t.Context(), skerry.AppKey{Namespace: "default", Name: app}); err != nil {
		n.t.Fatal(err)
	}
	n.await(app+" has gone", func() bool { return n.running() == 1 })
}

// measured has the site know what an instance uses.
func (n *kubernetesTest) measured() {
	n.t.Helper()
	var i wire.Instance
	n.await("its use is known", func() bool { return n.instance("hello", &i) && i.QoS != nil && i.QoS.Memory > 0 })
	if want := int64(podstest.Memory); !n.real && (int64(i.QoS.Memory) != want || i.QoS.CPU != podstest.NanoCPU/1e6) {
		n.t.Errorf("the instance uses %+v, want what its stand-in says", i.QoS)
	}
}
