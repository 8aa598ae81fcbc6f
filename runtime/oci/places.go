//go:build linux

package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// places are layers with what images lack of the places at which something is mounted: /proc, /etc/hosts, a volume. Made in the writable
// layer of each container, they were a quarter of the files that a start made on the disk, and that its removal took away. So they are made
// once for an image and a set of places, in a layer on top of the image's:
//
//	DIR/KEY      the layer, which is only read from then on
//	DIR/.KEY     one that is being made: layer, work and root of an overlay
//
// A container gets what such a layer lacks as before, so it need not be complete. It goes when no task has it any more.
type places struct {
	dir  string
	used func() map[string]bool // the keys of all tasks

	mu sync.Mutex // held while a layer is made or removed
}

// mostPlaces is how many layers there may be before those that nobody uses are removed.
const mostPlaces = 64

// mounted are the places of a spec, as the config of its container will have them, but for device nodes. In place of what is mounted they
// have a directory or a file that stays one: what somebody may replace just now must not make a layer of another name's places.
func mounted(spec runtime.Spec) (*specs.Spec, error) {
	c := &specs.Spec{Linux: &specs.Linux{}, Mounts: defaultMounts(spec)}
	for _, f := range ownFiles(spec) {
		c.Mounts = append(c.Mounts, specs.Mount{Destination: f.target, Type: "bind", Source: os.DevNull})
	}
	for _, m := range spec.Mounts {
		c.Mounts = append(c.Mounts, mount(m))
	}
	for i := range c.Mounts {
		m := &c.Mounts[i]
		if m.Type != "bind" {
			continue
		}
		st, err := os.Stat(m.Source)
		if err != nil {
			return nil, err
		}
		if m.Source = os.DevNull; st.IsDir() {
			m.Source = "/"
		}
	}
	return c, nil
}

// key names the layer for an image with places that belong to an owner, by all that it depends on. The layers of an image do not change,
// but one of the same name may have been made again.
func key(lower []string, config *specs.Spec, owner int) (string, error) {
	type layer struct {
		Dir   string
		Inode uint64
		Since unix.Timespec
	}
	type place struct {
		At  string
		Dir bool
	}
	var of struct {
		Layers []layer
		Places []place
		Owner  int
	}
	of.Owner = owner
	var st unix.Stat_t
	for _, dir := range lower {
		if err := unix.Stat(dir, &st); err != nil {
			return "", &os.PathError{Op: "stat", Path: dir, Err: err}
		}
		of.Layers = append(of.Layers, layer{dir, st.Ino, st.Mtim})
	}
	for _, m := range config.Mounts {
		of.Places = append(of.Places, place{m.Destination, m.Type != "bind" || m.Source != os.DevNull})
	}
	text, err := json.Marshal(of)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), err
}

// layer gives the layer for a task whose root has the layers of an image below it, and notes in the task's record that it has it.
func (all *places) layer(task *monitor.Task, spec runtime.Spec, lower []string, owner int) (string, error) {
	config, err := mounted(spec)
	if err != nil {
		return "", err
	}
	key, err := key(lower, config, owner)
	if err != nil {
		return "", err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if err := all.sweep(mostPlaces); err != nil {
		return "", err
	}
	at := filepath.Join(all.dir, key)
	if _, err := os.Lstat(at); err != nil {
		if err := all.make(key, config, lower, owner); err != nil {
			return "", err
		}
	}
	out := outsideOf(task)
	out.Places = key
	return at, out.note(task)
}

// make makes a layer by what a start does in a container's own.
func (all *places) make(key string, config *specs.Spec, lower []string, owner int) (err error) {
	tmp := filepath.Join(all.dir, "."+key)
	upper, work, root := filepath.Join(tmp, "upper"), filepath.Join(tmp, "work"), filepath.Join(tmp, rootDir)
	if err := errors.Join(files.RemoveUnmounted(tmp), os.MkdirAll(upper, 0o755), os.Mkdir(work, 0o755), os.Mkdir(root, 0o755)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.RemoveUnmounted(tmp)) }()
	if err := mountOverlay(root, lower, []string{"upperdir=" + runtime.EscapeOverlay(upper), "workdir=" + runtime.EscapeOverlay(work),
		"volatile"}); err != nil {
		return err
	}
	if err := errors.Join(settleTargets(imageRoot{root, true, owner}, config), unmountAll(root)); err != nil {
		return err
	}
	return os.Rename(upper, filepath.Join(all.dir, key))
}

// sweep removes what a crash left, and the layers that no task has, if there are more than some of them.
func (all *places) sweep(most int) error {
	list, err := os.ReadDir(all.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || len(list) <= most {
		return err
	}
	used := all.used()
	for _, e := range list {
		if !used[e.Name()] {
			err = errors.Join(err, files.RemoveUnmounted(filepath.Join(all.dir, e.Name())))
		}
	}
	return err
}

// withPlaces puts the layer of places on top of an image's. Unless the image's files belong to the users of a namespace on the disk, the
// places are the host's root's.
func (d Bundles) withPlaces(t *monitor.Task, spec runtime.Spec, lower []string) []string {
	owner := -1
	if m := spec.RootFS[0]; m.Shifted && spec.UserNS != nil {
		owner = int(spec.UserNS.First)
	}
	at, err := d.places.layer(t, spec, lower, owner)
	if err != nil { // the same comes up again when they are made in the container, where it is a matter for whoever asked for it
		d.Options.Log.Debug("places for mounts", "task", string(spec.ID), "err", strings.TrimSpace(err.Error()))
		return lower
	}
	return append([]string{at}, lower...)
}
