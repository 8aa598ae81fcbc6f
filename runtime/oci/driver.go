//go:build linux

package oci

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/spec"
)

// Options configure a driver. Dir is required.
type Options struct {
	// Name is the driver's; "oci" when empty.
	Name string
	// Dir is the state directory: bundles, writable layers, logs. An absolute path on a file system that overlayfs
	// accepts as upper layer.
	Dir string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Runtimes are OCI runtimes in order of preference, names or paths; crun, then runc when empty.
	Runtimes []string
	// RuntimeArgs go before each command of a runtime.
	RuntimeArgs []string
	// Sandbox is what the runtimes take beside each workload.
	Sandbox monitor.Sandbox
	// Conmon is the supervisor, a name or path; "conmon" when empty.
	Conmon string
	// Mounts is where the roots of tasks with user namespaces are mounted, Dir's "mounts" when empty. Users of no name on the host must
	// be able to enter it (0711 is enough), which a data directory for root alone does not allow.
	Mounts string
	// Owners is how files of the host's belong to users of user namespaces.
	Owners Owners
	// Criu makes checkpoints, with runc, a name or path; "criu" when empty.
	Criu string
	Log  *slog.Logger
}

// Owners is how files on the disk come to belong to the users of a user namespace.
type Owners string

const (
	// OwnersAuto: as the kernel and the file systems let it, by mapping or else by copies.
	OwnersAuto Owners = "auto"
	// OwnersMapped: the kernel maps them in mounts; where it cannot, there are no user namespaces.
	OwnersMapped Owners = "mapped"
	// OwnersCopied: whoever starts a task gives it files that belong to its users already. No mount is mapped.
	OwnersCopied Owners = "copied"
)

// ParseOwners reads one of them; empty is auto.
func ParseOwners(s string) (Owners, error) {
	switch o := cmp.Or(Owners(s), OwnersAuto); o {
	case OwnersAuto, OwnersMapped, OwnersCopied:
		return o, nil
	}
	return "", fmt.Errorf("%q is none of %s, %s and %s", s, OwnersAuto, OwnersMapped, OwnersCopied)
}

// Driver is a runtime.Driver, Execer, Statser, Logger and Pauser.
type Driver struct {
	Bundles
	runtimes []string
	args     []string
	owners   Owners

	// choosing holds a token while the self-test that chooses the runtime is on its way.
	choosing chan struct{}
	mu       sync.Mutex // protects what follows
	chosen   string     // path of the runtime that passed
	// byCommand says that writing to crun's pipe did not start a container.
	byCommand bool
	// noUserNS is why tasks cannot have user namespaces; empty: they can.
	noUserNS string
	copied   bool                 // tasks with user namespaces must be given what belongs to their users already
	filters  map[filterKey]string // compiled seccomp filters, in base64

	criu     string        // name or path
	trying   chan struct{} // holds a token while somebody finds out whether checkpoints work
	tried    bool          // with the token: somebody has
	cannot   error         // what that gave
	criuPath string
	runc     string // the runtime that makes them
}

// New opens the state directory and adopts the tasks in it.
func New(o Options) (*Driver, error) {
	o.Name = cmp.Or(o.Name, spec.RuntimeOCI)
	if len(o.Runtimes) == 0 {
		o.Runtimes = []string{"crun", "runc"}
	}
	d := &Driver{runtimes: o.Runtimes, args: o.RuntimeArgs, choosing: make(chan struct{}, 1), filters: map[filterKey]string{},
		criu: cmp.Or(o.Criu, "criu"), trying: make(chan struct{}, 1)}
	var err error
	d.Driver, err = monitor.NewDriver(monitor.DriverOptions{Name: o.Name, Dir: o.Dir, CgroupParent: o.CgroupParent, Conmon: o.Conmon,
		Sandbox: o.Sandbox, Log: o.Log, Clean: d.clean})
	if err != nil {
		return nil, err
	}
	d.Mounts = cmp.Or(o.Mounts, filepath.Join(o.Dir, "mounts"))
	d.NoMaps = o.Owners == OwnersCopied
	d.owners = cmp.Or(o.Owners, OwnersAuto)
	d.openPlaces()
	return d, nil
}

