//go:build linux && amd64

package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
)

// TestMachine runs a service that asks for isolation by hardware: its machine answers at a port of the host, is charged what it
// takes, and goes on while the agent restarts.
func TestMachine(t *testing.T) {
	s := (&site{t: t, patience: 5 * time.Minute, machines: node.Machines{Kernel: testenv.GuestKernel(t), Emulate: true}}).open()
	files := t.TempDir()
	testenv.Build(t, filepath.Join(files, "catalog"), "skerry.dev/skerry/examples/shop/catalog")
	testenv.Build(t, filepath.Join(files, "workload"), workload)
	if _, err := s.Root.Images.Store.Build(t.Context(), artifact.BuildOptions{Source: files, Tag: "skerry.local/test/catalog:1"}); err != nil {
		t.Fatal(err)
	}
	s.do(apps.PutSecret{Namespace: "default", Name: "db", Value: spec.SecretValue{"password": []byte("correct horse")}})
	s.do(app("shop", service("web", "test/catalog:1", func(x *spec.ServiceSpec) {
		x.Isolation = spec.IsolationHardware
		x.Resources.CPU = 1000 // a processor that is emulated
		x.Command = []string{"/catalog"}
		x.User = "1234"
		x.Secrets = []spec.SecretUse{{Name: "db", Path: "/etc/db"}}
		x.Ports = []spec.Port{{Port: 8080, HostPort: -1}}
	})))
	s.await("the instance is ready", s.ready(1))
	i := s.only()
	if i.Runtime != spec.RuntimeMicroVM {
		t.Errorf("it runs in %s", i.Runtime)
	}
	if !strings.HasPrefix(i.Monitor, "QEMU ") {
		t.Errorf("its machine is run by %q", i.Monitor)
	}
	answers := func() bool {
		list, err := s.Cluster.Instances(t.Context())
		if err != nil || len(list) != 1 || len(list[0].Ports) != 1 {
			return false
		}
		res, err := http.Get("http://" + list[0].Ports[0].Address + "/healthz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	}
	s.await("it answers", answers)
	if out, ok := s.byWorker(i.ID, "/workload", "digest", "/etc/db/password"); !ok || out != fmt.Sprintf("%x", sha256.Sum256([]byte("correct horse"))) {
		t.Errorf("the secret: %q", out)
	}
	if out, ok := s.byWorker(i.ID, "/workload", "owner", "/etc/db/password"); !ok || !strings.HasPrefix(out, "1234 0400 ") {
		t.Errorf("the secret's owner: %q", out)
	}
	if found := findings(t, s.dir, "correct horse"); len(found) > 0 {
		t.Errorf("the secret stands in %v", found)
	}
	before := s.pids()
	s.stopAgent()
	if err := s.Worker.Close(); err != nil {
		t.Fatal(err)
	}
	if !answers() {
		t.Error("it ended with the agent")
	}
	s.startWorker("")
	s.await("the worker is back", func() bool {
		ws, err := s.Cluster.Workers(t.Context())
		return err == nil && len(ws) == 1 && ws[0].Connected && s.ready(1)()
	})
	if after := s.pids(); len(before) != 1 || after[i.ID] != before[i.ID] || !answers() {
		t.Errorf("it was process %v, and is %v", before, after)
	}
}
