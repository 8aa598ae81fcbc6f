//go:build linux

package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/decide/apps"
)

// small makes a disk, fills it on request, but for so many bytes, and frees it again.
func small(t *testing.T, size string) (disk string, fill func(leave uint64), free func()) {
	t.Helper()
	disk = t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	file := filepath.Join(disk, "fill")
	fill = func(leave uint64) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for chunk := make([]byte, 1<<16); len(chunk) > 0; {
			var st unix.Statfs_t
			if err := unix.Statfs(disk, &st); err != nil {
				t.Fatal(err)
			}
			if leave > 0 && st.Bavail*uint64(st.Bsize) <= leave {
				return
			}
			if _, err := f.Write(chunk); err != nil {
				chunk = chunk[:len(chunk)/2]
			}
		}
	}
	return disk, fill, func() {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// visit has a client ask the only instance again and again. What it gives checks that nothing failed.
func (s *site) visit() (check func()) {
	s.t.Helper()
	list, err := s.Cluster.Instances(s.t.Context()) // the root does not know where it is
	if err != nil || len(list) != 1 || list[0].Address == "" {
		s.t.Fatalf("%+v, %v", list, err)
	}
	url := "http://" + list[0].Address + ":8080/"
	s.await("it listens", func() bool {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	c := ask(s.t, url)
	return func() {
		s.t.Helper()
		s.await("it was asked often enough", func() bool { return c.good.Load()+c.bad.Load() >= 20 })
		c.end()
		if bad := c.bad.Load(); bad > 0 {
			s.t.Errorf("of %d requests %d failed: %v", c.good.Load()+bad, bad, c.last.Load())
		}
	}
}

// A full disk at a site or at a worker: what runs goes on without a failed request, the worker says what is wrong and takes
// nothing new, and work goes on by itself when there is room.
func TestFullDiskBelow(t *testing.T) {
	for role, size := range map[string]string{"cluster": "24m", "worker": "96m"} {
		t.Run(role, func(t *testing.T) {
			disk, fill, free := small(t, size)
			s := newSiteAt(t, map[string]string{role: filepath.Join(disk, role)})
			s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
			s.do(app("shop", service("web", "test/catalog:1")))
			s.await("it is ready", s.ready(1))
			before, check := s.pids(), s.visit()
			if role == "worker" { // it says so while there is a little left, and nothing once there is none
				fill(8 << 20)
				s.await("the worker takes nothing new", func() bool {
					list, err := s.Cluster.Workers(context.Background())
					return err == nil && len(list) == 1 && strings.Contains(list[0].Refusing, "its disk is nearly full")
				})
			}
			fill(0)
			scale := apps.Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}, Replicas: 3}
			s.do(scale)
			for range 30 { // it is not carried out, and nothing ends for that
				time.Sleep(100 * time.Millisecond)
				if list, err := s.Root.Instances(t.Context()); err != nil || len(list) != 3 {
					t.Fatal(list, err)
				}
			}
			free()
			s.await("three are ready", s.ready(3))
			check()
			for id, pid := range before {
				if now := s.pids()[id]; now != pid {
					t.Errorf("%s was process %d and is %d", id, pid, now)
				}
			}
		})
	}
}

// A full disk at the root: new work is refused, what runs goes on and is shown, and the root recovers by itself.
func TestFullDisk(t *testing.T) {
	disk, fill, free := small(t, "24m")
	s := newSiteAt(t, map[string]string{"root": filepath.Join(disk, "root")})
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	s.do(app("shop", service("web", "test/catalog:1")))
	s.await("it is ready", s.ready(1))
	before, check := s.pids(), s.visit()
	fill(0)
	scale := apps.Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}, Replicas: 2}
	s.await("new work is refused", func() bool {
		scale.Replicas++ // a write that fits into what SQLite has left may still succeed
		_, err := s.Root.Do(context.Background(), scale)
		if err == nil {
			return false
		}
		e := skerry.AsError(err)
		if e.Code != skerry.CodeFull || e.Hint == "" {
			t.Fatalf("%+v", e)
		}
		return true
	})
	if _, _, err := s.Root.AppPage(t.Context(), apps.AppPage{}); err != nil {
		t.Errorf("readers are not answered: %v", err)
	}
	s.await("the root says that it is not ready", func() bool { return s.Root.Ready() != nil })
	for id, pid := range s.pids() {
		if before[id] != 0 && before[id] != pid {
			t.Errorf("%s was restarted", id)
		}
	}
	free()
	s.await("work is taken again", func() bool {
		scale.Replicas = 1
		_, err := s.Root.Do(context.Background(), scale)
		return err == nil
	})
	s.await("one instance is left", s.ready(1))
	check()
	for id, pid := range s.pids() {
		if before[id] == pid {
			return
		}
		t.Logf("%s runs as %d", id, pid)
	}
	t.Error("the first instance did not live through it")
}

// TestReadOnlyDisk: all roles are started on disks that their kernel mounts read-only, as after an error, over what a crash left. Readers
// are served and changes refused, with the reason; what runs goes on, and so do all roles when the disks can be written again.
func TestReadOnlyDisk(t *testing.T) {
	p := newProcesses(t, "worker")
	for _, dir := range []string{p.data("root"), p.data("cluster")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
	}
	root, cluster, worker := p.threeRoles()
	c := p.stable(1)
	ctx := t.Context()
	was, err := c.Instances(ctx, api.InstanceFilter{App: "stable"})
	if err != nil || len(was) != 1 {
		t.Fatalf("%+v, %v", was, err)
	}
	// What runs on a worker's disk has files open, and keeps them.
	if err := unix.Mount(p.data("worker"), p.data("worker"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(p.data("worker"), unix.MNT_DETACH)
	remount := func(flags uintptr) {
		t.Helper()
		for dir, how := range map[string]uintptr{p.data("root"): 0, p.data("cluster"): 0, p.data("worker"): unix.MS_BIND} {
			if err := unix.Mount("none", dir, "", unix.MS_REMOUNT|how|flags, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	roles := []*role{root, cluster, worker}
	for _, r := range roles {
		r.kill()
	}
	remount(unix.MS_RDONLY)
	for _, r := range roles {
		r.start(t, p.program, p.log)
	}
	await(t, "readers are served", func() bool {
		now, err := c.Instances(ctx, api.InstanceFilter{App: "stable"})
		return err == nil && len(now) == 1 && now[0].ID == was[0].ID
	})
	_, err = c.Apply(ctx, []byte(manifestOf("stable", 2)), api.ApplyOptions{})
	e := skerry.AsError(err)
	if err == nil || e.Code != skerry.CodeUnavailable || !strings.Contains(e.Message, "read-only") || !strings.Contains(e.Message, "--data") {
		t.Errorf("a change: %v", err)
	}
	if now, err := c.Instances(ctx, api.InstanceFilter{App: "stable"}); err != nil || len(now) != 1 || now[0].ID != was[0].ID {
		t.Errorf("after a change was refused: %+v, %v", now, err)
	}
	await(t, "the worker says so", func() bool { // its agent has looked after what it runs
		text, err := os.ReadFile(p.log.Name())
		return err == nil && strings.Count(string(text), "the store takes no writes") >= 3
	})
	remount(0)
	applied(t, c, "stable", []byte(manifestOf("stable", 2)), 2)
	now, err := c.Instances(ctx, api.InstanceFilter{App: "stable"})
	same := false
	for _, i := range now {
		same = same || i.ID == was[0].ID && i.StartedAt.Equal(was[0].StartedAt)
	}
	if err != nil || !same {
		t.Errorf("what ran did not go on: %+v, %v", now, err)
	}
}