// CleanUp removes every task, the cgroups and where roots were mounted, but not the state directory. It is for a worker
// that leaves its machine.
func (d *Driver) CleanUp(ctx context.Context) error {
	err := d.Driver.CleanUp(ctx)
	if e := os.Remove(d.Mounts); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// clean takes the container out of the runtime's own books and unmounts its root.
func (d *Driver) clean(ctx context.Context, task *monitor.Task) error {
	rec := task.Record()
	lost := rec.Runtime == "" // by a power failure, which ended all that ran: the record is not forced to the disk
	programs := []string{rec.Runtime}
	if lost {
		programs = d.runtimes
	}
	var files []string
	for _, program := range programs {
		have, err := stateFiles(d.root(program), rec.Handle.ID)
		if err != nil {
			return err
		}
		files = append(files, have...)
	}
	if len(files) > 0 && !lost && !onlyFiles(task) {
		out, err := d.command(ctx, rec.Runtime, "delete", "--force", string(rec.Handle.ID)).CombinedOutput()
		if err != nil {
			// A state that the runtime itself cannot read any more is ours to delete: nothing runs in it.
			d.Options.Log.Warn("runtime delete", "task", rec.Handle.ID, "err", err, "output", strings.TrimSpace(string(out)))
		}
	}
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			return err
		}
	}
	if err := d.Unmount(task); err != nil || !lost {
		return err
	}
	return outside{Dir: filepath.Join(d.Mounts, string(rec.Handle.ID))}.forget()
}

// onlyFiles reports whether files are all that a runtime has of a task whose processes have ended. "delete" does three things: it kills
// processes, removes cgroups, which we do anyhow, and runs the hooks of its stage. As a process for each removal it took more than all the
// rest. A sandbox has processes of its own, and a start that was cut short may have left some outside the cgroup.
func onlyFiles(task *monitor.Task) bool {
	rec := task.Record()
	if !rec.Ready || !isCrun(rec.Runtime) && !isRunc(rec.Runtime) {
		return false
	}
	config, err := os.ReadFile(task.Path(configFile))
	return err == nil && !bytes.Contains(config, []byte(`"poststop"`)) // which may be another's word: then "delete" has nothing to run
}

// Runtimes are known by their names, with whatever follows: crun-1.8, runc.amd64.
func isCrun(program string) bool { return strings.HasPrefix(filepath.Base(program), "crun") }
func isRunc(program string) bool { return strings.HasPrefix(filepath.Base(program), "runc") }

// stateFiles lists what a runtime keeps of a container: crun and runc a directory of its name, runsc files in whose names it is.
func stateFiles(root string, id runtime.TaskID) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		if name == string(id) || strings.HasPrefix(name, string(id)+"_sandbox:") || name == "runsc-"+string(id)+".sock" {
			out = append(out, filepath.Join(root, name))
		}
	}
	return out, err
}

// global gives the arguments that go before each command of a runtime.
func (d *Driver) global(program string) []string {
	return append([]string{"--root", d.root(program)}, d.args...)
}

// command is a command of a runtime.
func (d *Driver) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, program, append(d.global(program), args...)...)
}

// root is where a runtime keeps its own state; two runtimes do not read each other's.
func (d *Driver) root(program string) string {
	return filepath.Join(d.Options.Dir, filepath.Base(program))
}

// openPlaces takes up the layers of places that tasks have, and removes others.
func (d *Driver) openPlaces() {
	d.places = &places{dir: filepath.Join(d.Options.Dir, "places"), used: d.usedPlaces}
	if err := d.places.sweep(0); err != nil {
		d.Options.Log.Warn("remove what a crash left", "err", err)
	}
}

// usedPlaces are the layers of places that tasks have.
func (d *Driver) usedPlaces() map[string]bool {
	used := map[string]bool{}
	for _, h := range d.Tasks.List() {
		if t, err := d.Tasks.Get(h); err == nil {
			used[outsideOf(t).Places] = true
		}
	}
	return used
}
