//go:build linux

package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/diskuse"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/loopfs"
	"skerry.dev/skerry/internal/owners"
	"skerry.dev/skerry/internal/snapshot"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// Snapshots are below the worker's directory:
//
//	snapshots/ID/data             the stream of package snapshot
//	            /snapshot.json    what it is: spec.Snapshot
//	snapshots/.partial-ID         one that is being made, which is none until it has its name; the next start removes it
const (
	snapshotsDir  = "snapshots"
	partialPrefix = ".partial-"
	snapshotData  = "data"
	snapshotFile  = "snapshot.json"
)

func (o *ServerOptions) snapshotDir(id spec.SnapshotID) string {
	return filepath.Join(o.Dir, snapshotsDir, string(id))
}

// takeSnapshot is what the cluster asks for: a snapshot of local volumes that are here.
type takeSnapshot struct {
	Claim    spec.VolumeClaim `json:"claim"`
	Most     skerry.Bytes     `json:"most"` // it may take of the disk; 0: what is free
	MaxPause spec.Duration    `json:"maxPause"`
}

// take makes a snapshot: writers stand still while the files are cloned, where the file system can do that, else while they are copied.
func take(ctx context.Context, server *Server, id spec.SnapshotID, q takeSnapshot) (*spec.Snapshot, error) {
	dir := server.claimDir(q.Claim)
	names, err := volumesIn(dir)
	if err != nil {
		return nil, err
	}
	snap := &spec.Snapshot{ID: id, State: spec.SnapshotReady}
	snap.SetClaim(q.Claim)
	for _, name := range names {
		size := skerry.Bytes(0)
		if st, err := os.Stat(filepath.Join(dir, name, "image")); err == nil {
			size = skerry.Bytes(st.Size())
			// Nobody may have mounted it since the machine started.
			if _, err := loopfs.Ensure(ctx, loopfs.Options{Image: filepath.Join(dir, name, "image"), Dir: filepath.Join(dir, name, "data"),
				Lasting: true}); err != nil {
				return nil, err
			}
		}
		snap.Volumes = append(snap.Volumes, spec.SnapshotVolume{Name: name, Size: size})
	}
	held, err := holdClaim(q.Claim, dir)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	return keepSnapshot(server, snap, func(work string, out io.Writer) error {
		clones := filepath.Join(work, "clones")
		defer func() { _ = removeMounted(clones) }()
		cloned := canClone(dir, clones)
		still, err := standStill(ctx, server, q, dir, snap.Volumes)
		if err != nil {
			return err
		}
		defer still.end()
		snap.At, snap.How = time.Now().UTC().Truncate(time.Millisecond), spec.SnapshotFrozen
		if still.idle {
			snap.How = spec.SnapshotIdle
		}
		var trees []*snapshot.Tree
		wctx := still.ctx
		if cloned {
			if trees, err = clone(still.ctx, dir, clones, snap.Volumes); errors.Is(err, snapshot.ErrLong) {
				cloned, trees = false, nil
			} else if err != nil {
				return still.over(err)
			}
		}
		if cloned {
			if snap.How == spec.SnapshotFrozen {
				snap.How = spec.SnapshotReflink
			}
			if err := errors.Join(still.undisturbed(ctx, server, q, held), still.end()); err != nil {
				return err
			}
			snap.Paused, wctx = spec.Duration(still.lasted), ctx
		} else {
			for _, v := range snap.Volumes {
				inside, err := insideOwners(dir, v.Name)
				if err != nil {
					return still.over(err)
				}
				trees = append(trees, snapshot.Dir(v.Name, filepath.Join(dir, v.Name, "data"), inside))
			}
		}
		lim := roomFor(server)
		most := lim.Bytes
		if q.Most > 0 {
			most = min(most, int64(q.Most))
		}
		w := &roomWriter{ctx: wctx, w: out, left: most}
		err = snapshot.Write(wctx, w, snapshot.Meta{Service: q.Claim.Service, Replica: q.Claim.Ordinal, At: snap.At, Volumes: snap.Volumes},
			lim.Length, trees...)
		if err != nil {
			return still.over(err)
		}
		for _, t := range trees {
			snap.Skipped += t.Skipped
		}
		if cloned {
			return nil
		}
		if err := errors.Join(still.undisturbed(ctx, server, q, held), still.end()); err != nil {
			return err
		}
		if snap.How == spec.SnapshotFrozen {
			snap.Paused = spec.Duration(still.lasted)
		}
		return nil
	})
}

