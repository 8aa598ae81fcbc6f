//go:build linux

package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/userns"
)

// A task with a user namespace has a directory outside of its bundle, for its root has no way into the bundle:
//
//	MOUNTS/TASK/rootfs   the root
//	            stage    a file system in memory, there until the container is created. In it are the layers of the image and all that
//	                     is to be mounted inside, each mapped to the namespace, and nodes of devices
const stageDir = "stage"

// outside is what the record of a task says of what is outside of its bundle: the directory of one with a user namespace, and the layer
// of places on which its root is mounted.
type outside struct {
	Dir    string                 `json:"mounts,omitempty"`
	Users  *runtime.UserNamespace `json:"users,omitempty"`
	Places string                 `json:"places,omitempty"`
}

// note puts it into a task's record.
func (o outside) note(t *monitor.Task) error {
	extra, err := json.Marshal(o)
	if err == nil {
		t.Update(func(r *monitor.Record) { r.Extra = extra })
	}
	return err
}

func outsideOf(t *monitor.Task) (o outside) {
	_ = json.Unmarshal(t.Record().Extra, &o)
	return o
}

// stage is where mounts are prepared. Nil is that of a task without a user namespace: everything is mounted from where it is.
type stage struct {
	dir   string
	users runtime.UserNamespace
	ns    *os.File
	n     int
	// noMaps: no mount is mapped to the namespace.
	noMaps bool
	own    string // the bundle, whose files are the task's own
	log    *slog.Logger
}

