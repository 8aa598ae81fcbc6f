package lab

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cpus "skerry.dev/skerry/internal/topology"
	"skerry.dev/skerry/runtime"
)

const isolationLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default]}}
- {name: one, role: worker}
- {name: two, role: worker}
`

const isolationApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: guarded
    image: demo/kit:1
    args: [answer, ":80"]
    isolation: sandboxed
    ports: [{name: http, port: 80}]
    probes: {readiness: {http: {port: 80}, interval: 1s}}
    resources: {exclusiveCPUs: 1, memory: 64Mi}
    placement: {worker: one}
    terminationGrace: 1s
  - name: neighbour
    image: demo/kit:1
    args: [clock, /tmp/clock]
    resources: {cpu: 50m, memory: 32Mi}
    placement: {worker: one}
    terminationGrace: 1s
  - name: shared
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    resources: {cpu: 50m, memory: 32Mi}
    placement: {worker: two}
    terminationGrace: 1s
`

// processorsOf reads on which processors an instance may run.
func processorsOf(t *testing.T, id string) (cpus string) {
	t.Helper()
	for _, file := range []string{"cpuset.cpus", "cpuset.cpus.effective"} {
		_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && filepath.Base(path) == id+".main.1" && cpus == "" {
				data, _ := os.ReadFile(filepath.Join(path, file))
				cpus = strings.TrimSpace(string(data))
			}
			return nil
		})
	}
	return cpus
}

// TestIsolation runs a service that asks for a sandbox, and for a processor of its own, beside one that does not, on different workers: each is in the cheapest runtime that will
// do, reaches the other by its name, and is charged what its runtime takes.
func TestIsolation(t *testing.T) {
	if !with(t, "runsc") {
		t.Skip(&runtime.Unsupported{Driver: "gvisor", Reason: "runsc cannot be fetched"})
	}
	s := newSite(t, isolationLab, isolationApp)
	guarded, shared := s.instance("shop", "guarded", ""), s.instance("shop", "shared", "")
	if guarded.Runtime != "gvisor" || shared.Runtime != "oci" || guarded.Overhead.Memory <= shared.Overhead.Memory || shared.Overhead.Memory == 0 {
		t.Errorf("sandboxed runs in %s and takes %v, shared in %s and %v", guarded.Runtime, guarded.Overhead, shared.Runtime, shared.Overhead)
	}
	for from, to := range map[string]string{string(guarded.ID): "shared", string(shared.ID): "guarded"} {
		if by, _, err := s.get(from, "http://"+to+"/", 10); err != nil || len(by) != 1 {
			t.Errorf("%s asks %s: %v, %v", from, to, by, err)
		}
	}
	if machine, err := cpus.Read(os.DirFS("/sys")); err != nil {
		t.Fatal(err)
	} else if len(machine.Lendable()) > 0 {
		own, others := processorsOf(t, string(guarded.ID)), processorsOf(t, string(s.instance("shop", "neighbour", "").ID))
		if set, err := cpus.ParseSet(own); err != nil || len(set) != 1 || others != machine.Online.Minus(set).String() {
			t.Errorf("a processor of its own: it has %q, its neighbour %q, %v", own, others, err)
		}
	}
	if out := string(s.skerry("", "describe", "instance", string(guarded.ID))); !strings.Contains(out, "for runtime gvisor") {
		t.Errorf("what the sandbox takes is not told:\n%s", out)
	}
	if _, err := s.try(strings.ReplaceAll(isolationApp, "isolation: sandboxed", "isolation: sandboxed\n    runtime: oci"), s.l.Binary, "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), "keeps a service apart as shared") {
		t.Errorf("a sandbox was asked for, and a container named: %v", err)
	}
}
