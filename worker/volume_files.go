//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loopfs"
	"skerry.dev/skerry/internal/nfsmount"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

func claimOf(a *spec.Assignment) spec.VolumeClaim {
	return spec.VolumeClaim{Service: a.Service, Ordinal: a.Ordinal}
}

// volumeSource is the directory of a volume on this machine.
func (pl places) volumeSource(a *spec.Assignment, v *spec.Volume) string {
	switch {
	case v.NFS != nil:
		return nfsmount.At(pl.nfsDir(), v.NFS)
	case v.Host != nil && bounded(a):
		return pl.hostDir(a.ID, v.Name)
	case v.Host != nil:
		return v.Host.Path
	case v.Local != nil:
		return filepath.Join(pl.claimDir(claimOf(a)), v.Name, "data")
	}
	return pl.volumeDir(a.ID, v.Name)
}

// makeVolume makes a volume, or finds it made.
func (pl places) makeVolume(ctx context.Context, table *nfsmount.Table, a *spec.Assignment, v *spec.Volume) error {
	dir := pl.volumeSource(a, v)
	switch {
	case v.Host != nil && v.Host.FileSystem != "":
		return pl.makeNetworkVolume(ctx, table, a, v)
	case v.Host != nil && bounded(a):
		return pl.mountHostPath(a, v)
	case v.Host != nil:
		_, err := os.Stat(dir)
		return err
	case v.Local != nil:
		return openDir(ctx, dir, filepath.Join(filepath.Dir(dir), "image"), v.Local.Size, true)
	case v.Empty == nil:
		return impossible("this worker does not know volumes of its kind")
	case v.Empty.Memory:
		return mountMemory(dir, v.Empty.Size)
	}
	return openDir(ctx, dir, filepath.Join(pl.instanceDir(a.ID), "images", v.Name), v.Empty.Size, false)
}

// openDir makes a directory that every user may write to, held to a size if that is not 0. What a lasting one has become since is
// left as it is.
func openDir(ctx context.Context, dir, image string, size skerry.Bytes, lasting bool) error {
	list, err := os.ReadDir(dir)
	fresh := errors.Is(err, fs.ErrNotExist)
	made, err := os.Stat(image)
	switch {
	case err == nil:
		size = max(size, skerry.Bytes(made.Size())) // what it had before it keeps
	case size > 0 && len(list) > 0:
		return impossible("it was made without a size, and what is in it cannot be held to one; take size away, or give the volume another name")
	}
	if size > 0 {
		fresh, err = loopfs.Ensure(ctx, loopfs.Options{Image: image, Dir: dir, Size: int64(size), Lasting: lasting})
		if errors.Is(err, loopfs.ErrMissing) {
			return impossible("the worker cannot hold it to its size: " + err.Error())
		}
		if err != nil {
			return err
		}
	}
	if !fresh && lasting {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777) // whatever user the container has
}

// setAside takes a replica's local volumes out of the way at once: who asks for them now gets new ones.
func (pl places) setAside(volume spec.VolumeClaim) (string, error) {
	dir := pl.claimDir(volume)
	if err := unmountBelow(dir); err != nil {
		return "", err
	}
	aside, err := os.MkdirTemp(filepath.Join(pl.dir, localDir), removedPrefix)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // there never was one
	}
	if err != nil {
		return "", err
	}
	err = os.Rename(dir, filepath.Join(aside, "0"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for up := filepath.Dir(dir); filepath.Base(up) != localDir; up = filepath.Dir(up) { // those that are empty now
		if os.Remove(up) != nil {
			break
		}
	}
	return aside, err
}

// removeAside removes what an earlier life of the agent had set aside.
func (s *Server) removeAside() {
	left, _ := filepath.Glob(filepath.Join(s.opt.Dir, localDir, removedPrefix+"*"))
	for _, dir := range left {
		if err := removeMounted(dir); err != nil {
			s.opt.Log.Warn("remove what is left of local volumes", "dir", dir, "err", err)
		}
	}
}

func (s *Server) removeVolumes(v spec.VolumeClaim) {
	m := core.VolumesRemoved{Claim: v}
	aside, err := s.setAside(v)
	if err != nil {
		m.Err = err.Error()
		s.Post(m)
		return
	}
	s.work.Load().Go(func() {
		if aside != "" {
			if err := removeMounted(aside); err != nil {
				s.opt.Log.Warn("remove local volumes", "err", err)
			}
		}
		s.Post(m)
	})
}

// volumeBytes is what images of volumes take on the disk: of the space that is not free, that much is counted as reserved already.
func volumeBytes(dir string) (sum skerry.Bytes) {
	for _, pattern := range []string{localDir + "/*/*/*/*/*/image", "instances/*/images/*"} {
		images, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, path := range images {
			var st unix.Stat_t
			if unix.Stat(path, &st) == nil {
				sum += skerry.Bytes(st.Blocks * 512)
			}
		}
	}
	return sum
}

// UnmountVolumes leaves no mount of volumes, or of secrets, below a worker's directory, once nothing runs any more.
// What is in local volumes stays.
func UnmountVolumes(dir string) error {
	return errors.Join(unmountBelow(filepath.Join(dir, localDir)), unmountBelow(filepath.Join(dir, "instances")),
		unmountBelow(filepath.Join(dir, snapshotsDir)))
}

// volumeErr names the volume in an error.
func volumeErr(name string, err error) error { return fmt.Errorf("volume %s: %w", name, err) }
