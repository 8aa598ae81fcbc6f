package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// terminal runs a command on a terminal of its own and has a talk with it: terminal TALK COMMAND [ARG...]. The lines of a
// talk are
//
//	expect PATTERN     what comes after the last match holds PATTERN
//	screen PATTERN     what a person would see on the screen comes to hold PATTERN
//	send TEXT          type a Go string without its quotes
//	resize ROWS COLS
//	raw, cooked        the terminal comes to be so
//	signal NAME        send a signal to the command
//	exit CODE          the command ends so; without this line, with 0
//
// The screen is that of 24 rows of 80 characters.
func terminal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: terminal TALK COMMAND [ARG...]")
	}
	p, err := startOnTerminal(program(ts), args[1:], append(scriptEnv(ts), "TERM=xterm"), ts.MkAbs("."))
	ts.Check(err)
	defer p.close()
	code, ended := 0, false
	for n, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n") {
		verb, rest, _ := strings.Cut(line, " ")
		var err error
		switch verb {
		case "expect":
			err = p.expect(rest)
		case "screen":
			err = p.screen(rest)
		case "send":
			var text string
			if text, err = strconv.Unquote(`"` + rest + `"`); err == nil {
				_, err = io.WriteString(p.master, text)
			}
		case "resize":
			var rows, cols uint16
			if _, err = fmt.Sscan(rest, &rows, &cols); err == nil {
				err = p.resize(rows, cols)
			}
		case "raw", "cooked":
			err = p.mode(verb == "raw")
		case "signal":
			err = p.cmd.Process.Signal(unix.SignalNum(rest))
		case "exit":
			code, err = strconv.Atoi(rest)
			ended = true
		default:
			err = errors.New("what is this")
		}
		if err != nil {
			ts.Fatalf("%s:%d: %s: %v\nthe terminal shows:\n%s", args[0], n+1, line, err, p.text())
		}
	}
	if got, err := p.wait(); err != nil || got != code {
		ts.Fatalf("%s ended with %d (%v), not with %d (given: %t)\nthe terminal shows:\n%s", args[1], got, err, code, ended, p.text())
	}
}

// process is a command on a terminal.
type process struct {
	cmd    *exec.Cmd
	master *os.File
	slave  *os.File // kept, so that the terminal's mode can be seen after the command's end
	read   chan struct{}
	more   chan struct{} // something came
	gone   chan struct{}

	mu   sync.Mutex // protects out
	out  []byte
	seen int // up to where expect has come; of the script alone
}

func startOnTerminal(program string, args, env []string, dir string) (*process, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	p := &process{master: master, read: make(chan struct{}), more: make(chan struct{}, 1), gone: make(chan struct{})}
	var n int
	err = p.control(func(fd int) (err error) {
		if n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err == nil {
			err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
		}
		return err
	})
	if err == nil {
		p.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err == nil {
		err = p.resize(24, 80)
	}
	if err == nil {
		p.cmd = &exec.Cmd{Path: program, Args: args, Env: env, Dir: dir, Stdin: p.slave, Stdout: p.slave, Stderr: p.slave,
			SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true}}
		err = p.cmd.Start()
	}
	if err != nil {
		master.Close()
		p.slave.Close()
		return nil, err
	}
	go p.reader()
	go func() { p.cmd.Wait(); close(p.gone) }()
	return p, nil
}

func (p *process) control(f func(fd int) error) error {
	c, err := p.master.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

func (p *process) reader() {
	defer close(p.read)
	buf := make([]byte, 4096)
	for {
		n, err := p.master.Read(buf)
		p.mu.Lock()
		p.out = append(p.out, buf[:n]...)
		p.mu.Unlock()
		select {
		case p.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.out)
}

// until looks again whenever something came, and once the command has ended.
func (p *process) until(ok func() bool) error {
	late := time.NewTimer(scriptPatience)
	defer late.Stop()
	for gone := p.gone; !ok(); {
		if gone == nil {
			return errors.New("the command has ended")
		}
		select {
		case <-p.more:
		case <-gone:
			gone = nil
			p.drain()
		case <-late.C:
			return errors.New("waited in vain")
		}
	}
	return nil
}

// drain takes what the command wrote last: what follows the mark was written after it.
func (p *process) drain() {
	const mark = "\x00end\x00"
	if _, err := io.WriteString(p.slave, mark); err != nil {
		return
	}
	for !strings.Contains(p.text(), mark) {
		<-p.more
	}
	p.mu.Lock()
	p.out = bytes.Replace(p.out, []byte(mark), nil, 1)
	p.mu.Unlock()
}

func (p *process) expect(pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	return p.until(func() bool {
		text := p.text()
		at := re.FindStringIndex(text[p.seen:])
		if at != nil {
			p.seen += at[1]
		}
		return at != nil
	})
}

func (p *process) screen(pattern string) error {
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return err
	}
	err = p.until(func() bool { return re.MatchString(screenOf(p.text(), 24, 80)) })
	if err != nil {
		err = fmt.Errorf("%w; the screen:\n%s", err, screenOf(p.text(), 24, 80))
	}
	return err
}

func (p *process) resize(rows, cols uint16) error {
	return p.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// mode waits until the terminal hands on what is typed as it is, or line by line.
func (p *process) mode(raw bool) error {
	for deadline := time.Now().Add(scriptPatience); ; time.Sleep(5 * time.Millisecond) {
		var t *unix.Termios
		err := p.control(func(fd int) (err error) { t, err = unix.IoctlGetTermios(fd, unix.TCGETS); return err })
		if err != nil {
			return err
		}
		const cooked = unix.ICANON | unix.ECHO | unix.ISIG
		if is := t.Lflag & cooked; raw && is == 0 || !raw && is == cooked {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("flags are %#x", t.Lflag)
		}
	}
}

func (p *process) wait() (int, error) {
	select {
	case <-p.gone:
		p.drain()
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(scriptPatience):
		return -1, errors.New("it does not end")
	}
}

func (p *process) close() {
	p.cmd.Process.Kill()
	<-p.gone
	p.slave.Close()
	p.master.Close()
	<-p.read
}

// screenOf gives what a terminal shows that understands what the client writes: text, line ends, the cursor up, lines and the
// rest of the screen erased, and nothing else.
func screenOf(text string, rows, cols int) string {
	lines := [][]rune{nil}
	row, col := 0, 0
	top := func() int { return max(0, len(lines)-rows) }
	put := func(r rune) {
		if col == cols { // a full line goes on below only when something follows
			row, col = row+1, 0
		}
		for row >= len(lines) {
			lines = append(lines, nil)
		}
		for len(lines[row]) <= col {
			lines[row] = append(lines[row], ' ')
		}
		lines[row][col] = r
		col++
	}
	sequence := regexp.MustCompile(`^\x1b\[(\d*)([A-Z])`)
	for len(text) > 0 {
		if m := sequence.FindStringSubmatch(text); m != nil {
			n, _ := strconv.Atoi(m[1])
			switch m[2] {
			case "A":
				row = max(top(), row-max(n, 1))
			case "K": // 2 is the whole line
				lines[row] = nil
			case "J":
				lines = lines[:row+1]
				lines[row] = lines[row][:min(col, len(lines[row]))]
			default:
				return "the sequence " + strconv.Quote(m[0]) + " is not known"
			}
			text = text[len(m[0]):]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		switch r {
		case '\n':
			if row++; row == len(lines) {
				lines = append(lines, nil)
			}
		case '\r':
			col = 0
		default:
			put(r)
		}
	}
	var b strings.Builder
	for _, l := range lines[top():] {
		b.WriteString(strings.TrimRight(string(l), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
