//go:build linux

// Guestinit is the first process of a guest that runs a task: it loads the kernel's modules, takes what it is to do from
// vm-run on the host, makes the root file system, and runs the task's program and whatever is executed beside it. It is
// carried by the skerry binary (see runtime/vm) and must stay small: it uses system calls and little else.
package main

import (
	"strconv"
	"strings"
	"syscall"

	"skerry.dev/skerry/runtime/vm/wire"
)

func main() {
	if syscall.Getpid() != 1 {
		print("guestinit: this is the first process of a virtual machine, and nothing else\n")
		syscall.Exit(2)
	}
	if err := run(); err != nil {
		print("guestinit: ", err.Error(), "\n")
	}
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
}

// failure is an error with what was tried.
type failure struct {
	what string
	err  error
}

func (f *failure) Error() string { return f.what + ": " + f.err.Error() }

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return &failure{what, err}
}

func run() error {
	for _, m := range [][3]string{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		_ = syscall.Mkdir(m[1], 0o755)
		if err := syscall.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			return wrap("mount "+m[1], err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	host, f, err := orders()
	if err != nil {
		return err
	}
	g := &guest{link: host, procs: map[uint32]*process{}}
	var c wire.Config
	if f.Kind != wire.KindConfig || wire.Decode(f.Data, &c) != nil {
		return wire.ErrFrame
	}
	if err := g.prepare(&c); err != nil {
		_ = g.link.send(wire.KindFailed, 0, wire.Encode(&wire.Failure{Message: err.Error()}))
		return g.link.untilGone() // the host turns the machine off when it has read that
	}
	return g.serve(&c.Process)
}

// orders calls the host and waits for what it says first. When a template is made of the machine, the call is cut: this machine, and each
// that begins with the template, then calls again. If the host is not there any more, openLink gives up and the machine ends.
func orders() (*link, wire.Frame, error) {
	for {
		host, err := openLink()
		if err != nil {
			return nil, wire.Frame{}, err
		}
		var f wire.Frame
		if err = host.send(wire.KindHello, 0, []byte{wire.Version}); err == nil {
			f, err = wire.Read(host)
		}
		if err == nil || !host.socket {
			return host, f, err
		}
		syscall.Close(host.fd)
		pause()
	}
}

// loadModules loads what /modules names. What a module needs of another is told by nothing but its failure, so those that
// failed are tried again after the others.
func loadModules() error {
	list, err := readFile("/modules")
	if err != nil {
		return nil // everything is in the kernel
	}
	for names := strings.Fields(list); len(names) > 0; {
		var failed []string
		var last error
		for _, name := range names {
			if last = loadModule("/" + name); last != nil {
				failed = append(failed, name)
			}
		}
		if len(failed) == len(names) {
			return wrap("load "+strings.Join(failed, ", "), last)
		}
		names = failed
	}
	return nil
}

func loadModule(path string) error {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	flags := 0
	if !strings.HasSuffix(path, ".ko") {
		flags = 4 // MODULE_INIT_COMPRESSED_FILE
	}
	if err := finitModule(fd, flags); err != nil && err != syscall.EEXIST {
		return err
	}
	return syscall.Unlink(path)
}

// openLink finds what leads to vm-run: a serial port, or where there is none a socket.
func openLink() (*link, error) {
	const dir = "/sys/class/virtio-ports/"
	for range 3000 {
		for _, name := range list(dir) {
			if label, _ := readFile(dir + name + "/name"); strings.TrimSpace(label) != wire.Port {
				continue
			}
			fd, err := syscall.Open("/dev/"+name, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
			return &link{fd: fd}, err
		}
		if fd, err := connectHost(); err == nil {
			return &link{fd: fd, socket: true}, nil
		}
		pause()
	}
	return nil, wrap("find the port to the host", syscall.ENODEV)
}

// pause is 10 ms, between two looks at what the kernel brings up by itself.
func pause() {
	_ = syscall.Nanosleep(&syscall.Timespec{Nsec: 10e6}, nil)
}

// findDisk waits for the disk whose file system has a label. Not every hypervisor lets a disk have a serial number. In a machine that began
// with a template, the kernel hears of the disk's size a little later.
func findDisk(label string) (string, error) {
	const sector = 512
	for range 1000 {
		for _, name := range list("/sys/block") {
			found, size := fileSystem("/dev/" + name)
			if found != label {
				continue
			}
			if sectors, err := readFile("/sys/block/" + name + "/size"); err == nil && number(sectors)*sector >= size {
				return "/dev/" + name, nil
			}
		}
		pause()
	}
	return "", wrap("find the disk "+label, syscall.ENODEV)
}

// fileSystem reads the label and the size in bytes of an ext4 file system; an empty label: there is none.
func fileSystem(device string) (label string, size uint64) {
	fd, err := syscall.Open(device, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", 0
	}
	defer syscall.Close(fd)
	const superblock, blocks, block, magic, name = 1024, 0x04, 0x18, 0x38, 0x78
	b := make([]byte, name+16)
	if n, err := syscall.Pread(fd, b, superblock); err != nil || n != len(b) || b[magic] != 0x53 || b[magic+1] != 0xef {
		return "", 0
	}
	little := func(at int) uint64 {
		return uint64(b[at]) | uint64(b[at+1])<<8 | uint64(b[at+2])<<16 | uint64(b[at+3])<<24
	}
	return strings.TrimRight(string(b[name:]), "\x00"), little(blocks) << (10 + little(block)&0xf)
}

func readFile(path string) (string, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", wrap(path, err)
	}
	defer syscall.Close(fd)
	var out []byte
	b := make([]byte, 4096)
	for {
		n, err := syscall.Read(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return "", wrap(path, err)
		}
		if n == 0 {
			return string(out), nil
		}
		out = append(out, b[:n]...)
	}
}

func writeFile(path, text string) error {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return wrap(path, err)
	}
	defer syscall.Close(fd)
	_, err = syscall.Write(fd, []byte(text))
	return wrap(path, err)
}

// list gives the names in a directory.
func list(dir string) []string {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var names []string
	b := make([]byte, 4096)
	for {
		n, err := syscall.ReadDirent(fd, b)
		if err != nil || n <= 0 {
			return names
		}
		_, _, names = syscall.ParseDirent(b[:n], -1, names)
	}
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	return n
}
