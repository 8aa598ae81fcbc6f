//go:build linux

package tty

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(socketEnv); socket != "" {
		leave(socket)
	}
	os.Exit(testenv.Main(m, testenv.Options{}))
}

// run runs a shell script.
func run(t *testing.T, spec runtime.ExecSpec, script string, o Options) int {
	t.Helper()
	code, err := Run(t.Context(), exec.Command("sh", "-c", script), spec, o)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestPipes(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(t, runtime.ExecSpec{Stdin: strings.NewReader("in\n"), Stdout: &out, Stderr: &errs}, "cat; echo err >&2; exit 3", Options{})
	if code != 3 || out.String() != "in\n" || errs.String() != "err\n" {
		t.Errorf("%d %q %q", code, &out, &errs)
	}
	// One writer for both is written to by one goroutine, in the order of what was printed.
	var both bytes.Buffer
	if run(t, runtime.ExecSpec{Stdout: &both, Stderr: &both}, "echo 1; echo 2 >&2; echo 3", Options{}); both.String() != "1\n2\n3\n" {
		t.Errorf("%q", &both)
	}
	if code := run(t, runtime.ExecSpec{}, "echo nobody listens; exit 4", Options{}); code != 4 {
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
	for _, terminal := range []bool{false, true} {
		cmd := exec.Command("sh", "-c", "trap '' HUP; cat <&3 & echo out")
		cmd.ExtraFiles = []*os.File{hold}
		var out bytes.Buffer
		code, err := Run(t.Context(), cmd, runtime.ExecSpec{TTY: terminal, Stdout: &out}, Options{})
		if code != 0 || err != nil || strings.TrimSpace(out.String()) != "out" {
			t.Errorf("%d %v %q", code, err, &out)
		}
	}
}

// Nor does what is left and goes on writing, which would be for days until it has written too much. It ends when nobody reads.
func TestPipesAreLeftToATalker(t *testing.T) {
	var out bytes.Buffer
	code := run(t, runtime.ExecSpec{Stdout: &out}, "while echo more; do sleep 0.1; done & echo out", Options{})
	if code != 0 || !strings.Contains(out.String(), "out\n") {
		t.Errorf("it ended with %d after %q", code, &out)
	}
}

func TestPipesBelongToTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "pipes of other users", Why: "they need root"})
	}
	p := &pipes{owner: &Owner{0x7300_0001, 0x7300_0002}, ended: make(chan struct{})}
	cmd := exec.Command("true")
	err := p.open(cmd, runtime.ExecSpec{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	defer p.close()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.(*os.File).Fd()), &st); err != nil || st.Uid != 0x7300_0001 || st.Gid != 0x7300_0002 {
			t.Errorf("%d:%d, %v", st.Uid, st.Gid, err)
		}
	}
}

// slow is a reader of output who is not there for longer than what is left behind is waited for.
type slow struct {
	bytes.Buffer
	begun bool
}

func (s *slow) Write(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		time.Sleep(2 * silence)
	}
	return s.Buffer.Write(b)
}

// However slow the reader is, nothing is lost that was written before the end, and no more than a bit is read of what comes after it.
func TestSlowReader(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var out slow
		const script = "echo begin; sleep 0.1; head -c 60000 /dev/zero | tr '\\0' x; echo end"
		run(t, runtime.ExecSpec{TTY: terminal, Stdout: &out}, script, Options{})
		want := "begin\n" + strings.Repeat("x", 60_000) + "end\n"
		if got := strings.ReplaceAll(out.String(), "\r\n", "\n"); got != want {
			t.Errorf("terminal=%v: %d of %d bytes", terminal, len(got), len(want))
		}
	}
}

func TestEndlessOutputIsLeft(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var out bytes.Buffer
		run(t, runtime.ExecSpec{TTY: terminal, Stdout: &out}, "trap '' HUP; yes & sleep 0.1", Options{})
		if out.Len() == 0 {
			t.Errorf("terminal=%v: nothing", terminal)
		}
	}
}

// The terminal of a command that makes a further one passes everything on as it is, also when the command sets it as runc does; ends of
// lines are complete, and not twice.
func TestInnerTerminal(t *testing.T) {
	var out bytes.Buffer
	keys := strings.NewReader("\x03\r\x04")
	run(t, runtime.ExecSpec{TTY: true, Stdin: keys, Stdout: &out}, `printf 'a\nb\r'; stty opost; printf '\nc\n'; head -c 3`, Options{Inner: true})
	if got := out.String(); got != "a\r\nb\r\nc\r\n\x03\r\x04" {
		t.Errorf("%q", got)
	}
}

// A program may close its terminal, and open it again.
func TestTerminalIsReopened(t *testing.T) {
	var out bytes.Buffer
	const script = "at=$(tty); echo one; exec </dev/null >/dev/null 2>&1; sleep 0.1; echo two >$at"
	run(t, runtime.ExecSpec{TTY: true, Stdout: &out}, script, Options{})
	if got := out.String(); got != "one\r\ntwo\r\n" {
		t.Errorf("%q", got)
	}
}

