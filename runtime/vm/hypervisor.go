//go:build linux

package vm

import (
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
)

// hypervisor is a program that runs machines. It is given everything that it is to open, so that it needs no rights of its own. vm-run
// calls its methods in this order, from one thread.
type hypervisor interface {
	// channel makes the connection by which the guest's init will speak. A read waits for it.
	channel(m *machine, files *opened) (io.ReadWriteCloser, error)
	// command gives the program that is the machine, and makes what that is to find. Its files are those of the machine, beside standard
	// error. Without attributes it is run as the machine's user.
	command(m *machine) (*exec.Cmd, error)
	// begin lets a machine go whose program has been started; ended is closed when that has ended.
	begin(m *machine, ended <-chan struct{}) error
	// end removes what a machine that has ended leaves behind.
	end(m *machine)
}

// Where a monitor offers a virtio socket, guests call the host by it.
const (
	vsockName = "vsock" // of the socket's file
	guestCID  = 3       // the guest's address, the least that one can have
)

// machine is what a hypervisor is to make.
type machine struct {
	Accel   string // "kvm" or "tcg"
	Parts   parts
	Kernel  *os.File // nil: the first disk is booted
	Initrd  *os.File // nil: none
	Cmdline string
	RAM     int64 // bytes
	CPUs    int
	Disks   []disk
	Console *os.File // a socket for the console
	Control *os.File // a socket for the serial port by which our init speaks; nil: none
	Monitor *os.File // a socket for QMP, by which the machine waits to be let go; nil: it begins at once
	Files   *os.File // a connection to what shares files, or for Cloud Hypervisor the socket that it connects to; nil: none
	NIC     *nic     // nil: none
	Reboots bool     // whether a guest that resets itself begins again; else the machine ends
	User    *syscall.Credential
	// Template is what the machine begins with, or leaves; nil: it boots, and leaves nothing.
	Template *template
	Rates    rates // what a hypervisor that can holds the machine to; the host's own limits hold as well

	reset atomic.Bool // the hypervisor has ended it because the guest reset itself
}

// ownDisks lets the machine's user open the disks that it writes to by their paths.
func (m *machine) ownDisks() error {
	for _, d := range m.Disks {
		if d.ReadOnly {
			continue
		}
		if err := d.File.Chown(int(m.User.Uid), int(m.User.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// disk is one of the guest's disks. The host caches it, and a completed flush of the guest's has reached stable storage, unless it is
// relaxed.
type disk struct {
	Serial   string
	Format   string // "raw" or "qcow2"; empty: raw
	File     *os.File
	Base     *disk // what is read where this one, a qcow2, was not written
	ReadOnly bool
	Relaxed  bool // a flush does nothing: it outlives its machine, but not the host's loss of power
}

// rates are limits per second of a machine's disks and of its network; a zero is none.
type rates struct {
	ReadBps, WriteBps, ReadIOPS, WriteIOPS uint64 `json:",omitempty"`
	In, Out                                uint64 `json:",omitempty"` // bytes
}
