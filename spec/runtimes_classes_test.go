package spec_test

import (
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// TestClassesOfAWorker gives a worker's runtimes, in which one a service runs there, and how near it comes where that is none.
func TestClassesOfAWorker(t *testing.T) {
	all := []string{"containerd", "containerd/hardware/kata-qemu", "containerd/hardware/kata-fc", "containerd/shared/crun", "microvm", "oci"}
	for _, tt := range []struct {
		name, runtime, class string
		isolation            spec.Isolation
		has                  []string
		want, miss           string
	}{
		{"no class", "containerd", "", "", all, "containerd", ""},
		{"one of its classes", "containerd", "crun", "", all, "containerd/shared/crun", ""},
		{"a machine by its class", "containerd", "kata-qemu", "", all, "containerd/hardware/kata-qemu", ""},
		{"any machine of containerd, the first by name", "containerd", "", "hardware", all, "containerd/hardware/kata-fc", ""},
		{"any machine, the cheapest", "auto", "", "hardware", all, "containerd/hardware/kata-fc", ""},
		{"no class without being asked", "auto", "", "", []string{"containerd/shared/crun", "containerd/hardware/kata-fc"}, "", ""},
		{"one that is no machine", "containerd", "crun", "hardware", all, "",
			"class crun keeps a service apart as shared, and hardware is asked for"},
		{"one that it has not", "containerd", "kata", "", all, "",
			"no class kata works; what does is crun (shared), kata-fc (hardware), kata-qemu (hardware)"},
		{"one of none", "containerd", "kata", "", []string{"containerd", "oci"}, "", "no class kata works, and no other"},
		{"the default is no class", "containerd", "", "hardware", []string{"containerd"}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := spec.ServiceSpec{Runtime: tt.runtime, RuntimeClass: tt.class, Isolation: tt.isolation}
			for range 2 { // in whatever order they are told
				if got := s.RuntimeOn("amd64", tt.has, nil); got != tt.want {
					t.Errorf("%q, not %q", got, tt.want)
				}
				tt.has = slices.Clone(tt.has)
				slices.Reverse(tt.has)
			}
			if tt.want != "" {
				if !s.Honours(tt.want) {
					t.Errorf("%s is not what it asks for", tt.want)
				}
			} else if got := s.ClassMiss(tt.has); got != tt.miss {
				t.Errorf("%q, not %q", got, tt.miss)
			}
		})
	}
}

// TestClassesCostWhatTheirKindDoes charges a class by its isolation, and gives it the figures of its row.
func TestClassesCostWhatTheirKindDoes(t *testing.T) {
	s := &spec.ServiceSpec{Runtime: "containerd", Isolation: "hardware"}
	if got := s.Overhead("containerd/hardware/kata").Memory; got != 162*skerry.MiB {
		t.Error(got)
	}
	_, microVM := spec.PublishedDemand()
	container, _ := spec.PublishedDemand()
	if f := spec.PublishedFigure("containerd/hardware/kata"); f.CPU != microVM/container || !strings.Contains(f.Source, "Kata") {
		t.Errorf("%+v", f)
	}
	for runtime, want := range map[string]bool{"containerd/hardware/kata": false, "containerd/shared/crun": true, "containerd": true} {
		if spec.HasDevices(runtime) != want {
			t.Error(runtime)
		}
	}
	var shown []string
	for _, c := range s.RuntimeChoices("containerd/hardware/kata", nil) {
		if c.Out == "" {
			shown = append(shown, c.Runtime)
		} else if !c.Unasked && !strings.HasPrefix(c.Out, "keeps services apart as ") {
			t.Errorf("%+v", c)
		}
	}
	if !slices.Equal(shown, []string{"containerd/hardware/kata"}) {
		t.Error(shown)
	}
	for _, bad := range []string{"containerd", "oci", "containerd/shared/kata", "nobody/knows"} {
		if s.Honours(bad) {
			t.Errorf("%s is no machine", bad)
		}
	}
}

// TestManifestsNameNoRows: the rows that stand for classes are not for manifests.
func TestManifestsNameNoRows(t *testing.T) {
	for _, n := range spec.RuntimeNames() {
		if strings.Contains(n, "/") {
			t.Error(n)
		}
	}
}

// FuzzParseRuntime takes names of runtimes as workers, and sites, may report them. What is in no name of a class shows up in no text.
func FuzzParseRuntime(f *testing.F) {
	for _, name := range []string{"", "oci", "containerd", "containerd/hardware", "containerd/hardware/", "containerd/hardware/kata",
		"containerd/hardware/kata/fc", "containerd//kata", "containerd/hardware/\x1b[2Jkata", "containerd/shared/" + strings.Repeat("x", 64), "unikernel-x/kata"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		kind, class := spec.ParseRuntime(name)
		if class == "" && kind != name || class != "" && (skerry.CheckName(class) != nil || kind+"/"+class != name) {
			t.Fatalf("%q and %q", kind, class)
		}
		if k := spec.RuntimeNamed(name); k != nil && class != "" && spec.ClassRuntime(k.Isolation, class) != name {
			t.Errorf("%q is taken for one of %s", name, k.Name)
		}
		asks := spec.ServiceSpec{Runtime: "containerd", RuntimeClass: "none"}
		if miss := asks.ClassMiss([]string{name}); class == "" && strings.Contains(miss, "what does is") {
			t.Error(miss)
		}
	})
}