// socketEnv makes the test program stand for a runtime that is to leave a terminal at a socket.
const socketEnv = "SKERRY_TTY_TEST_SOCKET"

// leave makes a terminal, sends its master to a socket, and runs its arguments there. It does not copy, and ends with the process.
func leave(socket string) {
	master, slave, err := Open()
	if err != nil {
		panic(err)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: socket})
	if err != nil {
		panic(err)
	}
	if _, _, err := conn.WriteMsgUnix([]byte("/dev/ptmx"), unix.UnixRights(int(master.Fd())), nil); err != nil {
		panic(err)
	}
	conn.Close()
	master.Close()
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	slave.Close()
	if err == nil {
		err = cmd.Wait()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if s := exit.Sys().(syscall.WaitStatus); s.Signaled() {
			os.Exit(128 + int(s.Signal()))
		}
		os.Exit(exit.ExitCode())
	}
	os.Exit(0)
}

// console runs a shell script on a terminal that comes from a runtime, whose socket has a long name.
func console(ctx context.Context, t *testing.T, spec runtime.ExecSpec, script string) (int, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := Listen(filepath.Join(dir, "console"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	cmd := exec.Command("/proc/self/exe", "sh", "-c", script)
	cmd.ExtraFiles = []*os.File{at}
	cmd.Env = append(os.Environ(), socketEnv+"=/proc/self/fd/3/console")
	spec.TTY = true
	code, err := Run(ctx, cmd, spec, Options{Console: c})
	c.Close()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	return code, err
}

func TestConsole(t *testing.T) {
	for range 20 {
		var out bytes.Buffer
		code, err := console(t.Context(), t, runtime.ExecSpec{Stdout: &out}, "printf out; exit 3")
		if code != 3 || err != nil || out.String() != "out" {
			t.Fatalf("%d, %v, %q", code, err, &out)
		}
	}
	var slow slow
	code, err := console(t.Context(), t, runtime.ExecSpec{Stdout: &slow}, "seq 10000")
	if code != 0 || err != nil || strings.Count(slow.String(), "\r\n") != 10_000 {
		t.Errorf("%d, %v, %d lines", code, err, strings.Count(slow.String(), "\r\n"))
	}
}

// talk is a person at a terminal: it answers lines that begin with a word.
type talk struct {
	bytes.Buffer
	answers map[string]func()
}

func (p *talk) Write(b []byte) (int, error) {
	p.Buffer.Write(b)
	for word, f := range p.answers {
		if strings.Contains(p.String(), word) {
			delete(p.answers, word)
			f()
		}
	}
	return len(b), nil
}

// Keys, the size and the end of a terminal reach the process.
func TestConsoleIsATerminal(t *testing.T) {
	keys, typed := io.Pipe()
	defer typed.Close()
	sizes := make(chan runtime.WinSize, 1)
	p := &talk{answers: map[string]func(){
		"ready":    func() { sizes <- runtime.WinSize{Rows: 30, Cols: 100} },
		"30 100":   func() { go typed.Write([]byte("word\n")) },
		"got word": func() { go typed.Write([]byte{3}) },
	}}
	code, err := console(t.Context(), t, runtime.ExecSpec{Stdin: keys, Stdout: p, Resize: sizes},
		`echo ready; until [ "$(stty size)" = "30 100" ]; do sleep 0.01; done; stty size
		trap 'exit 9' INT; read a; echo got $a; while :; do sleep 0.01; done`)
	if code != 9 || err != nil {
		t.Errorf("%d, %v, %q", code, err, &p.Buffer)
	}
	// Below nohup, a shell is deaf to this signal unless who starts it is not.
	hears := make(chan os.Signal, 1)
	signal.Notify(hears, unix.SIGHUP)
	defer signal.Stop(hears)
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "word")
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := console(ctx, t, runtime.ExecSpec{Stdout: &talk{answers: map[string]func(){"ready": cancel}}},
		"trap 'echo hung up >"+file+"; exit' HUP; echo ready; while :; do sleep 0.01; done"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "hung up\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// A runtime that starts no process ends without a word.
func TestConsoleStaysEmpty(t *testing.T) {
	c, err := Listen(filepath.Join(t.TempDir(), "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if code, err := Run(t.Context(), exec.Command("false"), runtime.ExecSpec{TTY: true}, Options{Console: c}); code != 1 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

// What is no terminal alone is not taken, and not kept.
func TestConsoleTakesOneTerminal(t *testing.T) {
	socket, err := Listen(filepath.Join(t.TempDir(), "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unix", nil, socket.addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.WriteMsgUnix([]byte("/dev/ptmx"), unix.UnixRights(int(w.Fd()), int(w.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	w.Close()
	if master := socket.receive(); master != nil {
		t.Error("it was taken")
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF { // with a writer it would wait
		t.Errorf("%d bytes are read, %v", n, err)
	}
	r.Close()
}
