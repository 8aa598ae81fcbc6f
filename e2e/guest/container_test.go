//go:build linux && amd64

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

// containerVar gives a process of this test binary its part in a container: that of supervise or that of become.
const containerVar = "SKERRY_TEST_CONTAINER"

// cannot is the exit status of both where this host does not allow what a container needs.
const cannot = 125

// container is what its supervisor is given, and, with Inside, the process that becomes systemd.
type container struct {
	Dir            string // holds root.ext4, and an empty directory root where it is mounted
	Payload        string // appears as /payload
	Console, Agent string // terminals of this host, which appear as /dev/console and /dev/ttyS1
	Group          string // the name of its group in every hierarchy of cgroups
	Inside         bool
}

// groupPrefix begins the names of groups. The number of the process of tests follows.
const groupPrefix = "skerry-guest-"

// contain starts the systemd of an image as process 1 of a container of this host, with namespaces of its own of every kind but those of
// users and clocks. It is a machine like the guest, but for the kernel, its modules and the clock, which are the host's. The error says
// what this host does not allow.
func contain(t *testing.T, image, payload string) (*machine, *testenv.Unsupported) {
	t.Helper()
	unable := func(why string) *testenv.Unsupported {
		return &testenv.Unsupported{What: "systemd in a container", Why: why}
	}
	if os.Geteuid() != 0 {
		return nil, unable("namespaces and mounts need root")
	}
	dir := t.TempDir()
	disk := filepath.Join(image, "root.ext4")
	if out, err := exec.Command("cp", "--reflink=auto", "--sparse=always", disk, dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the root disk: %v\n%s", err, out)
	}
	console, consoleSlave := terminal(t)
	agent, agentSlave := terminal(t)
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	m := &machine{in: agent, answers: make(chan string), console: filepath.Join(dir, "console"), contained: true}
	m.cmd = part(container{dir, payload, consoleSlave.Name(), agentSlave.Name(), groupPrefix + fmt.Sprint(os.Getpid()), false})
	m.cmd.Stdout, m.cmd.Stderr = said, said
	// It keeps terminals open whose last process has ended for the time being.
	m.cmd.ExtraFiles = []*os.File{consoleSlave, agentSlave}
	// It ends the container when its input ends, also if this process is killed together with its group.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNS}
	life, err := m.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		return nil, unable(err.Error())
	}
	consoleSlave.Close()
	agentSlave.Close()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if to, err := os.Create(m.console); err == nil {
			_, _ = to.ReadFrom(console) // ends with an error when nobody has the terminal open
			to.Close()
		}
	}()
	go m.listen(agent)
	end := func() (string, error) {
		life.Close()
		err := m.cmd.Wait()
		for range m.answers { // until the reader has seen the end
		}
		<-copied
		console.Close()
		agent.Close()
		text, _ := os.ReadFile(said.Name())
		return strings.TrimSpace(string(text)), err
	}
	answer, err := m.next(t.Context())
	if err == nil && answer == "ready" {
		t.Cleanup(func() {
			if said, err := end(); t.Failed() || err != nil {
				text, _ := os.ReadFile(m.console)
				t.Logf("the container's console:\n%s\n%s, %v", tail(text, 40), said, err)
			}
			if left := loops(dir); len(left) > 0 {
				t.Errorf("loop devices of the container are left: %v", left)
			}
		})
		return m, nil
	}
	text, _ := os.ReadFile(m.console)
	why, ended := end()
	if e := (*exec.ExitError)(nil); errors.As(ended, &e) && e.ExitCode() == cannot {
		return nil, unable(why)
	}
	t.Fatalf("the container did not come up: %q, %v, %s, %v\n%s", answer, err, why, ended, tail(text, 40))
	return nil, nil
}

// part is a command that runs this binary as one of the processes of a container. It carries no mark of the tests: it ends by itself, after
// them, and would else be killed before it has removed its groups.
func part(c container) *exec.Cmd {
	spec, err := json.Marshal(c)
	if err != nil {
		panic(err) // a struct of strings
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{containerVar + "=" + string(spec), "PATH=" + os.Getenv("PATH")}
	return cmd
}

// terminal opens a pseudo-terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if e := raw.Control(func(fd uintptr) {
		if n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err == nil {
			err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		}
	}); e != nil || err != nil {
		t.Fatalf("unlock a terminal: %v, %v", e, err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// loops lists the loop devices whose file is below a directory, once those have had time to go that the kernel is about to detach: the
// mounts of a namespace end a moment after its last process.
func loops(dir string) (left []string) {
	for range 200 {
		left = nil
		files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(text), dir+"/") {
				left = append(left, strings.TrimSpace(string(text)))
			}
		}
		if len(left) == 0 {
			break
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 5e7}, nil)
	}
	return left
}