// roomFor gives what of the disk there is for a snapshot, or its content: what may be filled, and half of the files
// that there can still be.
func roomFor(s *Server) snapshot.Limits {
	free, _ := freeAt(s.opt.Dir)
	lim := snapshot.LimitsFor(int64(max(free-s.opt.MinFree, 0)))
	var st unix.Statfs_t
	if unix.Statfs(s.opt.Dir, &st) == nil && st.Files > 0 { // Btrfs makes them as it goes
		lim.Files = min(lim.Files, int64(st.Ffree/2))
	}
	return lim
}

// volumesIn lists the volumes of a claim.
func volumesIn(dir string) (names []string, err error) {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if st, err := os.Stat(filepath.Join(dir, e.Name(), "data")); err == nil && st.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, skerry.Errorf(skerry.CodeNotFound, "the volumes are not on this worker: %v",
			err).WithHint("no instance has run with them here yet")
	}
	return names, nil
}

// keepSnapshot gives what write writes the name of a snapshot, when all of it is on the disk, and not before.
func keepSnapshot(server *Server, snap *spec.Snapshot, write func(work string, out io.Writer) error) (*spec.Snapshot, error) {
	final := server.opt.snapshotDir(snap.ID)
	if _, err := os.Stat(final); err == nil {
		return nil, skerry.Errorf(skerry.CodeConflict, "there is a snapshot %s", snap.ID)
	}
	work := filepath.Join(filepath.Dir(final), partialPrefix+string(snap.ID))
	if err := errors.Join(os.MkdirAll(filepath.Dir(work), 0o700), os.Mkdir(work, 0o700)); err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			_ = removeMounted(work)
		}
	}()
	file, err := os.OpenFile(filepath.Join(work, snapshotData), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	sum, n := sha256.New(), counted(0)
	err = write(work, io.MultiWriter(file, sum, &n))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	snap.Size, snap.SHA256 = skerry.Bytes(n), hex.EncodeToString(sum.Sum(nil))
	data, err := json.Marshal(snap)
	if err == nil {
		err = writeSynced(filepath.Join(work, snapshotFile), data)
	}
	if err == nil {
		err = files.Sync(work)
	}
	if err == nil {
		err = os.Rename(work, final)
	}
	if err == nil {
		done = true
		err = files.Sync(filepath.Dir(final))
	}
	unwanted := false
	if err == nil {
		unwanted, err = tier.View(server.lifetime(), server.Role, func(c *core.Core) (bool, error) { return core.Unwanted(c, snap.ID), nil })
	}
	if unwanted {
		err = errors.Join(skerry.Errorf(skerry.CodeConflict, "snapshot %s was deleted while it was made", snap.ID).WithHint("take another one"),
			os.RemoveAll(final))
	}
	return snap, err
}

type counted int64

func (c *counted) Write(p []byte) (int, error) { *c += counted(len(p)); return len(p), nil }

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// untilDone reads until its context ends.
type untilDone struct {
	ctx  context.Context
	from io.Reader
}

func (r *untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(p)
}

// roomWriter writes until its context ends or there is too much.
type roomWriter struct {
	ctx  context.Context
	w    io.Writer
	left int64
}

func (b *roomWriter) Write(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, skerry.Errorf(skerry.CodeQuota, "the snapshot is larger than the room that there is for it").
			WithHint("delete snapshots (`skerry volume snapshots` lists them), make room on the worker, or raise the quota")
	}
	return b.w.Write(p)
}

