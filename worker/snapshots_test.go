//go:build linux

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/loopfs"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// program is a driver with one task, which writes rows to a file for as long as it is not paused.
type program struct {
	runtime.Driver
	handle runtime.Handle
	mu     sync.Mutex // held while it stands still
	row    int        // protected by mu
	hook   func(args []string) (int, error)
	still  bool
	paused int
	during func() // called once it stands still
}

func (p *program) Name() string { return "oci" }
func (p *program) Check(context.Context) runtime.Report {
	return runtime.Report{Driver: "oci", Passed: true}
}
func (p *program) List(context.Context) ([]runtime.Handle, error) {
	return []runtime.Handle{p.handle}, nil
}
func (p *program) Pause(context.Context, runtime.Handle) error {
	p.mu.Lock()
	p.still, p.paused = true, p.paused+1
	if p.during != nil {
		p.during()
	}
	return nil
}
func (p *program) Resume(context.Context, runtime.Handle) error {
	if p.still {
		p.still = false
		p.mu.Unlock()
	}
	return nil
}
func (p *program) Remove(context.Context, runtime.Handle) error              { return nil }
func (p *program) Close() error                                              { return nil }
func (p *program) Stop(context.Context, runtime.Handle, time.Duration) error { return nil }
func (p *program) Status(context.Context, runtime.Handle) (runtime.Status, error) {
	return runtime.Status{State: runtime.StateRunning}, nil
}
func (p *program) Wait(ctx context.Context, _ runtime.Handle) (runtime.Exit, error) {
	<-ctx.Done()
	return runtime.Exit{}, ctx.Err()
}
func (p *program) Exec(_ context.Context, _ runtime.Handle, e runtime.ExecSpec) (int, error) {
	fmt.Fprint(e.Stderr, "it says no")
	return p.hook(e.Args)
}

// write appends a row, and then the same one to another file: at every moment at which it stands still both have the same rows.
func (p *program) write(dirs ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.row++
	for _, dir := range dirs {
		f, err := os.OpenFile(filepath.Join(dir, "rows"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(f, "row %d\n", p.row)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

var ledgerDB = spec.VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "ledger"}, Service: "db"}}

// withSnapshots runs a worker in a directory, with a program that has volumes, if one is given.
func withSnapshots(t *testing.T, dir string, p *program, svc *spec.ServiceSpec) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	st, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opt := ServerOptions{Name: "w1", Dir: dir, RunDir: t.TempDir(), Store: st, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if p != nil {
		p.handle = runtime.Handle{ID: "db-1.main.1", Driver: "oci", Instance: "db-1", Container: spec.MainContainer}
		opt.Drivers = []runtime.Driver{p}
		a := spec.Assignment{ID: "db-1", Service: ledgerDB.Service, Org: "default", Spec: *svc, Runtime: "oci"}
		data, err := json.Marshal(map[string]any{"assignment": a, "state": skerry.Running, "runtime": "oci",
			"containers": map[string]any{spec.MainContainer: map[string]any{"attempt": 1, "running": true, "handle": encode(p.handle)}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Commit(ctx, []store.Op{{Key: wire.AssignmentKey("db-1"), Value: data}}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewServer(opt)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := errors.Join(UnmountVolumes(dir), st.Close()); err != nil {
			t.Error(err)
		}
	})
	for ready := false; !ready; { // it has taken up what is there: from then on its cluster can ask
		_ = s.Role.View(ctx, func(c loop.Core) { ready = core.Ready(c.(*core.Core)) })
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	return s
}

// askWorker gives the answer of a worker to its cluster.
func askWorker(s *Server, method, path string, body io.Reader) (*spec.Snapshot, []byte, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, path, body))
	res := w.Result()
	if method == http.MethodGet && res.StatusCode == http.StatusOK {
		data, err := io.ReadAll(res.Body)
		return nil, data, err
	}
	snap := new(spec.Snapshot)
	return snap, nil, tier.ReadLater(res, snap)
}

func takeBody(t *testing.T, q takeSnapshot) io.Reader {
	t.Helper()
	data, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(data)
}

// volumeDirs makes volumes as makeVolume does, and gives their directories.
func volumeDirs(t *testing.T, s *Server, sizes map[string]skerry.Bytes) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, size := range sizes {
		out[name] = filepath.Join(s.claimDir(ledgerDB), name, "data")
		if err := openDir(t.Context(), out[name], filepath.Join(s.claimDir(ledgerDB), name, "image"), size, true); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// sameRows fails unless two volumes have the same whole rows, at least so many.
func sameRows(t *testing.T, least int, dirs ...string) {
	t.Helper()
	var all []string
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "rows"))
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n") {
			if want := fmt.Sprintf("row %d", i+1); strings.TrimSuffix(row, "\n") != want {
				t.Fatalf("row %d of %s is %q", i+1, dir, row)
			}
		}
		all = append(all, string(data))
	}
	if n := strings.Count(all[0], "\n"); n < least {
		t.Errorf("it has %d rows, want at least %d", n, least)
	}
	for _, other := range all[1:] {
		if other != all[0] {
			t.Errorf("the volumes are not of one moment: they have %d and %d rows", strings.Count(all[0], "\n"), strings.Count(other, "\n"))
		}
	}
}

