//go:build linux

package vm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"skerry.dev/skerry/runtime/internal/probe"
)

// qemu is QEMU; the value is its path.
type qemu string

// channel is a serial port of the machine's.
func (q qemu) channel(m *machine, files *opened) (io.ReadWriteCloser, error) {
	ours, theirs, err := files.pair()
	m.Control = theirs
	return ours, err
}

// begin has nothing to do: a machine without a monitor begins by itself.
func (q qemu) begin(*machine, <-chan struct{}) error { return nil }

func (q qemu) end(*machine) {}

func (q qemu) command(m *machine) (*exec.Cmd, error) {
	cmd := exec.Command(string(q))
	pass := func(f *os.File) int {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		return 2 + len(cmd.ExtraFiles)
	}
	b := m.Parts
	cpu, accel, cmdline := "host", "kvm", []string{b.cmdline, m.Cmdline}
	if m.Accel != "kvm" {
		// Translated code is charged to the task; the default may grow to a gigabyte. One thread emulates all processors: with one
		// for each, QEMU 7.2 may lose a store into code that it is just translating for another, and a guest that patches its
		// kernel then stands still.
		cpu, accel, cmdline = b.cpu, "tcg,thread=single,tb-size=64", append(cmdline, b.emulated)
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		"-global", "virtio-mmio.force-legacy=false", // the shared files know the newer one only
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-machine", b.machine + ",memory-backend=ram", "-accel", accel, "-cpu", cpu, "-smp", strconv.Itoa(m.CPUs), "-m", strconv.FormatInt(m.RAM>>20, 10) + "M",
		"-object", fmt.Sprintf("memory-backend-memfd,id=ram,size=%d,share=on", m.RAM),
		"-chardev", fmt.Sprintf("socket,id=console,fd=%d", pass(m.Console)), "-serial", "chardev:console",
	}
	if !m.Reboots {
		args = append(args, "-no-reboot")
	}
	if m.Kernel == nil { // a system that starts for the first time makes keys
		args = append(args, "-object", "rng-builtin,id=random", "-device", b.device("virtio-rng")+",rng=random")
	}
	if m.Kernel != nil {
		args = append(args, "-kernel", fmt.Sprintf("/proc/self/fd/%d", pass(m.Kernel)), "-append", strings.TrimSpace(strings.Join(cmdline, " ")))
	}
	if m.Initrd != nil {
		args = append(args, "-initrd", fmt.Sprintf("/proc/self/fd/%d", pass(m.Initrd)))
	}
	if m.Control != nil {
		args = append(args, "-device", b.device("virtio-serial"), "-chardev", fmt.Sprintf("socket,id=port,fd=%d", pass(m.Control)),
			"-device", "virtserialport,chardev=port,name=skerry")
	}
	if m.Monitor != nil {
		args = append(args, "-S", "-chardev", fmt.Sprintf("socket,id=qmp,fd=%d", pass(m.Monitor)), "-mon", "chardev=qmp,mode=control")
		if b.exit != "" {
			args = append(args, "-device", b.exit)
		}
	}
	sets := 0
	add := func(d *disk, name string, backing any) {
		sets++
		node := map[string]any{
			"driver": cmp.Or(d.Format, "raw"), "node-name": name, "read-only": d.ReadOnly, "cache": map[string]bool{"direct": false, "no-flush": d.Relaxed},
			"file": map[string]any{"driver": "file", "filename": fmt.Sprintf("/dev/fdset/%d", sets), "locking": "off"},
		}
		if d.Format == "qcow2" {
			node["backing"] = backing // null where there is none: nothing that the image itself names is opened
		}
		options, _ := json.Marshal(node) // of strings and truths
		args = append(args, "-add-fd", fmt.Sprintf("fd=%d,set=%d", pass(d.File), sets), "-blockdev", string(options))
	}
	for i := range m.Disks {
		d, backing := &m.Disks[i], any(nil)
		if d.Base != nil {
			add(d.Base, d.Serial+"-base", nil)
			backing = d.Serial + "-base"
		}
		add(d, d.Serial, backing)
		device := fmt.Sprintf("%s,drive=%s,serial=%s", b.device("virtio-blk"), d.Serial, d.Serial)
		if m.Kernel == nil && i == 0 {
			device += ",bootindex=0"
		}
		args = append(args, "-device", device)
	}
	if m.Files != nil {
		args = append(args, "-chardev", fmt.Sprintf("socket,id=files,fd=%d", pass(m.Files)), "-device", b.device("vhost-user-fs")+",chardev=files,tag=skerry")
	}
	if m.NIC != nil {
		args = append(args, "-netdev", fmt.Sprintf("tap,id=net,fd=%d", pass(m.NIC.Tap)), "-device", fmt.Sprintf("%s,netdev=net,mac=%s", b.device("virtio-net"), m.NIC.MAC))
	}
	cmd.Args = append(cmd.Args, args...)
	return cmd, nil
}

// parts are what machines of an architecture are made of.
type parts struct {
	program string
	machine string
	cpu     string // emulated
	bus     string // how virtio devices are named
	cmdline string
	// emulated is what the kernel must be told beside that where the processor is emulated.
	emulated string
	exit     string // the device by which a system of others ends the machine with a status; empty: none
}

func (p parts) device(name string) string { return name + "-" + p.bus }

// board is the smallest machine of an architecture that Debian's kernels start on.
func board(arch string) parts {
	switch arch {
	case "arm64":
		return parts{"qemu-system-aarch64", "virt", "cortex-a57", "device", "console=ttyAMA0", "", ""}
	case "riscv64":
		return parts{"qemu-system-riscv64", "virt", "rv64", "device", "console=ttyS0", "", ""}
	}
	// Such kernels find virtio devices by ACPI, and have no other way to know an emulated clock's rate in time. Warnings are for noClock.
	// With mitigations of speculation an emulated processor forgets what it knows of addresses in each system call. They are for a real
	// one: what keeps machines apart here is QEMU's process.
	return parts{"qemu-system-x86_64", "microvm,acpi=on,rtc=on", "Nehalem,-spec-ctrl", "device", "console=ttyS0 reboot=t",
		"tsc=reliable tsc_early_khz=2600000 loglevel=5 mitigations=off", ""}
}

// bareBoard is board for a kernel that is not Linux: nothing is added to its command line.
func bareBoard(arch string) parts {
	p := board(arch)
	p.cmdline, p.emulated = "", ""
	if arch == "amd64" {
		p.exit = fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=1", probe.ExitPort)
	}
	return p
}

// computer is a machine that boots a disk by its firmware.
func computer(arch string) parts {
	p := bareBoard(arch)
	p.machine, p.bus = "q35", "pci"
	return p
}

// commandLine is the kernel's, beside what the architecture needs.
const commandLine = "quiet panic=-1 mitigations=auto cryptomgr.notests"