// canClone tries whether files of one directory can be cloned into another, which it makes.
func canClone(dir, into string) bool {
	var from, to unix.Stat_t
	if os.MkdirAll(into, 0o700) != nil || unix.Stat(dir, &from) != nil || unix.Stat(into, &to) != nil || from.Dev != to.Dev {
		return false
	}
	probe := filepath.Join(into, "probe")
	defer os.Remove(probe)
	defer os.Remove(probe + "-2")
	return os.WriteFile(probe, make([]byte, 4096), 0o600) == nil && cloneAt(probe, probe+"-2") == nil
}

func cloneAt(from, to string) error {
	src, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	return cloneFile(src, to)
}

func cloneFile(src *os.File, to string) error {
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
}

// clone clones volumes: the image of one that has a size, else each of its files.
func clone(ctx context.Context, dir, into string, volumes []spec.SnapshotVolume) (trees []*snapshot.Tree, err error) {
	n := 0
	for _, v := range volumes {
		inside, err := insideOwners(dir, v.Name)
		if err != nil {
			return nil, err
		}
		if v.Size > 0 {
			o := loopfs.Options{Image: filepath.Join(into, v.Name+".image"), Dir: filepath.Join(into, v.Name), Lasting: true}
			if err := cloneAt(filepath.Join(dir, v.Name, "image"), o.Image); err != nil {
				return nil, err
			}
			if _, err := loopfs.Ensure(ctx, o); err != nil {
				return nil, err
			}
			trees = append(trees, snapshot.Dir(v.Name, o.Dir, inside))
			continue
		}
		t, err := snapshot.Clone(ctx, v.Name, filepath.Join(dir, v.Name, "data"), inside, func(from *os.File) (string, error) {
			n++
			to := filepath.Join(into, "file-"+strconv.Itoa(n))
			return to, cloneFile(from, to)
		})
		if err != nil {
			return nil, err
		}
		trees = append(trees, t)
	}
	return trees, nil
}

// insideOwners gives the numbers that the owners of a volume's files have inside of containers: no snapshot depends on a worker.
func insideOwners(claimDir, volume string) (func(uint32) uint32, error) {
	ranges, err := ownersOf(claimDir, volume).Ranges()
	return owners.Map{From: ranges}.ID, err
}

// removeSnapshot removes a snapshot, or what there is of one.
func removeSnapshot(s *Server, id spec.SnapshotID) { s.Post(snapshotRemoved(s, id)) }

// snapshotRemoved is removeSnapshot, and says what came of it.
func snapshotRemoved(s *Server, id spec.SnapshotID) core.SnapshotRemoved {
	m := core.SnapshotRemoved{ID: id}
	dir := s.opt.snapshotDir(id)
	gone := filepath.Join(filepath.Dir(dir), partialPrefix+"gone-"+string(id))
	err := os.Rename(dir, gone)
	if err == nil || errors.Is(err, fs.ErrNotExist) { // an earlier attempt may have left something of it
		err = os.RemoveAll(gone)
	}
	if err != nil {
		m.Err = err.Error()
		s.opt.Log.Warn("remove a snapshot", "snapshot", string(id), "err", err)
	}
	return m
}

// recoverSnapshots ends what an earlier life of the agent was at: volumes that stand still go on, and what is half made is removed.
func recoverSnapshots(server *Server) {
	data, _ := filepath.Glob(filepath.Join(server.opt.Dir, localDir, "*", "*", "*", "*", "*", "data"))
	for _, dir := range data {
		if f, err := os.Open(dir); err == nil {
			_ = unix.IoctlSetInt(int(f.Fd()), fiThaw, 0) // one that is not frozen says so
			f.Close()
		}
	}
	handles, _ := tier.View(server.lifetime(), server.Role, func(c *core.Core) (handles []json.RawMessage, _ error) {
		c.Running(func(a *spec.Assignment, _ string, handle json.RawMessage) {
			if a.Spec.KeepsData() {
				handles = append(handles, slices.Clone(handle))
			}
		})
		return handles, nil
	})
	for _, handle := range handles {
		if d, h, err := server.runtimes.of(handle); err == nil {
			if p, ok := d.(runtime.Pauser); ok {
				_ = p.Resume(server.lifetime(), h) // one that is not paused runs on
			}
		}
	}
	left, _ := filepath.Glob(filepath.Join(server.opt.Dir, snapshotsDir, partialPrefix+"*"))
	for _, dir := range left {
		if err := removeMounted(dir); err != nil {
			server.opt.Log.Warn("remove what is left of a snapshot", "dir", dir, "err", err)
		}
	}
}

