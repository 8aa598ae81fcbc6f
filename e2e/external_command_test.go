//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/wire"
)

// TestExternalAgentByCommand does with the commands what an operator does with a device, at a site whose process is killed in between.
func TestExternalAgentByCommand(t *testing.T) {
	dir := t.TempDir()
	program := testenv.Program(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	data, admission := filepath.Join(dir, "cluster"), filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(admission, []byte("trusted: [default]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	site := &role{name: "cluster", args: []string{"cluster", "--standalone", "--name", "island", "--data", data, "--link", "127.0.0.1:7444", "--api", "127.0.0.1:7481",
		"--relay", "", "--mqtt", "127.0.0.1:8883", "--admission", admission}}
	site.start(t, program, log)
	t.Cleanup(func() {
		site.kill()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("log: %s", text[max(0, len(text)-6000):])
		}
	})
	token := joinToken(t, "https://127.0.0.1:7481", data, wire.TierWorker)
	v := newDevice(t, "plc-7", "127.0.0.1:1,127.0.0.1:8883", filepath.Join(dir, "device")) // the first is not there
	v.start("--join", token, "--name", "plc-7")

	try := func(args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := try(args...)
		if err != nil {
			t.Fatalf("skerry %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	run("login", "--trust", "-u", "admin", "--password-file", filepath.Join(data, parents.AdminPasswordFile), "https://127.0.0.1:7481")
	await(t, "it is a worker", func() bool {
		out, _ := try("get", "workers", "-o", "wide")
		return strings.Contains(out, "plc-7") && strings.Contains(out, "native") && strings.Contains(out, "skerry-agent.py")
	})
	if out := run("describe", "worker", "plc-7"); !strings.Contains(out, "connected by MQTT; only that connection shows") || !strings.Contains(out, "this agent runs plain processes") {
		t.Error(out)
	}
	run("apply", "-f", "../examples/apps/native.yaml")
	await(t, "it runs", func() bool { return len(v.pids()) == 1 })
	before := v.pids()
	id := ""
	for id = range before {
	}
	if out := run("get", "instances", "-o", "wide"); !strings.Contains(out, id) || !strings.Contains(out, "plc-7") {
		t.Error(out)
	}
	if out, err := try("logs", "heartbeat/beat"); err == nil || !strings.Contains(out, "carries no streams") {
		t.Errorf("%v %s", err, out)
	}
	await(t, "its output is kept", func() bool {
		output, err := os.ReadFile(filepath.Join(v.dir, "instances", id, "1", "output"))
		return err == nil && strings.HasPrefix(string(output), id+" on plc-7")
	})
	run("cordon", "plc-7")
	await(t, "it takes nothing new", func() bool { return strings.Contains(run("get", "workers"), "Cordoned") })
	run("uncordon", "plc-7")

	site.kill()
	site.start(t, program, log)
	await(t, "the device is back", func() bool {
		out, err := try("get", "workers")
		return err == nil && strings.Contains(out, "Connected")
	})
	if after := v.pids(); after[id] != before[id] {
		t.Errorf("%v, then %v", before, after)
	}
	if out, err := try("worker", "forget", "plc-7"); err == nil || !strings.Contains(out, "is connected") {
		t.Errorf("%v %s", err, out)
	}
	run("delete", "app", "heartbeat", "--wait")
	if left := v.pids(); len(left) > 0 {
		t.Errorf("%v", left)
	}
	v.kill(syscall.SIGTERM)
	await(t, "it is not connected", func() bool { return !strings.Contains(run("get", "workers"), "Connected") })
	run("worker", "forget", "plc-7")
	v.start()
	await(t, "it is refused", func() bool {
		text, _ := os.ReadFile(v.dir + ".log")
		return strings.Contains(string(text), "the cluster refuses: revoked")
	})
	v.kill(syscall.SIGTERM)
}
