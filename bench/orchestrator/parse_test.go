package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	list, err := ParseProcesses("control 1\nworker 4194304\n")
	if err != nil || !slices.Equal(list, []Process{{Control, 1}, {Worker, 4194304}}) {
		t.Error(list, err)
	}
	if list, err := ParseProcesses(""); err != nil || list != nil {
		t.Error(list, err)
	}
	for _, bad := range []string{"control 1", "\n", "control 1\n\n", "control  1\n", "control 01\n", "control +1\n", "control 0\n", "control 4194305\n", "control -1\n",
		"worker\n", "Worker 1\n", "control 1 \n", "control 1\r\n", "control 1\nworker 1\n", strings.Repeat("worker 7\n", 2)} {
		if list, err := ParseProcesses(bad); err == nil {
			t.Errorf("%q is %v", bad, list)
		}
	}
	if v, err := ParseVersion("Nomad v1.2 (größer)\n"); err != nil || v != "Nomad v1.2 (größer)" {
		t.Error(v, err)
	}
	for _, bad := range []string{"", "\n", "1", " 1\n", "1\n2\n", "1\x1b[2J\n", "1\xff\n", strings.Repeat("v", 101) + "\n"} {
		if v, err := ParseVersion(bad); err == nil {
			t.Errorf("%q is %q", bad, v)
		}
	}
	if r := reason("noise\nno \x1b[1mserver\x1b\n\n"); r != "no  [1mserver" {
		t.Errorf("%q", r)
	}
	if n := nameOf("/a.b/k3s.sh"); n != "k3s" {
		t.Error(n)
	}
}

// What is read can be written again as it was.
func FuzzParse(f *testing.F) {
	f.Add("control 1\nworker 2\n")
	f.Add("Kubernetes v1.32.4\n")
	f.Add("control 01\n")
	f.Fuzz(func(t *testing.T, out string) {
		if list, err := ParseProcesses(out); err == nil {
			text := ""
			for _, p := range list {
				text += fmt.Sprintf("%s %d\n", p.Kind, p.PID)
			}
			if text != out {
				t.Errorf("%q was read as %q", out, text)
			}
		}
		if v, err := ParseVersion(out); err == nil && (v+"\n" != out || strings.ContainsAny(v, "\n\x1b")) {
			t.Errorf("%q was read as %q", out, v)
		}
		if r := reason(out); strings.ContainsAny(r, "\n\t\x1b") || len([]rune(r)) > maxReason+3 {
			t.Errorf("%q gave %q", out, r)
		}
	})
}
