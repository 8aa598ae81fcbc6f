//go:build linux

package native

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// A program, and a command beside it, starts with nothing ignored, nothing blocked, the usual mask of permissions and its own three files,
// whatever the agent was started with.
func TestProgramsStartClean(t *testing.T) {
	d, err := open(t.TempDir())
	if err != nil {
		t.Fatalf("make the driver: %v", err)
	}
	defer d.Close()
	deaf := []os.Signal{syscall.SIGHUP, syscall.SIGTSTP, syscall.SIGUSR1}
	signal.Ignore(deaf...)
	defer signal.Reset(deaf...)
	defer unix.Umask(unix.Umask(0o077))
	goruntime.LockOSThread() // what it blocks is blocked in what it starts
	defer goruntime.UnlockOSThread()
	blocked, before := new(unix.Sigset_t), new(unix.Sigset_t)
	blocked.Val[0] = 1 << (unix.SIGTERM - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, blocked, before); err != nil {
		t.Fatalf("block SIGTERM: %v", err)
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, before, nil)

	held, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // a descriptor that nobody closes
	if err != nil {
		t.Fatalf("open a file: %v", err)
	}
	defer unix.Close(held)

	said := filepath.Join(t.TempDir(), "said")
	look := "grep -E '^(SigIgn|SigBlk|Umask)' /proc/self/status; ls /proc/self/fd"
	args := []string{"/bin/sh", "-c", "{ " + look + "; } >" + said + ".new; mv " + said + ".new " + said + "; exec sleep 1000"}
	h, err := d.Start(t.Context(), runtime.Spec{ID: "clean.main.1", Args: args})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer d.Remove(t.Context(), h)
	var beside bytes.Buffer
	ask := "until [ -e " + said + " ]; do sleep 0.01; done; " + look
	if _, err := d.(runtime.Execer).Exec(t.Context(), h, runtime.ExecSpec{Args: []string{"/bin/sh", "-c", ask}, Stdout: &beside}); err != nil {
		t.Fatalf("exec: %v", err)
	}
	own, err := os.ReadFile(said)
	if err != nil {
		t.Fatalf("the program: %v", err)
	}
	for who, text := range map[string]string{"the program": string(own), "the command": beside.String()} {
		const want = "Umask: 0022 SigBlk: 0000000000000000 SigIgn: 0000000000000000 0 1 2 3" // the last one is of ls
		if is := strings.Join(strings.Fields(text), " "); is != want {
			t.Errorf("%s starts with\n%s, not\n%s", who, is, want)
		}
	}
}