// openStage makes the directory of a task outside of its bundle. What is made is in the task's record before. Close the stage in any case.
func (d Bundles) openStage(task *monitor.Task, spec runtime.Spec) (*stage, error) {
	if spec.UserNS == nil {
		return nil, nil
	}
	dir := filepath.Join(d.Mounts, string(spec.ID))
	if err := errors.Join(outside{Dir: dir, Users: spec.UserNS}.note(task), task.Save()); err != nil {
		return nil, err
	}
	var err error
	s := &stage{dir: filepath.Join(dir, stageDir), users: *spec.UserNS, noMaps: d.NoMaps, own: task.Path(""), log: d.Options.Log}
	if s.ns, err = userns.Open(s.users); err != nil {
		return nil, &runtime.StartError{Field: "userNS", Hint: "user namespaces must be in the kernel, and not be forbidden", Err: err}
	}
	// Of the host's users, those of this namespace alone may enter.
	err = errors.Join(os.MkdirAll(d.Mounts, 0o711), os.Mkdir(dir, 0o700))
	if err == nil {
		err = errors.Join(os.Chown(dir, 0, int(s.users.First)), os.Chmod(dir, 0o710), os.Mkdir(s.dir, 0o711))
	}
	if err != nil {
		return s, err
	}
	err = unix.Mount("skerry", s.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0711,size=1m")
	if err == nil {
		err = unix.Mount("", s.dir, "", unix.MS_PRIVATE, "") // what is mounted below is nobody else's
	}
	if err != nil {
		return s, fmt.Errorf("mount %s: %w", s.dir, err)
	}
	return s, nil
}

func (s *stage) close() {
	if s != nil && s.ns != nil {
		s.ns.Close()
	}
}

// hostUser gives the numbers that a user of a namespace has on the host.
func hostUser(users *runtime.UserNamespace, u specs.User) (uid, gid uint32, err error) {
	for _, id := range append([]uint32{u.UID, u.GID}, u.AdditionalGids...) {
		if _, ok := users.Host(id); !ok {
			return 0, 0, &runtime.InvalidSpec{Field: "user", Reason: fmt.Sprintf("the container has no user or group %d; its user namespace ends at %d", id, users.Size-1)}
		}
	}
	uid, _ = users.Host(u.UID)
	gid, _ = users.Host(u.GID)
	return uid, gid, nil
}

// place makes a file or a directory to mount something at.
func (s *stage) place(dir bool) (string, error) {
	s.n++
	at := filepath.Join(s.dir, strconv.Itoa(s.n))
	if dir {
		return at, os.Mkdir(at, 0o711)
	}
	return at, os.WriteFile(at, nil, 0o600)
}

// layers gives the layers of an image as the namespace is to see them.
func (s *stage) layers(dirs []string) ([]string, error) {
	if s == nil {
		return dirs, nil
	}
	out := make([]string, len(dirs))
	for i, dir := range dirs {
		at, err := s.place(true)
		if err == nil {
			err = userns.Mount(userns.Tree{Path: dir, Users: s.ns}, at)
		}
		if err != nil {
			return nil, cannotMap(err)
		}
		out[i] = at
	}
	return out, nil
}

// rootOf says where places for mounts are made in a task's root, and whose they are: what the host's root makes would be nobody's in a
// namespace, and a mapped tree takes nothing of a user that it does not know.
func (s *stage) rootOf(root string, spec runtime.Spec) imageRoot {
	m := spec.RootFS[0]
	switch own := m.Type == "overlay"; {
	case s == nil:
		return imageRoot{root, own, -1}
	case own || m.Shifted:
		return imageRoot{root, own, int(s.users.First)}
	}
	return imageRoot{m.Source, false, -1}
}

// cannotMap says what a file system must be able to do.
func cannotMap(err error) error {
	if !userns.IsUnmappable(err) {
		return err
	}
	return &runtime.StartError{Field: "userNS", Hint: "it needs Linux 5.19 or newer, and ext4, xfs or btrfs below the worker's data directory", Err: err}
}

// bind gives the source for a mount inside.
func (s *stage) bind(source string, readOnly, shifted bool) (string, error) {
	st, err := os.Stat(source)
	if err != nil {
		return "", err
	}
	at, err := s.place(st.IsDir())
	if err != nil {
		return "", err
	}
	tree := userns.Tree{Path: source, ReadOnly: readOnly, Recursive: true}
	if shifted {
		return at, userns.Mount(tree, at)
	}
	why := error(errNoMaps)
	if !s.noMaps {
		mapped := tree
		mapped.Users = s.ns
		if why = userns.Mount(mapped, at); !userns.IsUnmappable(why) {
			return at, why
		}
	}
	// A file system such as that of /proc: its files stay the host's, which are nobody's inside.
	if filepath.Dir(source) == filepath.Clean(s.own) {
		err = s.owned(source)
	} else {
		s.log.Info("files stay the host's, which are nobody's in the container", "source", source, "why", why)
	}
	return at, errors.Join(err, userns.Mount(tree, at))
}

var errNoMaps = errors.New("owners of files are not to be mapped here")

// owned gives a file or a directory to the namespace's root.
func (s *stage) owned(at string) error {
	if s == nil {
		return nil
	}
	return os.Chown(at, int(s.users.First), int(s.users.First))
}

// apply gives a container its user namespace, and turns what it would mount from the host into what is prepared for it.
func (s *stage) apply(task *monitor.Task, config *specs.Spec, spec runtime.Spec) error {
	if s == nil {
		return nil
	}
	if _, _, err := hostUser(spec.UserNS, config.Process.User); err != nil {
		return err
	}
	if !isRunc(task.Record().Runtime) { // which enters it first, and has no right to the others then
		if err := s.join(config); err != nil {
			return err
		}
	}
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: s.users.First, Size: s.users.Size}}
	config.Linux.UIDMappings, config.Linux.GIDMappings = ids, ids
	shifted := map[string]bool{}
	for _, m := range spec.Mounts {
		if m.Shifted {
			shifted[m.Source] = true
		}
	}
	for i := range config.Mounts {
		m := &config.Mounts[i]
		if m.Type != "bind" {
			continue
		}
		ro := slices.Contains(m.Options, "ro")
		at, err := s.bind(m.Source, ro, shifted[m.Source])
		if err != nil {
			return err
		}
		m.Source = at
		// It is that already; a mount of the namespace cannot be made what it is again without all its other flags.
		m.Options = slices.DeleteFunc(m.Options, func(o string) bool { return o == "ro" })
	}
	if err := s.devices(config); err != nil {
		return err
	}
	return s.network(config, spec)
}

// join has the runtime put the container into the namespace that is made already, which no user of the host's owns,
// unless it is to be in another container's.
func (s *stage) join(c *specs.Spec) error {
	for i := range c.Linux.Namespaces {
		n := &c.Linux.Namespaces[i]
		if n.Type != specs.UserNamespace || n.Path != "" {
			continue
		}
		at, err := s.place(false)
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", s.ns.Fd()), at, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("user namespace: %w", err)
		}
		n.Path = at
	}
	return nil
}

