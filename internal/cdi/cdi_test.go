package cdi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const acme = `
cdiVersion: "0.6.0"
kind: acme.example/sensor
containerEdits:
  env: [SENSOR_API=2]
devices:
- name: "0"
  containerEdits:
    env: [SENSOR=0]
    deviceNodes:
    - {path: /dev/sensor, hostPath: HERE/null0, permissions: rw}
    mounts:
    - {hostPath: /usr/lib/sensor, containerPath: /usr/lib/sensor, options: [ro, nosuid]}
- name: gone
  containerEdits:
    deviceNodes: [{path: HERE/nothing}]
`

func TestLoad(t *testing.T) {
	dir, later := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "HERE", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(dir, "null0", "")
	write(dir, "acme.yaml", acme)
	write(dir, "broken.json", "{")
	write(dir, "readme.txt", "not read")
	write(dir, "double.json", `{"cdiVersion": "0.5.0", "kind": "acme.example/twice", "devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}]}`)
	write(dir, "double2.json", `{"cdiVersion": "0.5.0", "kind": "acme.example/twice", "devices": [{"name": "a", "containerEdits": {"env": ["A=2"]}}, {"name": "b"}]}`)
	r := Load([]string{dir, later, "/nonexistent"})
	if got := r.Names(); !slices.Equal(got, []string{"acme.example/sensor=0", "acme.example/twice=b"}) {
		t.Errorf("devices %v", got)
	}
	if len(r.Problems) != 2 || !strings.Contains(r.Problems[filepath.Join(dir, "double2.json")], "acme.example/twice=a") || r.Problems[filepath.Join(dir, "broken.json")] == "" {
		t.Errorf("problems %v", r.Problems)
	}
	e, ok := r.Device("acme.example/sensor=0")
	if !ok || !slices.Equal(e.Env, []string{"SENSOR_API=2", "SENSOR=0"}) || len(e.DeviceNodes) != 1 || e.DeviceNodes[0].Host() != dir+"/null0" || len(e.Mounts) != 1 {
		t.Errorf("%+v, %v", e, ok)
	}
	// A later directory takes the place of an earlier one.
	write(later, "acme.yaml", strings.ReplaceAll(acme, "HERE/null0", "/dev/null"))
	if e, _ := Load([]string{dir, later}).Device("acme.example/sensor=0"); len(e.DeviceNodes) != 1 || e.DeviceNodes[0].Host() != "/dev/null" {
		t.Errorf("the later one does not win: %+v", e)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "kind",
		`{"cdiVersion": "0.6.0", "kind": "acme/sensor=1", "devices": [{"name": "a"}]}`:                                                                                       "kind",
		`{"cdiVersion": "7", "kind": "acme.example/sensor", "devices": [{"name": "a"}]}`:                                                                                     "version",
		`{"cdiVersion": "0.6.0", "kind": "acme.example/sensor"}`:                                                                                                             "no device",
		`{"cdiVersion": "0.6.0", "kind": "acme.example/sensor", "devices": [{"name": "a"}, {"name": "a"}]}`:                                                                  "twice",
		`{"cdiVersion": "0.6.0", "kind": "acme.example/sensor", "devices": [{"name": "a b"}]}`:                                                                               "no name",
		`{"cdiVersion": "0.6.0", "kind": "acme.example/sensor", "devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "../dev/sda"}]}}]}`:                    "absolute",
		`{"cdiVersion": "0.6.0", "kind": "acme.example/sensor", "devices": [{"name": "a", "containerEdits": {"mounts": [{"hostPath": "/a/../b", "containerPath": "/c"}]}}]}`: "absolute",
		`{"cdiVersion": "0.6.0", "kind": "acme.example/sensor", "devices": [{"name": "a", "containerEdits": {"hooks": [{"hookName": "someday", "path": "/x"}]}}]}`:           "hook",
		`{"cdiVersion": "0.6.0", "kind": "acme.example/sensor", "devices": [{"name": "a", "containerEdits": {"env": ["A"]}}]}`:                                               "NAME=value",
		`{"cdiVersion": "0.6.0", "kind": "acme.example/sensor", "devices": [{"name": "a", "containerEdits": {"netDevices": [{"name": "eth0"}]}}]}`:                           "netDevices",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not about %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(acme))
	f.Add([]byte(`{"cdiVersion": "0.6.0", "kind": "a/b", "devices": [{"name": "c", "containerEdits": {"hooks": [{"hookName": "createRuntime", "path": "/x"}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			return
		}
		for _, d := range s.Devices {
			for _, n := range d.Edits.DeviceNodes {
				if !filepath.IsAbs(n.Host()) || filepath.Clean(n.Host()) != n.Host() {
					t.Errorf("node %q", n.Host())
				}
			}
		}
	})
}