// snapshotAt reads what is known of a snapshot here.
func snapshotAt(s *Server, id spec.SnapshotID) (*spec.Snapshot, error) {
	snap := new(spec.Snapshot)
	data, err := os.ReadFile(filepath.Join(s.opt.snapshotDir(id), snapshotFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, skerry.Errorf(skerry.CodeNotFound, "snapshot %s is not on this worker", id)
	}
	if err == nil {
		err = json.Unmarshal(data, snap)
	}
	return snap, err
}

// importSnapshot keeps a stream as a snapshot, once all of it has been looked at.
func importSnapshot(server *Server, id spec.SnapshotID, from io.Reader, most skerry.Bytes) (*spec.Snapshot, error) {
	lim := roomFor(server)
	room := lim.Bytes
	if most > 0 {
		room = min(room, int64(most))
	}
	snap := &spec.Snapshot{ID: id, State: spec.SnapshotReady, How: spec.SnapshotImported}
	return keepSnapshot(server, snap, func(_ string, out io.Writer) error {
		w := &roomWriter{ctx: server.lifetime(), w: out, left: room}
		in := io.TeeReader(from, w)
		m, err := snapshot.Read(in, lim, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, in)
		}
		if bad, ok := errors.AsType[*snapshot.Invalid](err); ok {
			return skerry.Errorf(skerry.CodeInvalid, "%v", bad).WithHint("import what `skerry volume export` wrote; nothing was kept")
		}
		if err != nil {
			return err
		}
		snap.At, snap.Volumes = m.At, m.Volumes
		snap.SetClaim(spec.VolumeClaim{Service: m.Service, Ordinal: m.Replica})
		return nil
	})
}

// restoreSnapshot makes volumes what a snapshot has. from is its stream. What was there before goes only when all is
// there, in one step. Volumes without a size take no more than most, unless that is 0; took is how much that is.
func restoreSnapshot(ctx context.Context, server *Server, volume spec.VolumeClaim, from io.Reader, sum string,
	most skerry.Bytes) (took skerry.Bytes, err error) {
	if w, err := writersNow(ctx, server, volume); err != nil || w.There {
		return 0, errors.Join(skerry.Errorf(skerry.CodeConflict, "an instance on this worker has volume %s", volume).WithHint("stop it first"),
			err)
	}
	local := filepath.Join(server.opt.Dir, localDir)
	if err := os.MkdirAll(local, 0o755); err != nil {
		return 0, err
	}
	aside, err := os.MkdirTemp(local, removedPrefix)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err := removeMounted(aside); err != nil {
			server.opt.Log.Warn("remove what was before", "dir", aside, "err", err)
		}
	}()
	work := filepath.Join(aside, "0")
	if err := os.Chmod(aside, 0o755); err != nil {
		return 0, err
	}
	hash := sha256.New()
	in := io.TeeReader(&untilDone{ctx, from}, hash)
	roots := map[string]*os.Root{}
	defer func() {
		for _, r := range roots {
			r.Close()
		}
	}()
	lim, loose := roomFor(server), []string(nil)
	if most > 0 {
		lim.Loose.Bytes, lim.Loose.Files = int64(most), filesFor(most)
	}
	_, err = snapshot.Read(in, lim, func(m *snapshot.Meta) (map[string]*os.Root, error) {
		for _, vol := range m.Volumes {
			if vol.Size == 0 {
				loose = append(loose, filepath.Join(work, vol.Name, "data"))
			}
			dir := filepath.Join(work, vol.Name, "data")
			if err := openDir(ctx, dir, filepath.Join(work, vol.Name, "image"), vol.Size, true); err != nil {
				return nil, volumeErr(vol.Name, err)
			}
			r, err := os.OpenRoot(dir)
			if err != nil {
				return nil, err
			}
			roots[vol.Name] = r
		}
		return roots, nil
	})
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if bad, ok := errors.AsType[*snapshot.Invalid](err); ok {
		return 0, skerry.Errorf(skerry.CodeInvalid, "%v", bad).WithHint("nothing was changed")
	}
	if err != nil {
		return 0, err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); sum != "" && got != sum {
		return 0, skerry.Errorf(skerry.CodeConflict, "the snapshot is damaged: its sha256 is %s, and was %s", got, sum).
			WithHint("nothing was changed; use another snapshot, or import it again")
	}
	for name, r := range roots {
		d, err := r.Open(".")
		if err == nil {
			err = errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return 0, volumeErr(name, err)
		}
		delete(roots, name)
	}
	if err := unmountBelow(work); err != nil {
		return 0, err
	}
	use, err := diskuse.Of(loose, nil, nil, diskuse.Use{})
	if err == nil {
		err = exchange(ctx, server, volume, work)
	}
	return max(skerry.Bytes(use.Bytes), filesSize(use.Files)), err
}

