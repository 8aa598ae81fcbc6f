package spec_test

import (
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// TestRuntimesByWhatTheyCannotDo gives services that ask for something, with the runtimes that remain and the words of a refusal.
func TestRuntimesByWhatTheyCannotDo(t *testing.T) {
	probe := &spec.Probe{Exec: &spec.ExecProbe{Command: []string{"true"}}}
	for _, tt := range []struct {
		name, runtime string
		isolation     spec.Isolation
		set           func(*spec.ServiceSpec)
		want          []string
		refused       string
	}{
		{"nothing asked", "auto", "", nil, []string{"oci", "containerd", "gvisor", "microvm"}, ""},
		{"sidecars", "auto", "", func(s *spec.ServiceSpec) { s.Sidecars = sidecar() }, []string{"oci", "containerd", "gvisor"}, ""},
		{"privileged", "auto", "", func(s *spec.ServiceSpec) { s.Security.Privileged = true }, []string{"oci", "containerd", "microvm"}, ""},
		{"privileged, sandboxed", "auto", "sandboxed", func(s *spec.ServiceSpec) { s.Security.Privileged = true }, []string{"microvm"}, ""},
		{"both, sandboxed", "auto", "sandboxed", func(s *spec.ServiceSpec) { s.Security.Privileged, s.Sidecars = true, sidecar() }, nil,
			"no runtime with isolation sandboxed can run it: gvisor has no privileges on the host: system calls are answered by a kernel that has none itself; microvm has no sidecars"},
		{"a class", "containerd", "", func(s *spec.ServiceSpec) { s.RuntimeClass = "kata" }, []string{"containerd/shared/kata",
			"containerd/sandboxed/kata", "containerd/hardware/kata"}, ""},
		{"a class of hardware", "containerd", "hardware", func(s *spec.ServiceSpec) { s.RuntimeClass = "kata" },
			[]string{"containerd/hardware/kata"}, ""},
		{"any class that is sandboxed", "containerd", "sandboxed", nil, []string{"containerd/sandboxed", "containerd/hardware"}, ""},
		{"any runtime that is sandboxed", "auto", "sandboxed", nil, []string{"gvisor", "containerd/sandboxed", "containerd/hardware",
			"microvm"}, ""},
		{"any runtime of hardware", "auto", "hardware", nil, []string{"containerd/hardware", "microvm"}, ""},
		{"sidecars in a class", "containerd", "", func(s *spec.ServiceSpec) { s.RuntimeClass, s.Sidecars = "kata", sidecar() },
			[]string{"containerd/shared/kata", "containerd/sandboxed/kata"}, ""},
		{"sidecars in a class of hardware", "containerd", "hardware", func(s *spec.ServiceSpec) {
			s.RuntimeClass, s.Sidecars = "kata",
				sidecar()
		}, []string{},
			"no runtime with isolation hardware can run it: containerd/hardware/kata has no sidecars: a machine holds one container"},
		{"a class of another runtime", "oci", "", func(s *spec.ServiceSpec) { s.RuntimeClass = "kata" }, []string{"oci"},
			"spec.services[0].runtimeClass: classes are those of runtime containerd, and the service has runtime: oci (write runtime: containerd beside it)"},
		{"a class of no runtime", "", "", func(s *spec.ServiceSpec) { s.RuntimeClass = "kata" }, []string{"oci", "containerd", "gvisor",
			"microvm"}, "and the service has runtime: auto"},
		{"a class that has no name", "containerd", "", func(s *spec.ServiceSpec) { s.RuntimeClass = "a/b" }, []string{"containerd/shared/a/b",
			"containerd/sandboxed/a/b", "containerd/hardware/a/b"}, "spec.services[0].runtimeClass: "},
		{"sidecars in a machine", "microvm", "", func(s *spec.ServiceSpec) { s.Sidecars = sidecar() }, []string{"microvm"}, "runtime microvm has no sidecars: a machine holds one container"},
		{"a terminal in a module", "wasm", "", func(s *spec.ServiceSpec) { s.TTY = true }, []string{"wasm"}, "spec.services[0].tty: runtime wasm has no terminals"},
		{"a command in a module", "wasm", "", func(s *spec.ServiceSpec) { s.Probes.Liveness = probe }, []string{"wasm"}, "probes.liveness.exec: runtime wasm has no commands run as probes"},
		{"datagrams in a module", "wasm", "", func(s *spec.ServiceSpec) { s.Ports = []spec.Port{{Port: 1}, {Port: 2, Protocol: "udp"}} }, []string{"wasm"}, "ports[1].protocol: runtime wasm has no ports other than TCP"},
		{"a user in a sidecar of a module", "wasm", "", func(s *spec.ServiceSpec) { s.Sidecars = sidecar(); s.Sidecars[0].User = "1" }, []string{"wasm"}, "sidecars[0].user: runtime wasm has no users"},
		{"a read-only root of the host", "native", "", func(s *spec.ServiceSpec) { s.Security.ReadOnlyRoot = true }, []string{"native"}, "security.readOnlyRoot: runtime native has no read-only root"},
		{"a read-only disk", "vm", "", func(s *spec.ServiceSpec) { s.Security.ReadOnlyRoot = true }, []string{"vm"}, "security.readOnlyRoot: runtime vm has no read-only root"},
		{"a directory in a unikernel", "unikernel", "", func(s *spec.ServiceSpec) { s.WorkingDir = "/x" }, []string{"unikernel"}, "workingDir: runtime unikernel has no working directory"},
		{"a disk that is told", "vm", "hardware", func(s *spec.ServiceSpec) {
			s.Machine = &spec.Machine{UserData: "#!/bin/sh\n", SSHKeys: []string{"ssh-ed25519 AAAA ann"}}
		}, []string{"vm"}, ""},
		{"a command on a disk", "vm", "", func(s *spec.ServiceSpec) { s.Args = []string{"x"} }, []string{"vm"}, "command: runtime vm has no command of its own"},
		{"a secret on a disk", "vm", "", func(s *spec.ServiceSpec) { s.Secrets = []spec.SecretUse{{Name: "key"}} }, []string{"vm"}, "secrets: runtime vm has no secrets"},
		{"a file in a unikernel", "unikernel", "", func(s *spec.ServiceSpec) { s.Config = []spec.ConfigFile{{Path: "/x"}} }, []string{"unikernel"}, "config: runtime unikernel has no config files"},
		{"a container with a machine's words", "oci", "", func(s *spec.ServiceSpec) { s.Machine = &spec.Machine{} }, []string{"oci"}, "machine: it is for machines that boot a disk"},
		{"words of no kind", "vm", "", func(s *spec.ServiceSpec) { s.Machine = &spec.Machine{UserData: "hello"} }, []string{"vm"}, "machine.userData: cloud-init would not know"},
		{"a key of two lines", "vm", "", func(s *spec.ServiceSpec) { s.Machine = &spec.Machine{SSHKeys: []string{"a b\nc"}} }, []string{"vm"}, "machine.sshKeys[0]: it is no public key"},
		{"a durability", "vm", "", func(s *spec.ServiceSpec) { s.Machine = &spec.Machine{Durability: "some"} }, []string{"vm"}, "machine.durability: \"some\" is not known"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := spec.ServiceSpec{Name: "s", Runtime: tt.runtime, Isolation: tt.isolation, Container: spec.Container{Image: "a/b:1"}}
			if tt.set != nil {
				tt.set(&s)
			}
			if got := s.Runtimes(); !slices.Equal(got, tt.want) {
				t.Errorf("%v, not %v", got, tt.want)
			}
			a := spec.Application{APIVersion: "skerry/v1", Kind: "Application", Metadata: spec.Metadata{Name: "app"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}
			err := a.Validate()
			switch {
			case tt.refused == "" && err != nil:
				t.Error(err)
			case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("%v does not tell %q", err, tt.refused)
			}
		})
	}
}

func sidecar() []spec.SideContainer {
	return []spec.SideContainer{{Name: "log", Container: spec.Container{Image: "a/b:1"}}}
}

// TestPlatformsAreTheServers takes what a manifest says of its images for nothing.
func TestPlatformsAreTheServers(t *testing.T) {
	a, err := spec.DecodeApplication([]byte(`{"apiVersion": "skerry/v1", "kind": "Application", "metadata": {"name": "a"},
		"spec": {"services": [{"name": "s", "image": "a/b:1", "platforms": ["vax/vms"]}]}}`))
	if err != nil || a.Spec.Services[0].Platforms != nil {
		t.Fatalf("%+v, %v", a, err)
	}
}
