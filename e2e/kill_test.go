//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/loopfs"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime/oci"
	"skerry.dev/skerry/wire"
)

// TestKillAnyRole kills root, cluster and worker at random moments while users write. After each restart the state must
// be the last one acknowledged, and no workload may be restarted.
func TestKillAnyRole(t *testing.T) {
	killRoles(t, newProcesses(t, "worker"), testenv.Times(40, 200), 0, func() {})
}

// TestSlowDisk does the same on a disk that carries out no more than so many writes in a second, for all roles together: each commit takes
// some 20 ms and waits for those of others.
func TestSlowDisk(t *testing.T) {
	const writes = 100 // in a second
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	if _, err := loopfs.Ensure(t.Context(), loopfs.Options{Image: filepath.Join(dir, "image"), Dir: disk, Size: 1 << 30, Lasting: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var st unix.Stat_t
	if err := unix.Stat(disk, &st); err != nil {
		t.Fatal(err)
	}
	limit := func(n int) error {
		text := fmt.Sprintf("%d:%d %d", unix.Major(st.Dev), unix.Minor(st.Dev), n)
		return os.WriteFile("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device", []byte(text), 0o644)
	}
	if err := limit(0); errors.Is(err, os.ErrNotExist) {
		t.Skip(&testenv.Unsupported{What: "a slow disk", Why: "there is no controller blkio in version 1 of cgroups"})
	}
	t.Cleanup(func() {
		if err := limit(0); err != nil {
			t.Error(err)
		}
	})
	slow := func() {
		t.Helper()
		if err := limit(writes); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for n := range writes / 4 {
			if err := files.Replace(filepath.Join(disk, "probe"), []byte{byte(n)}, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 250*time.Millisecond {
			t.Fatalf("the disk is not slow: %d files took %s", writes/4, took)
		}
	}
	killRoles(t, processesOf(t, disk, testenv.Program(t), "worker"), testenv.Times(3, 30), 10, slow)
}

// killRoles kills root, cluster and worker so often while users write, and so many writes are acknowledged between two
// kills at least. begin is called when all works.
func killRoles(t *testing.T, p *processes, kills, between int, begin func()) {
	ctx := t.Context()
	a, b, c := p.threeRoles()
	roles := []*role{a, b, c}
	root := p.stable(3)
	before := containerPIDs(t, p.data("worker"))
	begin()
	writers := write(t, 3, 20, func(ctx context.Context, name string, round int) (skerry.Generation, error) {
		text := strings.Replace(manifestOf(name, 1), `"env":{}`, fmt.Sprintf(`"env":{"ROUND":"%d"}`, round), 1)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		res, err := root.Apply(ctx, []byte(text), api.ApplyOptions{Register: true})
		return res.Gen, err
	})
	rng := rand.New(rand.NewPCG(1, uint64(kills)))
	for n := 0; n < kills || n < 10*kills && writers.names() < enoughNames; n++ { // on a starved machine users hardly get to write
		r, written := roles[rng.IntN(len(roles))], writers.written()
		await(t, "users write", func() bool { return writers.written() >= written+between })
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		r.kill()
		r.start(t, p.program, p.log)
	}
	writers.end()

	await(t, "three instances are ready again", func() bool { return readyOf(ctx, root, "stable") == 3 })
	await(t, "the worker tells no restarts", func() bool {
		list, err := root.Instances(ctx, api.InstanceFilter{App: "stable"})
		for _, i := range list {
			if i.Restarts != 0 || i.Stopping {
				return false
			}
		}
		return err == nil && len(list) == 3
	})
	after := containerPIDs(t, p.data("worker"))
	for id, pid := range before {
		if after[id] != pid {
			t.Errorf("%s was restarted or moved: process %d, now %d", id, pid, after[id])
		}
	}
	list, err := root.Apps(ctx, "default")
	if err != nil {
		t.Fatal(err)
	}
	writers.check(t, list)
	t.Logf("%d applications", len(writers.acked))
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > 90*time.Second {
			t.Fatalf("waited in vain: %s", what)
		}
		testenv.Pause(began)
	}
}

// login logs in as the first admin, whose password is in the role's data directory.
func login(t *testing.T, server, dir string) *api.Client {
	t.Helper()
	var c *api.Client
	await(t, server+" answers", func() bool {
		password, err := os.ReadFile(filepath.Join(dir, parents.AdminPasswordFile))
		if err != nil {
			return false
		}
		pin, err := api.FetchPin(t.Context(), server)
		if err != nil {
			return false
		}
		if c, err = api.NewClient(api.ClientOptions{Server: server, Pin: pin}); err != nil {
			t.Fatal(err)
		}
		_, err = c.Login(t.Context(), "admin", strings.TrimSpace(string(password)))
		return err == nil
	})
	return c
}

func joinToken(t *testing.T, server, dir string, tier wire.Tier) string {
	t.Helper()
	c := login(t, server, dir)
	defer c.Close()
	tok, err := c.CreateJoinToken(t.Context(), api.JoinTokenRequest{Role: tier})
	if err != nil {
		t.Fatal(err)
	}
	return tok.Text
}

// pushProgram builds a program and pushes it as an image to the built-in registry.
func pushProgram(t *testing.T, c *api.Client, dir, tag, pkg string) {
	t.Helper()
	bin := filepath.Join(dir, "program")
	testenv.Build(t, bin, pkg)
	pushFile(t, c, dir, tag, bin)
}

// pushFile pushes an image of a program, under its file's name, or of a folder.
func pushFile(t *testing.T, c *api.Client, dir, tag, bin string) {
	t.Helper()
	st, err := artifact.Open(filepath.Join(dir, "push"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Build(t.Context(), artifact.BuildOptions{Source: bin, Tag: "skerry.local/" + tag, Platform: artifact.HostPlatform()}); err != nil {
		t.Fatal(err)
	}
	src := &artifact.Source{BaseURL: c.Server(), Transport: c.Transport()}
	if _, err := st.Push(t.Context(), "skerry.local/"+tag, "skerry.local/"+tag, src, nil); err != nil {
		t.Fatal(err)
	}
}

func manifestOf(name string, replicas int) string {
	return fmt.Sprintf(`{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"web","image":"test/catalog:1","replicas":%d,"env":{},
"resources":{"cpu":0.05,"memory":"32Mi"}}]}}`, name, replicas)
}

func readyOf(ctx context.Context, c *api.Client, app string) int {
	v, err := c.App(ctx, skerry.AppKey{Namespace: "default", Name: app})
	if err != nil {
		return -1
	}
	return v.Services[0].Ready
}

// containerPIDs reads the first processes of a worker's containers from its driver's state.
func containerPIDs(t *testing.T, dir string) map[skerry.InstanceID]int {
	t.Helper()
	d, err := oci.New(oci.Options{Dir: filepath.Join(dir, "oci")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	return pidsOf(t, d)
}