// exchange puts a directory in the place of a claim's, in one step; what was there is then in its place.
func exchange(ctx context.Context, server *Server, volume spec.VolumeClaim, work string) error {
	dir := server.claimDir(volume)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // the cluster would not know of it
	}
	if w, err := writersNow(ctx, server, volume); err != nil || w.There {
		return errors.Join(skerry.Errorf(skerry.CodeConflict, "an instance came to volume %s meanwhile",
			volume).WithHint("nothing was changed; try again"), err)
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, work, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(work, dir)
	}
	if err != nil {
		return fmt.Errorf("put the restored volume in its place: %w", err)
	}
	return errors.Join(files.Sync(filepath.Dir(dir)), files.Sync(filepath.Dir(work)))
}

// writersNow is Writers of the core that runs.
func writersNow(ctx context.Context, s *Server, v spec.VolumeClaim) (core.Writing, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (core.Writing, error) { return core.Writers(c, v), nil })
}

// runHook runs the command that a service has before its volumes are copied.
func runHook(ctx context.Context, server *Server, svc *spec.ServiceSpec, handles []json.RawMessage) error {
	if svc == nil || svc.Snapshots == nil || svc.Snapshots.Before == nil {
		return nil
	}
	hook := svc.Snapshots.Before
	for _, handle := range handles {
		d, h, err := server.runtimes.of(handle)
		if err != nil || h.Container != spec.MainContainer {
			continue
		}
		e, ok := d.(runtime.Execer)
		if !ok {
			return skerry.Errorf(skerry.CodeUnsupported, "snapshots.before: runtime %s cannot run commands inside an instance",
				d.Name()).WithHint("leave it out, or use another runtime")
		}
		ctx, cancel := context.WithTimeout(ctx, hook.Within())
		defer cancel()
		var out tail
		code, err := e.Exec(ctx, h, runtime.ExecSpec{Args: hook.Command, Stdout: &out, Stderr: &out})
		if err != nil {
			return skerry.Errorf(skerry.CodeUnavailable, "snapshots.before: %s: %v", strings.Join(hook.Command, " "), err).WithHint("nothing was copied; run it with `skerry exec`")
		}
		if code != 0 {
			return skerry.Errorf(skerry.CodeConflict, "snapshots.before: %s ended with status %d: %s", strings.Join(hook.Command, " "), code,
				bytes.TrimSpace(out)).
				WithHint("nothing was copied; run it with `skerry exec`")
		}
	}
	return nil
}

// tail keeps the end of what is written.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	const most = 1 << 10
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-most):]
	return len(p), nil
}