// devices makes nodes that belong to the namespace's users as the host's belong to its own. A runtime would show the host's, which are
// nobody's inside.
func (s *stage) devices(config *specs.Spec) error {
	for _, dev := range config.Linux.Devices {
		at, err := s.place(false)
		if err != nil {
			return err
		}
		mode := uint32(dev.FileMode.Perm())
		if dev.Type == "b" {
			mode |= unix.S_IFBLK
		} else {
			mode |= unix.S_IFCHR
		}
		err = errors.Join(os.Remove(at), unix.Mknod(at, mode, int(unix.Mkdev(uint32(dev.Major), uint32(dev.Minor)))),
			os.Chmod(at, dev.FileMode.Perm()), os.Lchown(at, s.owner(*dev.UID), s.owner(*dev.GID)))
		if err != nil {
			return fmt.Errorf("device %s: %w", dev.Path, err)
		}
		config.Mounts = append(config.Mounts, specs.Mount{Destination: dev.Path, Type: "bind", Source: at, Options: []string{"bind", "rprivate"}})
	}
	config.Linux.Devices = nil
	return nil
}

// owner gives the number on the host that stands for one of the host's own users inside: for those that the namespace has not, nobody's.
func (s *stage) owner(id uint32) int {
	mapped, ok := s.users.Host(id)
	if !ok {
		return 0 // which the namespace does not have either
	}
	return int(mapped)
}

// network does from outside what the namespace's root may not do with a network namespace that it does not own: mount
// /sys, and set sysctls.
func (s *stage) network(config *specs.Spec, spec runtime.Spec) error {
	netns := ""
	if spec.Network != nil {
		netns = spec.Network.NetNS
	}
	if netns == "" && !spec.HostNetwork {
		return nil // its own
	}
	at, err := s.place(true)
	if err != nil {
		return err
	}
	if netns == "" {
		err = mountSys(at)
	} else {
		thread.Run(func() {
			if err = enter(netns); err == nil {
				err = errors.Join(mountSys(at), setSysctls(config.Linux.Sysctl))
			}
		})
	}
	if err != nil {
		return err
	}
	for i := range config.Mounts {
		if m := &config.Mounts[i]; m.Type == "sysfs" {
			m.Type, m.Source, m.Options = "bind", at, []string{"rbind", "rprivate"}
		}
	}
	return nil
}

// enter moves this thread, which must be locked, into a network namespace.
func enter(netns string) error {
	f, err := os.Open(netns)
	if err == nil {
		err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("join %s: %w", netns, err)
	}
	return nil
}

// mountSys mounts the /sys of this thread's network namespace.
func mountSys(at string) error {
	err := unix.Mount("sysfs", at, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
	if err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	return nil
}

// setSysctls sets those of this thread's network namespace, and takes them out of what the runtime is to set.
func setSysctls(all map[string]string) error {
	for name, value := range all {
		if !strings.HasPrefix(name, "net.") {
			continue
		}
		file := path.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		if !strings.HasPrefix(file, "/proc/sys/net/") {
			return &runtime.InvalidSpec{Field: "sysctls", Reason: name + " is not a name"}
		}
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return &runtime.StartError{Field: "sysctls", Hint: "only sysctls of the container's own namespaces can be set", Err: err}
		}
		delete(all, name)
	}
	return nil
}

// unstage takes the stage away: what is in it has been mounted inside, or never will be.
func unstage(t *monitor.Task) error {
	if o := outsideOf(t); o.Dir != "" {
		if err := unmountAll(filepath.Join(o.Dir, stageDir)); err != nil {
			return fmt.Errorf("unmount the stage: %w", err)
		}
	}
	return nil
}

// forget removes the directory outside of a task's bundle, in which nothing is mounted any more.
func (o outside) forget() error {
	if o.Dir == "" {
		return nil
	}
	for _, dir := range []string{filepath.Join(o.Dir, stageDir), filepath.Join(o.Dir, rootDir), o.Dir} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // never what may be in a mount
			return err
		}
	}
	return nil
}

// ownStreams gives the pipes that a created container has for its streams to its user: a program that opens /dev/stdout anew needs that,
// and the runtime cannot do it for a user namespace.
func ownStreams(t *monitor.Task, user specs.User) {
	o := outsideOf(t)
	if o.Users == nil {
		return
	}
	uid, gid, err := hostUser(o.Users, user)
	if err != nil {
		return
	}
	for n := range 3 {
		file := fmt.Sprintf("/proc/%d/fd/%d", t.Record().Init.PID, n)
		if st, err := os.Stat(file); err == nil && st.Mode()&fs.ModeNamedPipe != 0 {
			_ = os.Chown(file, int(uid), int(gid)) // it can still write to what it has open
		}
	}
}
