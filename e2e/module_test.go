//go:build linux

package e2e

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestModule runs a WebAssembly module as a service: it answers at the worker's port and, to a container, at its service address.
// A module is refused where a container is asked for, and the other way round; auto tells them apart.
func TestModule(t *testing.T) {
	s := newSite(t)
	s.patience = 4 * time.Minute // the module is compiled with a fifth of a processor, by a program that the race detector slows down
	s.image("test/kit:1", "skerry.dev/skerry/examples/kit")
	module := filepath.Join(t.TempDir(), "greet")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", module, "skerry.dev/skerry/examples/greet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the module: %v\n%s", err, out)
	}
	img, err := s.Root.Images.Store.Build(t.Context(), artifact.BuildOptions{Source: module, Tag: "skerry.local/test/greet:1"})
	if err != nil || img.Platform != artifact.WasmPlatform() {
		t.Fatalf("%+v, %v", img.Platform, err)
	}
	s.do(apps.PutSecret{Namespace: "default", Name: "greeting", Value: spec.SecretValue{"text": []byte("Good morrow\n")}})
	one := 1
	greet := spec.ServiceSpec{Name: "greet", Runtime: spec.RuntimeWasm, Wasm: &spec.Wasm{Handler: "http"}, Ports: []spec.Port{{Name: "http", Port: 80, HostPort: -1}},
		Addresses: &spec.ServiceAddresses{RoundRobin: netip.MustParseAddr("10.30.9.1")}, Volumes: []spec.Volume{{Name: "data", Empty: &spec.EmptyVolume{}}},
		Config: []spec.ConfigFile{{Path: "/etc/greet/note", Content: "x"}},
		// The race detector, with which these tests run, takes several times the memory of what ships.
		Resources: spec.Resources{CPU: 200, Memory: 384 * skerry.MiB}, Probes: spec.Probes{Readiness: &spec.Probe{HTTP: &spec.HTTPProbe{Port: 80, Path: "/"}}}}
	greet.Env, greet.Secrets = map[string]string{"GREETING_FILE": "/etc/greeting/text"}, []spec.SecretUse{{Name: "greeting", Path: "/etc/greeting"}}
	greet.Image, greet.Mounts = "test/greet:1", []spec.Mount{{Volume: "data", Path: "/data"}}
	if _, err := s.Root.Do(t.Context(), app("greeter", greet)); err != nil {
		t.Fatal(err)
	}
	s.await("the module is ready", s.ready(1))
	list, err := s.Cluster.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("curl", "-sS", "-m", "5", "-d", "Anne", "http://"+list[0].Ports[0].Address+"/").CombinedOutput()
	if want := "Good morrow, Anne! Instance " + string(list[0].ID) + " on worker w1.\n"; err != nil || string(out) != want {
		t.Errorf("at the worker's port: %q, %v; not %q", out, err, want)
	}
	ask := spec.ServiceSpec{Name: "ask", Mode: spec.ModeJob, Job: &spec.JobSpec{BackoffLimit: &one}, Resources: spec.Resources{CPU: 200, Memory: 64 * skerry.MiB}}
	ask.Image, ask.Args = "test/kit:1", []string{"get", "http://10.30.9.1/", "3"}
	// What an image is made for is known when it is resolved.
	for image, runtime := range map[string]string{"test/kit:1": spec.RuntimeWasm, "test/greet:1": spec.RuntimeOCI} {
		wrong := spec.ServiceSpec{Name: "wrong", Runtime: runtime}
		wrong.Image = image
		if _, err := s.Root.Do(t.Context(), app("greeter", greet, wrong)); err == nil || !strings.Contains(err.Error(), "runtime "+runtime+" of service wrong needs ") {
			t.Errorf("%s in %s: %v", image, runtime, err)
		}
	}
	once := spec.ServiceSpec{Name: "once", Mode: spec.ModeJob, Job: &spec.JobSpec{BackoffLimit: &one}, Resources: greet.Resources}
	once.Image, once.Env = "test/greet:1", map[string]string{"REQUEST_METHOD": "GET"}
	if _, err := s.Root.Do(t.Context(), app("greeter", greet, ask, once)); err != nil {
		t.Fatal(err)
	}
	s.await("a container reached the module at its service address", func() bool {
		list, _ := s.Root.Instances(t.Context())
		return slices.ContainsFunc(list, func(i wire.Instance) bool { return i.Service.Service == "ask" && i.State == skerry.Terminated })
	})
	s.await("auto runs a module as what it is", func() bool {
		list, _ := s.Root.Instances(t.Context())
		return slices.ContainsFunc(list, func(i wire.Instance) bool {
			return i.Service.Service == "once" && i.Runtime == spec.RuntimeWasm && i.State == skerry.Terminated
		})
	})
	if _, err := s.Root.Do(t.Context(), apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "greeter"}}); err != nil {
		t.Fatal(err)
	}
	s.await("nothing is left", s.ready(0))
}
