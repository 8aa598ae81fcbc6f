//go:build linux

// Workload is the program that the conformance suite runs in every runtime. Each command proves one thing.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		fail("name a command")
	}
	args := os.Args[2:]
	if common(os.Args[1], args) {
		return
	}
	switch os.Args[1] {
	case "id":
		groups, _ := os.Getgroups()
		fmt.Println(os.Getuid(), os.Getgid(), groups)
	case "owner": // of a file, with its permissions and whether it lies in memory
		var st unix.Stat_t
		var fs unix.Statfs_t
		check(unix.Stat(args[0], &st))
		check(unix.Statfs(args[0], &fs))
		fmt.Printf("%d %04o memory=%v\n", st.Uid, st.Mode&0o7777, fs.Type == unix.TMPFS_MAGIC)
	case "euid":
		fmt.Println(os.Geteuid())
	case "reopen": // print by /dev/stdout and /dev/stderr, as services do that know only how to log to a file
		for _, name := range []string{"/dev/stdout", "/dev/stderr"} {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
			check(err)
			_, err = fmt.Fprintln(f, name)
			check(err)
		}
	case "listen": // at a port
		l, err := net.Listen("tcp4", "127.0.0.1:"+args[0])
		check(err)
		fmt.Println("listens at", l.Addr())
	case "handle": // read a file by its inode's number, wherever it is in the file system that a directory is on
		dir, err := os.Open(args[0])
		check(err)
		handle := binary.NativeEndian.AppendUint32(nil, uint32(number(args[1:])))
		// FILEID_INO32_GEN of any generation, as ext4 has it.
		fd, err := unix.OpenByHandleAt(int(dir.Fd()), unix.NewFileHandle(1, append(handle, 0, 0, 0, 0)), unix.O_RDONLY)
		check(err)
		b, err := io.ReadAll(os.NewFile(uintptr(fd), "file"))
		check(err)
		os.Stdout.Write(b)
	case "status":
		status(args[0])
	case "sleep": // until asked to end
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGUSR1)
		fmt.Println("ready")
		fmt.Println((<-c).String())
		os.Exit(3)
	case "watch": // have as many inotify instances as one can get, and stay
		n := 0
		for ; n < 900; n++ { // files may be fewer
			if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
				break
			}
		}
		fmt.Println("has", n)
		select {}
	case "hoard": // write so many MiB into a file that is deleted at once, and stay
		f, err := os.Create(args[0])
		check(err)
		check(os.Remove(args[0]))
		for range number(args[1:]) {
			_, err := f.Write(make([]byte, 1<<20))
			check(err)
		}
		fmt.Println("hoarded")
		time.Sleep(time.Hour)
		check(f.Close())
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "spin": // until that many milliseconds of processor time are used, not counting what came before in this process
		for began := processorTime(); processorTime()-began < int64(number(args))*1e6; {
		}
	case "grow": // hold so many MiB, and so many more after SIGUSR1
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGUSR1)
		held := bytes.Repeat([]byte{1}, number(args)<<20)
		fmt.Println("ready")
		if <-c == syscall.SIGUSR1 {
			more := bytes.Repeat([]byte{1}, number(args[1:])<<20)
			fmt.Println("grown", len(held)+len(more))
			<-c
			fmt.Println(len(more))
		}
		fmt.Println(len(held))
	case "fork":
		for i := range number(args) {
			cmd := exec.Command("/proc/self/exe", "sleep")
			if err := cmd.Start(); err != nil {
				fmt.Println("refused")
				os.Exit(i % 100)
			}
		}
		os.Exit(100)
	case "orphan": // leave a child behind that holds the output open
		cmd := exec.Command("/proc/self/exe", "stubborn")
		cmd.Stdout = os.Stdout
		check(cmd.Start())
		fmt.Println("left")
	case "chroot": // needs CAP_SYS_CHROOT
		check(unix.Chroot("/"))
	case "mount": // needs CAP_SYS_ADMIN
		check(unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	case "tty": // "tty sized" waits for a size: crun 1.8 sets it while the program is started
		sized := make(chan os.Signal, 1)
		signal.Notify(sized, unix.SIGWINCH)
		w, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		for ; err == nil && w.Row == 0 && len(os.Args) > 2; w, err = unix.IoctlGetWinsize(0, unix.TIOCGWINSZ) {
			<-sized
		}
		check(err)
		fmt.Println("tty", w.Row, w.Col)
	case "sizes": // of the terminal, as it changes
		changed := make(chan os.Signal, 1)
		signal.Notify(changed, unix.SIGWINCH)
		fmt.Println("ready")
		for range changed {
			w, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
			check(err)
			fmt.Println(w.Row, w.Col)
		}
	case "hostname":
		name, err := os.Hostname()
		check(err)
		fmt.Println(name)
	case "nofile":
		var r unix.Rlimit
		check(unix.Getrlimit(unix.RLIMIT_NOFILE, &r))
		fmt.Println(r.Cur, r.Max)
	case "links":
		b, err := os.ReadFile("/proc/self/net/dev")
		check(err)
		fmt.Println(strings.Count(string(b), ":"))
	default:
		fail("unknown command " + os.Args[1])
	}
}

func status(key string) {
	b, err := os.ReadFile("/proc/self/status")
	check(err)
	for line := range strings.Lines(string(b)) {
		if k, v, _ := strings.Cut(line, ":"); k == key {
			fmt.Println(strings.TrimSpace(v))
		}
	}
}

// processorTime is in nanoseconds.
func processorTime() int64 {
	var ts unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts))
	return ts.Nano()
}
