//go:build linux

package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/vm/wire"
)

// setup is what vm-run makes, in the bundle.
type setup struct {
	QEMU      string
	FileShare string // the program that shares files
	Accel     string
	Kernel    string
	Initrd    string
	RAM       int64
	CPUs      int
	Disks     []diskFile
	Shares    []share
	Guest     wire.Config
	// BootMillis is how long the guest may take to speak.
	BootMillis int
	CgroupDirs []string
	// Unified says that CgroupDirs[0] is of version 2.
	Unified bool
	// Limits are files and what to write to them when the guest has booted.
	Limits [][2]string
	NetNS  string
	// Appliance is set for a machine whose system is the image's own; Guest, Shares, Disks and BootMillis are then not.
	Appliance *appliance `json:",omitempty"`
	// Firecracker is set for a machine of it; QEMU and FileShare are then not. CloudHypervisor is a program; QEMU is then not set.
	Firecracker     *firecrackerProgram `json:",omitempty"`
	CloudHypervisor string              `json:",omitempty"`
	Rates           rates               `json:",omitzero"`
	// Template is set for a machine of Firecracker's that begins with one, or leaves one.
	Template *template `json:",omitempty"`
}

type diskFile struct {
	Serial, Path string
	ReadOnly     bool
}

// share is a file or directory of the host that the guest mounts.
type share struct {
	Source, Name string
	ReadOnly     bool
}

// Files in the bundle.
const (
	setupFile  = "vm.json"
	socketFile = "vm.sock"
	usageFile  = "usage.json"
	oomFile    = "oom" // conmon's name for it
)

// Main is the hidden command that conmon runs in place of an OCI runtime:
//
//	create --bundle DIR --pid-file FILE ID    start a machine, and end when its program is being executed
//	run DIR                                   be the machine's supervisor; descriptor 3 is told how the start went
//
// It returns the exit status.
func Main(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "vm-run: this command is not for people; see runtime/vm")
		return 2
	}
	switch args[0] {
	case "create":
		if err := create(args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	case "run":
		if len(args) == 2 {
			return supervise(args[1])
		}
	case "delete", "kill", "state":
		return 0 // conmon may ask; the driver does it itself
	}
	fmt.Fprintf(os.Stderr, "vm-run: unknown command %q\n", args)
	return 2
}

func readSetup(bundle string) (*setup, error) {
	data, err := os.ReadFile(filepath.Join(bundle, setupFile))
	if err != nil {
		return nil, err
	}
	s := &setup{}
	return s, json.Unmarshal(data, s)
}

// create starts the supervisor as a child that conmon, a subreaper, inherits, and waits until the guest's program runs.
func create(args []string) error {
	// What is done to this thread (namespaces, control group) is what the child inherits.
	runtime.LockOSThread()
	flags := map[string]string{}
	for i := 0; i+1 < len(args); i++ {
		if strings.HasPrefix(args[i], "--") {
			flags[args[i]] = args[i+1]
			i++
		}
	}
	bundle := flags["--bundle"]
	setup, err := readSetup(bundle)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The command line up to "create" leads here again.
	command := []string{self}
	for _, a := range os.Args[1:] {
		if a == "create" {
			break
		}
		command = append(command, a)
	}
	attr := &syscall.SysProcAttr{Setsid: true}
	if setup.Unified && len(setup.CgroupDirs) > 0 {
		dir, err := unix.Open(setup.CgroupDirs[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		attr.UseCgroupFD, attr.CgroupFD = true, dir
	} else {
		for _, d := range setup.CgroupDirs {
			if err := os.WriteFile(filepath.Join(d, "tasks"), []byte(strconv.Itoa(unix.Gettid())), 0o644); err != nil {
				return fmt.Errorf("cgroup: %w", err)
			}
		}
	}
	if setup.NetNS != "" {
		ns, err := unix.Open(setup.NetNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(ns, unix.CLONE_NEWNET)
		}
		if err != nil {
			return fmt.Errorf("network: join %s: %w", setup.NetNS, err)
		}
	}
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	// One processor's worth of the Go runtime suffices, and a small heap.
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOMAXPROCS=1", "GOGC=30"}
	pid, err := syscall.ForkExec(self, append(command, "run", bundle),
		&syscall.ProcAttr{Dir: bundle, Env: env, Files: []uintptr{0, 1, 2, out.Fd()}, Sys: attr})
	out.Close()
	if err != nil {
		return fmt.Errorf("start vm-run: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(in, 64<<10))
	if err == nil && string(answer) != ready {
		if err = errors.New(string(answer)); len(answer) == 0 {
			err = errors.New("vm-run ended without a word")
		}
	}
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return err
	}
	return os.WriteFile(flags["--pid-file"], []byte(strconv.Itoa(pid)), 0o644)
}

// ready is what the supervisor says when the program is being executed; anything else is why it is not.
const ready = "ready"
