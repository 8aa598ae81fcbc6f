package convert

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOakestra(t *testing.T) {
	const file = "testdata/oakestra/robots/sla.json"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the SLA: %v", err)
	}
	if format := Detect(data); format != FormatOakestra {
		t.Errorf("it is taken for %q", format)
	}
	result, err := Oakestra(data, Options{})
	golden(t, filepath.Join(filepath.Dir(file), "want"), result, err)
}

// TestNoOakestraFieldIsIgnored sets one field after the other, as Oakestra's schema of an SLA has them.
func TestNoOakestraFieldIsIgnored(t *testing.T) {
	const base = `{"sla_version":"v2.0","applications":[{"application_name":"it","microservices":[
		{"microservice_name":"one","virtualization":"container","code":"x",
		"constraints":[{"type":"geo","location":"1,2"}],
		"connectivity":[{"target_microservice_id":"two","con_constraints":[
			{"type":"latency","threshold":5,"rigidness":0.5,"convergence_time":5}]}]},
		{"microservice_name":"two","virtualization":"container","code":"x"}]}]}`
	var sla map[string]any
	if err := json.Unmarshal([]byte(base), &sla); err != nil {
		t.Fatalf("read the base: %v", err)
	}
	outcome := func(sla map[string]any) string {
		text, err := json.Marshal(sla)
		if err != nil {
			t.Fatalf("write the SLA: %v", err)
		}
		result, err := Oakestra(text, Options{})
		if result == nil {
			return err.Error()
		}
		manifest, err := result.Manifest()
		if err != nil {
			t.Fatalf("write the manifest: %v", err)
		}
		return fmt.Sprintf("%s%+v", manifest, result.Fields)
	}
	without := outcome(sla)
	const service = "applications.0.microservices.0."
	for path, value := range map[string]any{
		"sla_version": "v1", "customerID": 7, "args.0": "x", "other": "x", "applications.0.applicationID": "7",
		"applications.0.application_name": "app", "applications.0.application_namespace": "n", "applications.0.application_desc": "d",
		"applications.0.other": "x", service + "microserviceID": "7", service + "microservice_name": "three",
		service + "microservice_namespace": "n", service + "virtualization": "unikernel", service + "memory": 7, service + "vcpus": 7,
		service + "volumes.0.volume_id": "x", service + "volumes.0.csi_driver": "x", service + "volumes.0.mount_path": "/x",
		service + "vgpus": 7, service + "vtpus": 7, service + "bandwidth_in": 7, service + "bandwidth_out": 7, service + "storage": 7,
		service + "code": "y", service + "state": "x", service + "port": "80", service + "one_shot": true, service + "privileged": true,
		service + "cmd.0": "x", service + "environment.0": "A=b", service + "sla_violation_strategy": "x", service + "target_node": "x",
		service + "addresses.rr_ip": "10.30.0.7", service + "addresses.rr_ip_v6": "fd30::7", service + "addresses.closest_ip": "10.30.0.8",
		service + "addresses.closest_ip_v6": "fd30::8", service + "addresses.instances.0.from": "x", service + "added_files.0": "x",
		service + "args.0": "x", service + "constraints.0.type": "latency", service + "constraints.0.area": "x",
		service + "constraints.0.cluster": "x", service + "constraints.0.node": "x", service + "constraints.0.location": "3,4",
		service + "constraints.0.threshold": 7, service + "constraints.0.rigidness": 0.7, service + "constraints.0.convergence_time": 7,
		service + "constraints.0.needs.0": "x", service + "constraints.0.allowed.0": "x", service + "constraints.0.other": "x",
		service + "connectivity.0.target_microservice_id":             "x",
		service + "connectivity.0.con_constraints.0.type":             "bandwidth",
		service + "connectivity.0.con_constraints.0.threshold":        7,
		service + "connectivity.0.con_constraints.0.rigidness":        0.7,
		service + "connectivity.0.con_constraints.0.convergence_time": 7,
		service + "connectivity.0.other":                              "x",
		service + "other":                                             "x",
	} {
		if outcome(withField(sla, strings.Split(path, "."), value)) == without {
			t.Errorf("nothing is said of %s", path)
		}
	}
}

func TestBadOakestra(t *testing.T) {
	for text, want := range map[string]string{
		`{"sla_version": "v2.0", "customerID": "a", "applications": [`: "line 1",
		`[]`: "it is not an object",
		`{"sla_version": "v2.0", "customerID": "a", "applications": []}`:                                     "no service that Skerry could run",
		`{"sla_version": "v2.0", "sla_version": "v2.0", "applications": []}`:                                 "already set",
		`{"sla_version": "v2.0", "applications": [{"application_name":"a","microservices":[{"code":"x"}]}]}`: "name",
	} {
		if _, err := Oakestra([]byte(text), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", text, err, want)
		}
	}
}

// A field that is not known is not what another one was meant to be.
func TestMisspeltField(t *testing.T) {
	result, err := Oakestra([]byte(`{"sla_version": "v2.0", "applications": [{"application_name": "a", "colour": 1, "colours": 1, "microservises": 1,
		"microservices": [{"microservice_name": "one", "code": "x:1"}]}]}`), Options{})
	if err != nil {
		t.Fatalf("convert the SLA: %v", err)
	}
	for _, f := range result.Fields {
		if f.Verdict == Refused && strings.Contains(f.Note, "did you mean") != (f.Path == "applications[0].microservises") {
			t.Errorf("%s: %s", f.Path, f.Note)
		}
	}
}

// FuzzOakestra holds that no file ends the program, and that what is converted without a refusal is a manifest.
func FuzzOakestra(f *testing.F) {
	addFiles(f, "testdata/oakestra/*/sla.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		if result, err := Oakestra(data, Options{}); err == nil {
			if _, err := result.Manifest(); err != nil {
				t.Errorf("write the manifest: %v", err)
			}
		}
	})
}
