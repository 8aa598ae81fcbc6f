//go:build linux

package tty

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

// run runs a shell script by way of pipes that are the test's own user's.
func run(t *testing.T, spec runtime.ExecSpec, script string) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	spec, done, err := Pipes(cmd, spec, uint32(os.Getuid()), uint32(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	code, err := Run(t.Context(), cmd, spec, nil, nil, nil)
	done()
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestPipes(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t, runtime.ExecSpec{Stdin: strings.NewReader("in\n"), Stdout: &out, Stderr: &errs}, "cat; echo err >&2; exit 3"); code != 3 || out.String() != "in\n" || errs.String() != "err\n" {
		t.Errorf("%d %q %q", code, &out, &errs)
	}
	// One writer for both is written to by one goroutine, in the order of what was printed.
	var both bytes.Buffer
	if run(t, runtime.ExecSpec{Stdout: &both, Stderr: &both}, "echo 1; echo 2 >&2; echo 3"); both.String() != "1\n2\n3\n" {
		t.Errorf("%q", &both)
	}
	if code := run(t, runtime.ExecSpec{}, "echo nobody listens; exit 4"); code != 4 {
		t.Errorf("%d", code)
	}
}

// What a command leaves behind holds its output open, and nobody up.
func TestPipesAreLeft(t *testing.T) {
	hold, stop, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	defer stop.Close() // which ends what is left
	cmd := exec.Command("sh", "-c", "cat <&3 & echo out")
	cmd.ExtraFiles = []*os.File{hold}
	var out bytes.Buffer
	spec, done, err := Pipes(cmd, runtime.ExecSpec{Stdout: &out}, uint32(os.Getuid()), uint32(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	code, err := Run(t.Context(), cmd, spec, nil, nil, nil)
	done()
	if code != 0 || err != nil || out.String() != "out\n" {
		t.Errorf("%d %v %q", code, err, &out)
	}
}

func TestPipesBelongToTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "pipes of other users", Why: "they need root"})
	}
	cmd := exec.Command("true")
	spec, done, err := Pipes(cmd, runtime.ExecSpec{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}, 0x7300_0001, 0x7300_0002)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, f := range []any{cmd.Stdin, spec.Stdout, spec.Stderr} {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.(*os.File).Fd()), &st); err != nil || st.Uid != 0x7300_0001 || st.Gid != 0x7300_0002 {
			t.Errorf("%d:%d, %v", st.Uid, st.Gid, err)
		}
	}
}
