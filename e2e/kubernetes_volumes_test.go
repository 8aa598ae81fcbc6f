//go:build linux

package e2e

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/pods/podstest"
)

// kept is a service that says what its preStop has left behind in its volume.
const kept = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"kept"},"spec":{"services":[{"name":"web",
"image":"test/shell:1","user":"1000","env":{"DIR":"/data"},"command":["/bin/sh","-c","[ -e $DIR/bye ] && cat $DIR/bye || echo new;
trap 'exit 0' TERM; while :; do sleep 0.05; done"],"volumes":[{"name":"data","local":{"size":"SIZE"}}],
"mounts":[{"volume":"data","path":"/data"}],"preStop":{"exec":{"command":["/bin/sh","-c","echo bye > $DIR/bye"]}},
"terminationGrace":"5s","resources":{"cpu":0.1,"memory":"32Mi"}}]}}`

// sampled is a service whose volume is to be copied.
const sampled = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"first"},"spec":{"services":[{"name":"web",
"image":"test/shell:1","volumes":[{"name":"data","local":{}}],"snapshots":{"schedule":"@daily"}}]}}`

// provisioner begins what gives claims their volumes.
func (n *kubernetesTest) provisioner(k *kubernetes) {
	n.t.Helper()
	n.shelf = &podstest.Provisioner{Kubelet: podstest.Kubelet{Server: k.url, Client: k.client}, Class: "shelf",
		Dir: filepath.Join(n.dir, "shelf")}
	n.shelf.Start(n.t)
}

// claims are the phases of all.
func (n *kubernetesTest) claims() (out []string) {
	for _, c := range n.shelf.Claims() {
		if podstest.Text(c, "spec", "storageClassName") == n.shelf.Class {
			out = append(out, podstest.Text(c, "status", "phase")+" "+podstest.Text(c, "spec", "resources", "requests", "storage"))
		}
	}
	return out
}

// stored has a local volume be a claim: its instance waits for it with the reason of who provisions it, finds in it what it left there,
// also when its application was deleted meanwhile, and the claim goes when the volume is deleted.
func (n *kubernetesTest) stored() {
	n.t.Helper()
	ctx, app := n.t.Context(), skerry.AppKey{Namespace: "default", Name: "kept"}
	of := spec.VolumeClaim{Service: skerry.ServiceKey{App: app, Service: "web"}}
	sized := func(size string) string { return strings.ReplaceAll(kept, "SIZE", size) }
	runs := func(inst *wire.Instance) {
		n.t.Helper()
		n.await("it runs", func() bool { return n.instance("kept", inst) && inst.State == skerry.Running })
	}
	var inst wire.Instance
	n.shelf.Refuse("the shelf is full")
	n.applies(sized("8Mi"))
	n.await("it waits for its volume", func() bool {
		return n.instance("kept", &inst) && inst.State != skerry.Running && strings.Contains(inst.Reason, "ProvisioningFailed: the shelf is full")
	})
	n.shelf.Refuse("")
	runs(&inst)
	n.printedBy(inst, "main", "new")
	volumes, err := n.site.Volumes(ctx, "default")
	if err != nil || len(volumes) != 1 || volumes[0].Worker != inst.Worker || volumes[0].Size != 8*skerry.MiB || volumes[0].Instance != inst.ID {
		n.t.Errorf("the site has the volumes %+v (%v), want one on %s, of 8Mi, with instance %s", volumes, err, inst.Worker, inst.ID)
	}
	if got := n.claims(); !slices.Equal(got, []string{"Bound 8388608"}) {
		n.t.Errorf("there are the claims %v, want one of 8Mi", got)
	}
	if _, err := n.root.Restart(ctx, of.Service, false); err != nil {
		n.t.Fatal(err)
	}
	n.printedBy(inst, "main", "bye")
	if _, err := n.site.TakeSnapshot(ctx, of, 0); skerry.AsError(err).Code != skerry.CodeUnsupported {
		n.t.Errorf("a snapshot of the volume is answered with %v, want unsupported", err)
	}
	n.gone("kept")
	if got := n.claims(); !slices.Equal(got, []string{"Bound 8388608"}) {
		n.t.Errorf("when the application is deleted there are the claims %v, want the one that was", got)
	}
	n.await("it is applied again", func() bool {
		_, err := n.root.Apply(ctx, []byte(strings.ReplaceAll(sized("16Mi"), "\n", " ")), api.ApplyOptions{})
		return err == nil
	})
	runs(&inst)
	n.printedBy(inst, "main", "bye")
	if got := n.claims(); !slices.Equal(got, []string{"Bound 16777216"}) {
		n.t.Errorf("when the volume has grown there are the claims %v, want one of 16Mi", got)
	}
	n.robbed(inst)
	n.gone("kept")
	n.await("the volume is deleted", func() bool { return n.root.DeleteVolume(ctx, of) == nil })
	n.await("its claim has gone", func() bool { return len(n.claims()) == 0 })
}

// robbed has somebody else delete the claim of an instance. That is told; the next start has an empty volume.
func (n *kubernetesTest) robbed(i wire.Instance) {
	n.t.Helper()
	for _, c := range n.shelf.Claims() {
		if podstest.Text(c, "spec", "storageClassName") == n.shelf.Class {
			code, text := n.admin.Do(http.MethodDelete, "/api/v1/namespaces/skerry/persistentvolumeclaims/"+podstest.Text(c, "metadata", "name"),
				podstest.Object{}, nil)
			if code != http.StatusOK && code != http.StatusAccepted {
				n.t.Fatalf("delete a claim: status %d: %s", code, text)
			}
		}
	}
	n.await("the deletion is told", func() bool {
		events, err := n.site.Events(n.t.Context(), api.EventFilter{Namespace: "default", App: "kept"})
		return err == nil && slices.ContainsFunc(events, func(e wire.Event) bool { return e.Reason == "VolumeDeleted" })
	})
	if _, err := n.root.Restart(n.t.Context(), i.Service, false); err != nil {
		n.t.Fatal(err)
	}
	n.printedBy(i, "main", "new")
}
