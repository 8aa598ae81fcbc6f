//go:build linux

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// TestRebuild deletes a cluster's data. From a backup that is older than its worker the site is rebuilt: the worker comes back by its
// certificate, what the root placed and what the site had of its own runs on, and both can be governed again. Snapshots that the worker
// keeps are listed again.
func TestRebuild(t *testing.T) {
	p := newProcesses(t, "worker")
	do := func(args ...string) {
		t.Helper()
		cmd := exec.Command(p.program, args...)
		cmd.Env = append(os.Environ(), "SKERRY_PASSPHRASE=a passphrase of a test")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	p.keep(&role{name: "root", args: []string{"root", "--data", p.data("root"), "--link", "127.0.6.1:7443", "--api", "127.0.6.1:7480"}})
	site := []string{"cluster", "--name", "harbour", "--data", p.data("cluster"), "--root", "127.0.6.1:7443", "--link", "127.0.6.1:7444", "--api", "127.0.6.1:7481", "--relay", "", "--admission", p.admission()}
	token := joinToken(t, "https://127.0.6.1:7480", p.data("root"), wire.TierCluster)
	cluster := p.keep(&role{name: "cluster", args: append(slices.Clone(site), "--join", token)})
	token = joinToken(t, "https://127.0.6.1:7481", p.data("cluster"), wire.TierWorker)
	do("backup", "--data", p.data("cluster"), p.data("backup"))
	p.keep(&role{name: "worker", args: []string{"worker", "--name", "w1", "--data", p.data("worker"), "--cluster", "127.0.6.1:7444", "--join", token, "--run-dir", p.data("run"),
		"--cgroup-parent", p.cgroup(), "--address", "127.0.0.1", "--http", "", "--ingress=false", "--no-network"}})
	apply := func(server, dir, name string, replicas int) {
		t.Helper()
		c := login(t, server, dir)
		defer c.Close()
		applied(t, c, name, sleeping(name, replicas, 0), replicas)
	}
	apply("https://127.0.6.1:7480", p.data("root"), "global", 2)
	apply("https://127.0.6.1:7481", p.data("cluster"), "own", 2)
	// Of an application that is gone, its volume and a snapshot of it are left.
	c := login(t, "https://127.0.6.1:7481", p.data("cluster"))
	defer c.Close()
	applied(t, c, "gone", bytes.Replace(sleeping("gone", 1, 0), []byte(`"env"`), []byte(`"volumes":[{"name":"data","local":{}}],"env"`), 1), 1)
	gone := spec.VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "gone"}, Service: "web"}}
	if _, err := c.TakeSnapshot(t.Context(), gone, 0); err != nil {
		t.Fatal(err)
	}
	snapshots, err := c.Snapshots(t.Context(), "")
	if err != nil || len(snapshots) != 1 {
		t.Fatalf("%d snapshots are listed, %v", len(snapshots), err)
	}
	snap := snapshots[0]
	if err := c.DeleteApp(t.Context(), gone.Service.App); err != nil {
		t.Fatal(err)
	}
	await(t, "it has ended", func() bool { return len(nativePIDs(t, p.data("worker"))) == 4 })
	before := nativePIDs(t, p.data("worker"))
	if len(before) != 4 {
		t.Fatalf("%d processes run", len(before))
	}

	// People keep their passwords themselves.
	password, err := os.ReadFile(filepath.Join(p.data("cluster"), "admin-password"))
	if err == nil {
		err = os.MkdirAll(p.data("people"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(p.data("people"), "admin-password"), password, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cluster.kill()
	if err := os.RemoveAll(p.data("cluster")); err != nil {
		t.Fatal(err)
	}
	do("restore", "--data", p.data("cluster"), p.data("backup"))
	cluster.args = append(slices.Clone(site), "--rebuild")
	cluster.keep(t, p.program, p.log)
	var st struct {
		Rebuilt *view.Rebuilt `json:"rebuilt"`
	}
	await(t, "the site is rebuilt", func() bool {
		out, err := exec.Command(p.program, "cluster", "status", "--data", p.data("cluster"), "-o", "json").Output()
		st.Rebuilt = nil
		return err == nil && json.Unmarshal(out, &st) == nil && st.Rebuilt != nil && !st.Rebuilt.Waiting
	})
	if r := st.Rebuilt; r.Workers != 1 || r.OfRoot != 2 || len(r.Local) != 1 || r.Local[0].Instances != 2 || len(r.Left) != 0 {
		t.Errorf("%+v", r)
	}
	if after := nativePIDs(t, p.data("worker")); !maps.Equal(after, before) {
		t.Errorf("processes %v became %v", before, after)
	}
	again := login(t, "https://127.0.6.1:7481", p.data("people"))
	defer again.Close()
	if list, err := again.Snapshots(t.Context(), ""); err != nil || !reflect.DeepEqual(list, snapshots) {
		t.Errorf("the site lists %+v, want %+v; %v", list, snapshots, err)
	}
	if from, _, err := again.OpenSnapshot(t.Context(), snap.ID); err != nil {
		t.Error(err)
	} else if file, err := io.ReadAll(from); err != nil || from.Close() != nil || fmt.Sprintf("%x", sha256.Sum256(file)) != snap.SHA256 {
		t.Errorf("of the snapshot %d bytes can be read, not those that were taken; %v", len(file), err)
	}
	apply("https://127.0.6.1:7481", p.data("people"), "own", 3)
	apply("https://127.0.6.1:7480", p.data("root"), "global", 1)
	var after map[skerry.InstanceID]int
	await(t, "three and one are left", func() bool {
		after = nativePIDs(t, p.data("worker"))
		return len(after) == 4
	})
	kept := 0
	for id, pid := range before {
		if after[id] == pid {
			kept++
		}
	}
	if kept != 3 {
		t.Errorf("processes %v became %v", before, after)
	}
}
