//go:build linux

package vm

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"skerry.dev/skerry/runtime/vm/wire"
)

// clones says whether a release can be trusted with templates: with those before, a guest could not call its host any more after it had
// begun as another one.
func (p *firecrackerProgram) clones() bool { return p.atLeast(1, 16, 1) }

// jailBlank is, in the jail of a machine that uses a template, what all disks are while a template is made.
const jailBlank = "blank"

// lay puts in the jail what a template is made of, or is made to. Without one it does nothing.
func (f *firecracker) lay(of *template, uid int) error {
	if of == nil {
		return nil
	}
	blank := filepath.Join(f.root(), jailBlank)
	const size = 4096
	if err := errors.Join(os.WriteFile(blank, make([]byte, size), 0o600), os.Chown(blank, uid, uid)); err != nil {
		return err
	}
	for _, name := range []string{templateMemory, templateState} {
		flags := os.O_RDONLY
		if of.New {
			flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
		}
		file, err := os.OpenFile(filepath.Join(of.Dir, name), flags, 0o600)
		if err != nil {
			return err
		}
		if of.New {
			err = file.Chown(uid, uid)
		}
		err = errors.Join(err, f.give(name, file, !of.New))
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// load has a machine begin with a template. It stands still.
func (f *firecracker) load(api *firecrackerAPI) error {
	return api.do("PUT", "/snapshot/load", object{
		"snapshot_path": "/" + templateState, "mem_backend": object{"backend_type": "File", "backend_path": "/" + templateMemory},
	})
}

// makeTemplate boots a machine with blank disks, and makes a template of it when its init has called and waits: it has been told nothing.
// Where only that fails, the machine can go on. It stands still.
func (f *firecracker) makeTemplate(api *firecrackerAPI, of *machine, ended <-chan struct{}) error {
	if err := api.all(f.boot(of)); err != nil {
		return err
	}
	call, err := f.firstCall(ended)
	if err != nil {
		return err
	}
	defer call.Close() // it calls again
	if err := api.do("PATCH", "/vm", object{"state": "Paused"}); err != nil {
		return err
	}
	// Pages that the guest never touched are holes. Firecracker finds them by mincore(2), for which those that are swapped out are such, too.
	kind := "Diff"
	if swaps() {
		kind = "Full"
	}
	err = api.do("PUT", "/snapshot/create", object{
		"snapshot_type": kind, "snapshot_path": "/" + templateState, "mem_file_path": "/" + templateMemory,
	})
	return of.Template.seal(err)
}

// swaps says whether the host may have written memory to a disk.
func swaps() bool {
	text, err := os.ReadFile("/proc/swaps")
	lines := 0
	for _, c := range text {
		if c == '\n' {
			lines++
		}
	}
	return err == nil && lines > 1 // the first is a heading
}

// seal takes a template away from the machine that made it, before that runs a program, and writes down how it went.
func (t *template) seal(outcome error) error {
	for _, name := range []string{templateMemory, templateState} {
		path := filepath.Join(t.Dir, name)
		// A hypervisor that is a user of its own reads it. The directory that it is in is closed to all others.
		outcome = cmp.Or(outcome, os.Chown(path, 0, 0), os.Chmod(path, 0o644))
	}
	text := ""
	if outcome != nil {
		text = outcome.Error()
		for _, name := range []string{templateMemory, templateState} { // it may be that they have filled the disk
			_ = os.Truncate(filepath.Join(t.Dir, name), 0)
		}
	}
	return os.WriteFile(filepath.Join(t.Dir, templateOutcome), []byte(text), 0o600)
}

// firstCall waits until the guest's init has called and said so.
func (f *firecracker) firstCall(ended <-chan struct{}) (net.Conn, error) {
	done := make(chan struct{})
	defer close(done)
	listener := f.caller.l
	go func() {
		select {
		case <-ended:
			listener.Close()
		case <-done:
		}
	}()
	_ = listener.SetDeadline(time.Now().Add(f.patience))
	conn, err := listener.Accept()
	_ = listener.SetDeadline(time.Time{})
	if err != nil {
		return nil, fmt.Errorf("its guest did not call: %w", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(f.patience))
	if hello, err := wire.Read(conn); err != nil || hello.Kind != wire.KindHello {
		conn.Close()
		return nil, fmt.Errorf("its guest called, but said nothing: %v", err)
	}
	return conn, nil
}
