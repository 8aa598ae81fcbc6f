package oakestra

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Every state and phase has a status, and none that Oakestra's clients do not know.
func TestStatuses(t *testing.T) {
	for _, tt := range []struct {
		state skerry.State
		phase skerry.Phase
		want  string
	}{
		{skerry.Registered, "", "REQUESTED"}, {skerry.Requested, "", "REQUESTED"}, {skerry.ClusterScheduled, "", "CLUSTER_SCHEDULED"},
		{skerry.WorkerScheduled, "", "NODE_SCHEDULED"}, {skerry.WorkerScheduled, skerry.PhaseFetching, "NODE_SCHEDULED"},
		{skerry.WorkerScheduled, skerry.PhaseStarting, "CREATING"}, {skerry.Running, skerry.PhaseRunning, "RUNNING"},
		{skerry.Running, skerry.PhaseBackOff, "FAILED"}, {skerry.Terminated, "", "COMPLETED"}, {skerry.Failed, "", "FAILED"},
	} {
		if got := status(&wire.Instance{State: tt.state, Phase: tt.phase}); got != tt.want {
			t.Errorf("%s %s is shown as %s, want %s", tt.state, tt.phase, got, tt.want)
		}
	}
}

// TestShapes shows what a root without sites has not: an instance that runs, two sites, and a service of an uncommon kind.
func TestShapes(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	running := wire.Instance{Ordinal: 2, State: skerry.Running, Phase: skerry.PhaseRunning, Cluster: "harbour",
		Resources: &spec.Resources{Memory: 64 * skerry.MiB}, QoS: &wire.QoS{CPU: 250, Memory: 16 * skerry.MiB},
		Ports: []wire.PortBinding{{Name: "http", Port: 80, HostPort: 8080}}}
	classes := []wire.ClassAggregate{{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci", "wasm"}}, Workers: 2},
		{Class: wire.Class{Arch: "arm64", Runtimes: []string{"native", "oci"}}, Workers: 1}}
	classes[0].Available[memoryOf].Sum = float64(3 * skerry.GiB)
	classes[1].Available[memoryOf].Sum = float64(skerry.GiB)
	machine := spec.ServiceSpec{Runtime: spec.RuntimeVM,
		Ports:     []spec.Port{{Port: 53, Protocol: "udp"}, {Port: 80, HostPort: 8080}, {Port: 443, HostPort: -1}},
		Resources: spec.Resources{CPU: 1500, Memory: 100*skerry.MiB + 1}}
	machine.Env = map[string]string{"B": "2", "A": "1"}
	text, err := json.MarshalIndent(map[string]any{
		"instance": showInstance(&running),
		"sites": []cluster{
			showCluster(&view.ClusterView{Name: "harbour", Connected: true, ReportAt: at,
				Report: wire.ClusterReport{Classes: classes, Centroid: &spec.Location{Lat: 54.32, Lon: 10.14}}}),
			showCluster(&view.ClusterView{Name: "island"})},
		"machine": describe(&machine),
	}, "", "  ")
	if err != nil {
		t.Fatalf("write it: %v", err)
	}
	want, err := os.ReadFile("testdata/shapes.json")
	if err != nil {
		t.Fatalf("read the golden file: %v", err)
	}
	if string(want) != string(text)+"\n" {
		t.Errorf("testdata/shapes.json is not what is shown:\n%s", text)
	}
}