// testSnapshots takes a snapshot of two volumes, with a size and without, while a program writes the same rows into both, and restores it.
func testSnapshots(t *testing.T, dir, how string) {
	p := &program{hook: func([]string) (int, error) { return 0, nil }}
	svc := &spec.ServiceSpec{Volumes: []spec.Volume{{Name: "data", Local: &spec.LocalVolume{Size: 64 * skerry.MiB}}, {Name: "plain", Local: &spec.LocalVolume{}}},
		Snapshots: &spec.Snapshots{Before: &spec.SnapshotHook{Command: []string{"/checkpoint"}}}}
	s := withSnapshots(t, dir, p, svc)
	dirs := volumeDirs(t, s, map[string]skerry.Bytes{"data": 64 * skerry.MiB, "plain": 0})
	ctx, cancel := context.WithCancel(t.Context())
	wrote := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := p.write(dirs["data"], dirs["plain"]); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	rows := func() int { p.mu.Lock(); defer p.mu.Unlock(); return p.row }
	for rows() < 100 {
		time.Sleep(time.Millisecond)
	}
	before := rows()
	snap, _, err := askWorker(s, http.MethodPost, "/snapshots/one", takeBody(t, takeSnapshot{Claim: ledgerDB, MaxPause: spec.Duration(time.Minute)}))
	if err != nil {
		t.Fatal(err)
	}
	after := rows()
	if snap.How != how || snap.Paused <= 0 || snap.Claim() != ledgerDB || len(snap.Volumes) != 2 || snap.Volumes[0].Size != 64*skerry.MiB || snap.Volumes[1].Size != 0 {
		t.Errorf("the snapshot is %+v", snap)
	}
	for rows() < after+10 { // it goes on
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(filepath.Join(dir, snapshotsDir)); err != nil || len(list) != 1 || list[0].Name() != "one" {
		t.Errorf("in the directory are %v, %v", list, err)
	}
	_, stream, err := askWorker(s, http.MethodGet, "/snapshots/one", nil)
	if err != nil || len(stream) != int(snap.Size) {
		t.Fatalf("%d bytes of %d are read, %v", len(stream), snap.Size, err)
	}

	// As another replica's, at this worker; then from the stream, in the place of that.
	claim := ledgerDB
	claim.Ordinal = 1
	q := url.Values{"claim": {claim.Key()}, "sha256": {snap.SHA256}}
	if _, _, err := askWorker(s, http.MethodPost, "/snapshots/one/restore?"+q.Encode(), nil); err != nil {
		t.Fatal(err)
	}
	restored := func() (data, plain string) {
		t.Helper()
		at := s.claimDir(claim)
		o := loopfs.Options{Image: filepath.Join(at, "data", "image"), Dir: filepath.Join(at, "data", "data"), Lasting: true}
		if _, err := loopfs.Ensure(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o.Dir, filepath.Join(at, "plain", "data")
	}
	data, plain := restored()
	sameRows(t, before, data, plain)
	for _, d := range []string{data, plain} {
		if err := os.WriteFile(filepath.Join(d, "later"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	q.Set("stream", "true")
	if _, _, err := askWorker(s, http.MethodPost, "/snapshots/one/restore?"+q.Encode(), bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	data, plain = restored()
	sameRows(t, before, data, plain)
	for _, d := range []string{data, plain} {
		if _, err := os.Stat(filepath.Join(d, "later")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what was there before is there: %v", err)
		}
	}

	// Damage changes nothing; nor does a stream that is cut off, and an instance that has the volumes.
	for name, bad := range map[string][]byte{"damaged": append(bytes.Clone(stream[:len(stream)-1]), stream[len(stream)-1]+1), "cut": stream[:len(stream)/2], "empty": nil} {
		if _, _, err := askWorker(s, http.MethodPost, "/snapshots/one/restore?"+q.Encode(), bytes.NewReader(bad)); err == nil {
			t.Errorf("a stream that is %s was taken", name)
		}
		sameRows(t, before, data, plain)
	}
	q.Set("claim", ledgerDB.Key())
	if _, _, err := askWorker(s, http.MethodPost, "/snapshots/one/restore?"+q.Encode(), bytes.NewReader(stream)); skerry.AsError(err).Code != skerry.CodeConflict {
		t.Errorf("volumes that an instance has: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, localDir, removedPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestSnapshotsByCopy(t *testing.T) { testSnapshots(t, t.TempDir(), spec.SnapshotFrozen) }

// TestSnapshotsByClone has the worker's directory on a file system that clones files.
func TestSnapshotsByClone(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "xfs")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mount := filepath.Join(dir, "mounted")
	if err := errors.Join(os.Truncate(image, 512<<20), os.Mkdir(mount, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, mount}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		// A mount namespace that another test made meanwhile may hold the volumes that were mounted inside, and with them the whole.
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	testSnapshots(t, mount, spec.SnapshotReflink)
}

// TestNoSnapshot: what fails while a snapshot is made leaves none, and the program goes on.
func TestNoSnapshot(t *testing.T) {
	p := &program{}
	svc := &spec.ServiceSpec{Volumes: []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}}, Snapshots: &spec.Snapshots{Before: &spec.SnapshotHook{Command: []string{"/no"}}}}
	dir := t.TempDir()
	half := filepath.Join(dir, snapshotsDir, partialPrefix+"of-before", "clones")
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	s := withSnapshots(t, dir, p, svc)
	data := volumeDirs(t, s, map[string]skerry.Bytes{"data": 0})["data"]
	random := make([]byte, 32<<20)
	for i := range random {
		random[i] = byte(i * i >> 7)
	}
	if err := os.WriteFile(filepath.Join(data, "large"), random, 0o600); err != nil {
		t.Fatal(err)
	}
	ok := func([]string) (int, error) { return 0, nil }
	for name, c := range map[string]struct {
		hook  func([]string) (int, error)
		q     takeSnapshot
		code  skerry.Code
		why   string
		still int
	}{
		"the hook says no":   {func([]string) (int, error) { return 3, nil }, takeSnapshot{Claim: ledgerDB}, skerry.CodeConflict, "/no ended with status 3: it says no", 0},
		"it takes too long":  {ok, takeSnapshot{Claim: ledgerDB, MaxPause: 1}, skerry.CodeConflict, "longer than the 1ns", 1},
		"it is too large":    {ok, takeSnapshot{Claim: ledgerDB, Most: 100, MaxPause: spec.Duration(time.Minute)}, skerry.CodeQuota, "larger than the room", 1},
		"no volume is there": {ok, takeSnapshot{Claim: spec.VolumeClaim{Service: ledgerDB.Service, Ordinal: 5}}, skerry.CodeNotFound, "not on this worker", 0},
	} {
		before := p.paused
		p.hook = c.hook
		_, _, err := askWorker(s, http.MethodPost, "/snapshots/none", takeBody(t, c.q))
		if e := skerry.AsError(err); err == nil || e.Code != c.code || !strings.Contains(e.Message, c.why) {
			t.Errorf("%s: %v", name, err)
		}
		if p.paused-before != c.still {
			t.Errorf("%s: it stood still %d times, want %d", name, p.paused-before, c.still)
		}
		if !p.mu.TryLock() {
			t.Fatalf("%s: it stands still", name)
		}
		p.mu.Unlock()
	}
	for name, path := range map[string]string{"up": "/snapshots/..%2F..%2Fx", "a dot": "/snapshots/.partial-x", "none": "/snapshots/"} {
		if _, _, err := askWorker(s, http.MethodPost, path, takeBody(t, takeSnapshot{Claim: ledgerDB})); skerry.AsError(err).Code != skerry.CodeInvalid {
			t.Errorf("an id that leads %s: %v", name, err)
		}
	}
	if _, _, err := askWorker(s, http.MethodPut, "/snapshots/none?most=0", strings.NewReader("something else")); skerry.AsError(err).Code != skerry.CodeInvalid {
		t.Errorf("what is no snapshot: %v", err)
	}
	list, err := os.ReadDir(filepath.Join(dir, snapshotsDir))
	if err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestDisturbedSnapshot has something else at the volumes while they are copied: what is not of one moment is no snapshot.
func TestDisturbedSnapshot(t *testing.T) {
	p := &program{}
	dir := t.TempDir()
	s := withSnapshots(t, dir, p, &spec.ServiceSpec{Volumes: []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}}})
	volumeDirs(t, s, map[string]skerry.Bytes{"data": 0})
	step := func(msgs ...any) (acts []any) { // nobody carries out what follows
		t.Helper()
		if err := s.Role.View(t.Context(), func(c loop.Core) {
			for _, m := range msgs {
				acts = append(acts, c.(*core.Core).Step(time.Now(), m).Actions...)
			}
		}); err != nil {
			t.Fatal(err)
		}
		return acts
	}
	take := func(id string) error {
		_, _, err := askWorker(s, http.MethodPost, "/snapshots/"+id, takeBody(t, takeSnapshot{Claim: ledgerDB}))
		return err
	}
	refused := func(what, why string, err error) {
		t.Helper()
		if e := skerry.AsError(err); err == nil || e.Code != skerry.CodeConflict || !strings.Contains(e.Message, why) || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.during = func() { refused("at the same time", "is being taken", take("two")) }
	if err := take("one"); err != nil {
		t.Fatal(err)
	}
	p.during = func() {
		step(core.RestartLocal{ID: "db-1"}, core.Exited{ID: "db-1", Name: spec.MainContainer, Attempt: 1})
	}
	refused("a container that starts meanwhile", "was started", take("two"))
	p.during = nil
	refused("a container that is starting", "is being started", take("two"))
	step(core.Started{ID: "db-1", Name: spec.MainContainer, Attempt: 2, At: time.Now(), Handle: encode(p.handle)})
	p.during = func() {
		if err := os.Rename(s.claimDir(ledgerDB), s.claimDir(ledgerDB)+"-was"); err != nil {
			t.Fatal(err)
		}
		volumeDirs(t, s, map[string]skerry.Bytes{"data": 0})
	}
	refused("other volumes of that name", "restored or deleted", take("two"))
	// Its worker is told to remove it while there is nothing to be removed yet.
	p.during = func() {
		told := reconcile.NewSource(members.Desired, "", "a", reconcile.Options{})
		tell := func() (acts []any) {
			if err := s.Role.View(t.Context(), func(c loop.Core) { told.Connect(time.Now(), c.(*core.Core).Up.Desired.State()) }); err != nil {
				t.Fatal(err)
			}
			defer told.Disconnect()
			for _, m := range told.Next(time.Now()) {
				acts = append(acts, step(core.ParentFrame{Msg: m})...)
			}
			return acts
		}
		key := spec.SnapshotID("two").Key()
		if _, err := told.Put(key, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		tell()
		told.Delete(key)
		for _, a := range tell() {
			if gone, ok := a.(core.RemoveSnapshot); ok {
				removeSnapshot(s, gone.ID)
			}
		}
	}
	refused("a snapshot that is deleted meanwhile", "was deleted while it was made", take("two"))
	p.during = nil
	if err := take("three"); err != nil {
		t.Errorf("undisturbed: %v", err)
	}
	if list, err := os.ReadDir(filepath.Join(dir, snapshotsDir)); err != nil || len(list) != 2 {
		t.Errorf("there are %v, %v", list, err)
	}

	// Who asks for a restore is gone before it is done.
	gone := func(at string, ctx context.Context, from io.Reader) {
		t.Helper()
		to := spec.VolumeClaim{Service: ledgerDB.Service, Ordinal: 7}
		if _, err := restoreSnapshot(ctx, s, to, from, "", 0); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", at, err)
		}
		if _, err := os.Stat(s.claimDir(to)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: there is a volume: %v", at, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(s.opt.snapshotDir("three"), snapshotData))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone("at its end", ctx, io.MultiReader(bytes.NewReader(data), readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF })))
	gone("at its begin", ctx, bytes.NewReader(data))
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
