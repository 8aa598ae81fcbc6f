//go:build linux

package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry.dev/skerry/runtime"
)

// maxLinks is how many symbolic links one path of an image may go through, as in the kernel.
const maxLinks = 40

// settleTargets makes every place at which the runtime is to mount something or make a node, and names it as it is: an
// image may have links there, and not every runtime stays within the root when it follows them (runc 1.1.5 does not for
// /dev). Nothing runs in the root yet.
func settleTargets(r imageRoot, config *specs.Spec) error {
	dir, err := os.OpenRoot(r.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	root := &settling{dir, r}
	for _, dir := range []string{"proc", "dev", "sys"} {
		if err := root.ordinary(dir); err != nil {
			return err
		}
	}
	var covered []string
	for i := range config.Mounts {
		m := &config.Mounts[i]
		dir := m.Type != "bind"
		if !dir {
			st, err := os.Stat(m.Source)
			if err != nil {
				return err
			}
			dir = st.IsDir()
		}
		if m.Destination, err = root.settle(m.Destination, covered, func(at string) error { return root.mountPoint(at, dir) }); err != nil {
			return err
		}
		covered = append(covered, m.Destination)
	}
	for i := range config.Linux.Devices {
		n := &config.Linux.Devices[i]
		if n.Path, err = root.settle(n.Path, covered, func(string) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// imageRoot is a root in which something is to be made before anything runs there.
type imageRoot struct {
	dir string
	// replace: what is in the way may be removed, for the root is this container's alone.
	replace bool
	// owner has what is made, user and group; -1: whoever makes it.
	owner int
}

// settling makes what is missing in a root.
type settling struct {
	*os.Root
	imageRoot
}

func (r *settling) mkdir(at string) error {
	if err := r.Mkdir(at, 0o755); err != nil {
		return err
	}
	return r.Lchown(at, r.owner, r.owner)
}

// ordinary sees to it that a directory at the top of the root is one, and no link to another.
func (r *settling) ordinary(name string) error {
	st, err := r.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.mkdir(name)
	case err != nil || st.IsDir():
		return err
	case !r.replace: // it is the owner's of a directory that is mounted as it is
		return &runtime.InvalidSpec{Field: "rootfs[0]", Reason: fmt.Sprintf("/%s is no directory; a container gets its own there, so make it one, or remove it", name)}
	}
	if err := r.Remove(name); err != nil {
		return err
	}
	return r.mkdir(name)
}

func (r *settling) mountPoint(at string, dir bool) error {
	if dir {
		return r.mkdir(at)
	}
	f, err := r.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), r.Lchown(at, r.owner, r.owner))
}

// settle follows a path in the root, as a process in it would, and gives the one without links. Directories that are
// missing on the way it makes; the last name, where it is missing, missing makes. What is below a mount that comes
// earlier is not there yet, and is left to the runtime.
func (r *settling) settle(target string, covered []string, missing func(at string) error) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		return "", &runtime.InvalidSpec{Field: "rootfs[0]",
			Reason: fmt.Sprintf("%s cannot be mounted at: %s", target, fmt.Sprintf(format, args...))}
	}
	at, rest, links := "/", strings.Split(target, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." || name == ".." {
			at = path.Join(at, name)
			continue
		}
		next := path.Join(at, name)
		last := !slices.ContainsFunc(rest, func(s string) bool { return s != "" && s != "." })
		if slices.Contains(covered, next) {
			return path.Join(append([]string{next}, rest...)...), nil
		}
		rel := strings.TrimPrefix(next, "/")
		st, err := r.Lstat(rel)
		switch {
		case errors.Is(err, fs.ErrNotExist) && last:
			return next, missing(rel)
		case errors.Is(err, fs.ErrNotExist):
			err = r.mkdir(rel)
		case err == nil && st.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return bad("the image has more than %d symbolic links in a row there", maxLinks)
			}
			to, err := r.Readlink(rel)
			if err != nil {
				return "", err
			}
			if path.IsAbs(to) {
				at = "/"
			}
			rest = append(strings.Split(to, "/"), rest...)
			continue
		case err == nil && !st.IsDir() && !last:
			return bad("%s of the image is not a directory", next)
		}
		if err != nil {
			return "", err
		}
		at = next
	}
	if at == "/" {
		return bad("it leads to the root itself")
	}
	return at, nil
}

// LinkTrap makes a layer of an image whose /dev leads to a directory of the host, for a self-test: a container with it has to start, and
// sprung says what was written there.
func LinkTrap(dir string) (layer string, sprung func() error, err error) {
	layer, outside := filepath.Join(dir, "links"), filepath.Join(dir, "outside")
	if err := errors.Join(os.RemoveAll(layer), os.RemoveAll(outside), os.MkdirAll(layer, 0o755), os.Mkdir(outside, 0o755),
		os.Symlink(outside, filepath.Join(layer, "dev"))); err != nil {
		return "", nil, err
	}
	return layer, func() error {
		list, err := os.ReadDir(outside)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("it wrote %s on the host, through a link of the image; install a newer version", list[0].Name())
		}
		return err
	}, nil
}
