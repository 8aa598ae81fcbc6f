//go:build linux

package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// setAside takes a replica's local volumes out of the way at once: who asks for them now gets new ones. It gives the directories that are
// to be removed then, and with them those of earlier attempts that could not be.
func (pl places) setAside(volume spec.VolumeClaim) ([]string, error) {
	dir, local := pl.claimDir(volume), filepath.Join(pl.dir, localDir)
	if err := unmountBelow(dir); err != nil {
		return nil, err
	}
	key := sha256.Sum256([]byte(volume.Key()))
	name := removedPrefix + hex.EncodeToString(key[:8]) + "-"
	aside, err := os.MkdirTemp(local, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there never was one
	}
	if err != nil {
		return nil, err
	}
	if err := os.Rename(dir, filepath.Join(aside, "0")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, os.Remove(aside))
	}
	for up := filepath.Dir(dir); filepath.Base(up) != localDir; up = filepath.Dir(up) { // those that are empty now
		if os.Remove(up) != nil {
			break
		}
	}
	return asideIn(local, name)
}

// asideIn lists what was set aside of local volumes under names that begin like this.
func asideIn(local, prefix string) (dirs []string, err error) {
	list, err := os.ReadDir(local)
	for _, entry := range list {
		if strings.HasPrefix(entry.Name(), prefix) {
			dirs = append(dirs, filepath.Join(local, entry.Name()))
		}
	}
	return dirs, err
}

// removeAside removes what an earlier life of the agent had set aside.
func (s *Server) removeAside() {
	left, _ := asideIn(filepath.Join(s.opt.Dir, localDir), removedPrefix)
	for _, dir := range left {
		if err := removeMounted(dir); err != nil {
			s.opt.Log.Warn("remove what is left of local volumes", "dir", dir, "err", err)
		}
	}
}

func (s *Server) removeVolumes(v spec.VolumeClaim) {
	left, err := s.setAside(v)
	s.work.Load().Go(func() { s.Post(volumesRemoved(v, left, err)) })
}

// volumesRemoved removes what was set aside of volumes, and says what came of it. They are removed once nothing of them is left.
func volumesRemoved(v spec.VolumeClaim, left []string, err error) core.VolumesRemoved {
	m := core.VolumesRemoved{Claim: v}
	for _, dir := range left {
		err = errors.Join(err, removeMounted(dir))
	}
	if err != nil {
		m.Err = err.Error()
	}
	return m
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
