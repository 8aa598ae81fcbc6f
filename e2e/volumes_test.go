//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// inside runs a command in the only container that there is.
func (s *site) inside(args ...string) (string, int) {
	s.t.Helper()
	return s.insideOf("", args...)
}

// insideOf runs a command in a container of an instance; of any, without its name.
func (s *site) insideOf(id skerry.InstanceID, args ...string) (string, int) {
	s.t.Helper()
	out, code, err := s.tryInside(id, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out, code
}

// tryInside is insideOf for an instance that may be about to end, or to start.
func (s *site) tryInside(id skerry.InstanceID, args ...string) (string, int, error) {
	for _, d := range s.Worker.Drivers {
		list, err := d.List(context.Background())
		if err != nil {
			return "", 0, err
		}
		for _, h := range list {
			if st, err := d.Status(context.Background(), h); err != nil || st.State != runtime.StateRunning || id != "" && h.Instance != id {
				continue
			}
			var out bytes.Buffer
			code, err := d.(runtime.Execer).Exec(s.t.Context(), h, runtime.ExecSpec{Args: append([]string{"/program"}, args...), Stdout: &out, Stderr: &out})
			return out.String(), code, err
		}
	}
	return "", 0, errors.New("nothing runs")
}

// TestLocalVolume writes into the volume of a replica: it is there after an update, which starts the new instance when the old one has
// ended, after a restart of the agent, and after its application was deleted and applied again; it takes no more than its size; and with
// reclaim: delete it goes with its service, to the last loop device.
func TestLocalVolume(t *testing.T) {
	s := newSite(t)
	s.image("test/workload:1", workload)
	var rates spec.IOLimits // where the kernel can
	if slices.ContainsFunc(s.Worker.Runtimes(), func(r wire.RuntimeReport) bool {
		return r.Name == spec.RuntimeOCI && slices.Contains(r.Abilities, string(runtime.AbilityIO))
	}) {
		rates = spec.IOLimits{ReadIOPS: 5432, WriteIOPS: 4321}
	}
	version := func(n string, volumes ...spec.Volume) {
		t.Helper()
		s.do(app("ledger", service("db", "test/workload:1", func(x *spec.ServiceSpec) {
			x.Resources.IO = rates
			x.Args, x.Env, x.Volumes = []string{"sleep"}, map[string]string{"VERSION": n}, volumes
			for _, v := range volumes {
				x.Mounts = append(x.Mounts, spec.Mount{Volume: v.Name, Path: "/" + v.Name})
			}
		})))
	}
	data := spec.Volume{Name: "data", Local: &spec.LocalVolume{Size: 8 * skerry.MiB}}
	version("1", data, spec.Volume{Name: "scratch", Empty: &spec.EmptyVolume{Size: 4 * skerry.MiB}})
	s.await("it is ready", s.ready(1))
	first := s.only()
	if out, code := s.inside("write", "/data/note", "kept"); code != 0 {
		t.Fatal(out)
	}
	for _, volume := range []string{"data", "scratch"} {
		if out, code := s.inside("fill", "/"+volume+"/large", "16"); code == 0 || !strings.Contains(out, "no space left") {
			t.Errorf("16 MiB in %s: %d, %q", volume, code, out)
		}
	}
	if file, err := filepath.Glob("/sys/fs/cgroup/blkio/*/" + string(first.ID) + ".main.1/blkio.throttle.read_iops_device"); rates.ReadIOPS > 0 && err == nil && len(file) > 0 {
		if text, err := os.ReadFile(file[0]); err != nil || strings.Count(string(text), " 5432\n") != 3 {
			t.Errorf("its reads from the disk and two volumes are held to %q, %v", text, err)
		}
	}
	kept := func(when string) {
		t.Helper()
		if out, code := s.inside("read", "/data/note"); code != 0 || out != "kept" {
			t.Errorf("%s: %d, %q", when, code, out)
		}
	}
	version("2", data)
	s.await("another instance has taken its place", func() bool {
		list, err := s.Root.Instances(context.Background())
		if err == nil && len(s.pids()) > 1 {
			t.Error("two instances have one volume")
		}
		return err == nil && len(list) == 1 && list[0].ID != first.ID && s.ready(1)()
	})
	kept("after an update")

	s.stopAgent()
	if err := s.Worker.Close(); err != nil {
		t.Fatal(err)
	}
	s.startWorker("")
	s.await("the worker is back", func() bool {
		ws, err := s.Cluster.Workers(context.Background())
		return err == nil && len(ws) == 1 && ws[0].Connected && s.ready(1)()
	})
	kept("after a restart of the agent")

	volume := func() view.VolumeView {
		t.Helper()
		var list [2][]view.VolumeView
		var err error
		if list[0], err = s.Root.Volumes(t.Context()); err == nil {
			list[1], err = s.Cluster.Volumes(t.Context())
		}
		if err != nil || len(list[0]) != 1 || len(list[1]) != 1 || list[0][0].Worker != "" || list[1][0].Worker == "" {
			t.Fatalf("root and cluster list %+v, %v", list, err)
		}
		return list[0][0]
	}
	s.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "ledger"}})
	s.await("the application is gone", func() bool {
		list, _, err := s.Root.AppPage(t.Context(), apps.AppPage{})
		return err == nil && len(list) == 0 && len(s.pids()) == 0
	})
	if v := volume(); v.State != view.VolumeKept || v.Since.IsZero() || v.Size != 8*skerry.MiB {
		t.Errorf("the volume is %+v", v)
	}
	version("3", data)
	s.await("it is ready again", s.ready(1))
	kept("after its application was deleted and applied again")
	if v := volume(); v.State != view.VolumeUsed {
		t.Errorf("the volume is %+v", v)
	}
	data.Local = &spec.LocalVolume{Size: data.Local.Size, Reclaim: spec.ReclaimDelete}
	version("3", data)

	plan, err := s.Root.Plan(t.Context(), app("ledger", service("other", "test/workload:1")).App)
	if err != nil || len(plan.Lost) != 1 || !strings.Contains(plan.Lost[0], "db: the local volumes of 1 replica are removed") {
		t.Errorf("a plan without the service says %q, %v", plan.Lost, err)
	}
	s.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "ledger"}})
	s.await("nothing is left of it", func() bool {
		dir := filepath.Join(s.common("worker").Dir, "local")
		left := ""
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if path != dir {
				left = path
			}
			return nil
		})
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || left != "" || strings.Contains(string(mounts), s.dir) && strings.Contains(string(mounts), dir) {
			return false
		}
		used, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, path := range used {
			if file, _ := os.ReadFile(path); strings.HasPrefix(string(file), s.dir) {
				return false
			}
		}
		return s.ready(0)()
	})
}
