//go:build linux

package nfsmount

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/spec"
)

// How long a server may take: to be found and mounted, and to answer once it is. Unmounting asks none, but may have to write first.
const (
	mountPatience   = 40 * time.Second
	askPatience     = 10 * time.Second
	unmountPatience = 10 * time.Second
)

// Refused says that a server, or this kernel on its behalf, does not mount an export.
type Refused struct {
	Source string
	Errno  syscall.Errno
	Why    string // in the words of what looked for the server, if that failed; else empty
}

func (e *Refused) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("mount %s: %s", e.Source, e.Why)
	}
	return fmt.Sprintf("mount %s: %s (%s)", e.Source, e.Errno.Error(), cmp.Or(meanings[e.Errno], "see nfs(5)"))
}

func (e *Refused) Unwrap() error { return e.Errno }

// meanings is a table: what an error of mount(2) says of a server.
var meanings = map[syscall.Errno]string{
	unix.EACCES: "the server does not export it to this worker", unix.EPERM: "the server does not export it to this worker",
	unix.ENOENT: "the server has no such path", unix.ENOTDIR: "it is no directory", unix.ESTALE: "the server no longer knows what was mounted",
	unix.ECONNREFUSED: "no NFS server runs there", unix.EHOSTUNREACH: "no route to the server", unix.ENETUNREACH: "no route to the server",
	unix.ETIMEDOUT: "the server did not answer", unix.EPROTONOSUPPORT: "the server does not speak this version of NFS",
	unix.EINVAL: "this kernel does not take these options", unix.EIO: "the server did not answer, or failed",
}

// Missing says that the kernel has no NFS.
type Missing struct{ Kernel string }

func (e *Missing) Error() string {
	return fmt.Sprintf("this worker's kernel %s has no NFS: its operator installs the modules nfs and nfsv4 (nfsv3 for version 3)", e.Kernel)
}

// NoAnswer says that a server has not answered in time.
type NoAnswer struct {
	Source string
	After  time.Duration
}

func (e *NoAnswer) Error() string {
	return fmt.Sprintf("the server of %s has not answered for %s", e.Source, e.After)
}

// Helper is the machine that runs this program, by a command that runs Main.
type Helper []string

// Mounts gives the list of this thread's mounts, which are those of the process.
func (h Helper) Mounts() (string, error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	return string(data), err
}

// task is what Main is to do, and its answer.
type task struct {
	Do      string          `json:"do"`
	At      string          `json:"at"`
	Volume  *spec.NFSVolume `json:"volume,omitempty"`
	Address string          `json:"address,omitempty"`
}

type answer struct {
	Errno syscall.Errno `json:"errno"` // 0: it is done
}

// Mount resolves the server's name, and mounts.
func (h Helper) Mount(ctx context.Context, volume *spec.NFSVolume, at string) error {
	bounded, cancel := context.WithTimeout(ctx, mountPatience)
	defer cancel()
	began := time.Now()
	addresses, err := net.DefaultResolver.LookupNetIP(bounded, "ip", volume.Server)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil:
		return &NoAnswer{volume.Source(), mountPatience}
	case err != nil:
		return &Refused{Source: volume.Source(), Errno: unix.EHOSTUNREACH, Why: err.Error()}
	}
	// One address is enough: a server with several has them for the same exports.
	err = h.run(ctx, max(mountPatience-time.Since(began), time.Second), task{"mount", at, volume, addresses[0].Unmap().String()})
	if errors.Is(err, unix.ENODEV) {
		var name unix.Utsname
		_ = unix.Uname(&name)
		return &Missing{unix.ByteSliceToString(name.Release[:])}
	}
	return err
}

// Ask has the server tell of the root of what is mounted.
func (h Helper) Ask(ctx context.Context, v *spec.NFSVolume, at string) error {
	return h.run(ctx, askPatience, task{Do: "ask", At: at, Volume: v})
}

// Unmount detaches a mount.
func (h Helper) Unmount(ctx context.Context, at string) error {
	err := h.run(ctx, unmountPatience, task{Do: "unmount", At: at, Volume: &spec.NFSVolume{Server: "?", Path: at}})
	if _, late := errors.AsType[*NoAnswer](err); late { // it has left the tree, and is still writing
		if list, e := h.Mounts(); e == nil && !isMounted(list, at) {
			return nil
		}
	}
	return err
}

// run has another process do what may hang, and does not wait for that one if it hangs beyond killing: it ends when the server is back, or
// its time is up.
func (h Helper) run(ctx context.Context, patience time.Duration, order task) error {
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	cmd := exec.Command(h[0], append(slices.Clone([]string(h[1:])), string(text))...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err = <-ended:
	case <-timer.C:
		_ = cmd.Process.Kill()
		return &NoAnswer{order.Volume.Source(), patience.Round(time.Second)}
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		return ctx.Err()
	}
	var got answer
	if bad := json.Unmarshal(out.Bytes(), &got); err != nil || bad != nil {
		return fmt.Errorf("%s %s: %w: %.300s", order.Do, order.At, errors.Join(err, bad), said.String())
	}
	if got.Errno != 0 {
		return &Refused{Source: order.Volume.Source(), Errno: got.Errno}
	}
	return nil
}

// Main is the other process. Its one argument is a task.
func Main(args []string) int {
	var order task
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &order) != nil {
		fmt.Fprintln(os.Stderr, "this command is not for people; see internal/nfsmount")
		return 2
	}
	var err error
	switch order.Do {
	case "mount":
		err = mount(&order)
	case "unmount":
		err = unix.Unmount(order.At, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	case "ask":
		var st unix.Statfs_t // no file system keeps that, as the kernel does for a minute what stat(2) tells
		err = unix.Statfs(order.At, &st)
	default:
		err = unix.EINVAL
	}
	got := answer{}
	if err != nil && !errors.As(err, &got.Errno) {
		got.Errno = unix.EIO
	}
	_ = json.NewEncoder(os.Stdout).Encode(got)
	return 0
}

// versions are tried in turn where a volume names none.
func versions(v *spec.NFSVolume) []string {
	if v.Version != "" {
		return []string{v.Version}
	}
	return []string{"4.2", "4.1", "4.0"}
}

// data gives the options for the kernel. A server that hangs for good is not to hold up whoever did not ask for that.
func data(volume *spec.NFSVolume, version, address string) string {
	options := []string{"addr=" + address, "vers=" + version, "proto=" + protocol(address), "sec=sys"}
	if version == "3" {
		options = append(options, "mountproto="+protocol(address))
	}
	has := func(name string) bool {
		return slices.ContainsFunc(volume.Options, func(o string) bool { return o == name || strings.HasPrefix(o, name+"=") })
	}
	if !has("hard") && !has("soft") {
		options = append(options, "soft")
	}
	if !has("hard") && !has("timeo") {
		options = append(options, "timeo=100")
	}
	if !has("hard") && !has("retrans") {
		options = append(options, "retrans=3")
	}
	for _, o := range volume.Options {
		if o != "noatime" { // it is the kernel's own, for every file system
			options = append(options, o)
		}
	}
	return strings.Join(options, ",")
}

func protocol(address string) string {
	if strings.Contains(address, ":") {
		return "tcp6"
	}
	return "tcp"
}

func mount(order *task) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if order.Volume.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if slices.Contains(order.Volume.Options, "noatime") {
		flags |= unix.MS_NOATIME
	}
	var err error
	for _, version := range versions(order.Volume) {
		kind := "nfs4"
		if version == "3" {
			kind = "nfs"
		}
		err = unix.Mount(order.Volume.Source(), order.At, kind, flags, data(order.Volume, version, order.Address))
		if err != unix.EPROTONOSUPPORT && err != unix.EINVAL {
			break
		}
	}
	if err != nil {
		return err
	}
	return unix.Mount("", order.At, "", unix.MS_PRIVATE, "") // what an instance mounts below stays with it
}
