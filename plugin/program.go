package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry"
)

// startTime is what the first answer of a program may take, with its start.
const startTime = 1500 * time.Millisecond

// program asks a process that reads a query per line and writes an answer per line. It is started at the first query, and
// again after it ended or was killed because it did not keep to that.
type program struct {
	name   string
	desc   *Description
	opt    *Options
	args   []string
	stderr *lines
	turns  chan struct{} // whoever holds the one place owns proc
	proc   *process

	mu   sync.Mutex
	cage []string // what keeps it apart
}

func newProgram(name string, d *Description, o *Options, stderr *lines) (*program, error) {
	args, err := d.argv(o.Dir)
	if err != nil {
		return nil, err
	}
	x := &program{name: name, desc: d, opt: o, args: args, stderr: stderr, turns: make(chan struct{}, 1)}
	x.cage = x.plan()
	return x, nil
}

// process is one run of a program.
type process struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.ReadCloser
	answers chan answer   // closed at its end
	done    chan struct{} // closed when it is reaped and its group is gone
	group   *group
	oom     bool // it was killed for its memory; may be read after done
}

type answer struct {
	line []byte
	err  error
}

func (x *program) isolation() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cage
}

func (x *program) environ() []string {
	env := []string{"PATH=" + Path, "LANG=C.UTF-8", "HOME=/"}
	for _, k := range slices.Sorted(maps.Keys(x.desc.Env)) {
		env = append(env, k+"="+x.desc.Env[k])
	}
	return env
}

func (x *program) ask(ctx context.Context, _ uint64, query []byte, check func([]byte) error) (u use, err error) {
	if err := turn(ctx, x.turns); err != nil {
		return u, err
	}
	defer func() { <-x.turns }()
	if x.proc != nil {
		if err := x.quiet(); err != nil {
			return u, err
		}
	}
	kept := x.proc != nil
	u, err = x.once(ctx, query, check)
	if kept && errors.Is(err, errEnded) { // it may have been on its way out before it was asked
		u, err = x.once(ctx, query, check)
	}
	return u, err
}

// once asks the process, or a new one.
func (x *program) once(ctx context.Context, query []byte, check func([]byte) error) (u use, err error) {
	timeout := x.desc.timeout()
	if x.proc == nil {
		timeout = startTime + x.opt.slack
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if x.proc == nil {
		if x.proc, err = x.start(ctx); err != nil {
			return u, err
		}
	}
	line, err := x.exchange(ctx, query, timeout)
	if err == nil {
		u.memory = peak(x.proc.cmd.Process.Pid)
		err = check(line)
	}
	if err != nil {
		x.kill()
	}
	return u, err
}

// errEnded is that of a process that ended without an answer.
var errEnded = errors.New("without an answer")

// quiet looks after what happened since the last query: a process that ended is forgotten, one that talks is killed, for
// what it says would be taken for the answer to a query that it was not asked.
func (x *program) quiet() error {
	select {
	case _, talks := <-x.proc.answers:
		x.kill()
		if talks {
			return errors.New("it wrote without being asked")
		}
	default:
	}
	return nil
}

// exchange writes a query and reads the answer.
func (x *program) exchange(ctx context.Context, query []byte, timeout time.Duration) ([]byte, error) {
	proc := x.proc
	written := make(chan error, 1)
	go func() {
		_, err := proc.stdin.Write(append(slices.Clip(query), '\n'))
		written <- err
	}()
	giveUp := func() ([]byte, error) {
		x.kill() // which ends the writing, too
		<-written
		return nil, late(ctx, timeout)
	}
	var a answer
	select {
	case got, ok := <-proc.answers:
		if !ok {
			x.kill()
			<-written
			return nil, proc.ended(x.desc.Memory)
		}
		a = got
	case <-ctx.Done():
		return giveUp()
	}
	select {
	case <-written: // if it failed, the next query finds out
		return a.line, a.err
	case <-ctx.Done():
		return giveUp()
	}
}

// ended tells how a process ended by itself. It must be done.
func (p *process) ended(memory skerry.Bytes) error {
	if p.oom {
		return fmt.Errorf("it was ended because it wanted more than its memory (%s)", memory)
	}
	if s := p.cmd.ProcessState; s != nil {
		return fmt.Errorf("it ended (%s) %w", s, errEnded)
	}
	return fmt.Errorf("it ended %w", errEnded)
}

// begin starts the process, reads what it writes, and reaps it. All of that is one thread's: the kernel ends the process
// when the thread that started it ends, which is meant for the end of the orchestrator.
func (p *process) begin() error {
	p.answers = make(chan answer, 1)
	p.done = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.read()
		_ = p.cmd.Wait()
		p.oom = p.group.oom()
		p.group.remove()
	}()
	return <-started
}

// read passes lines on until the process ends, or writes more than one before somebody takes it.
func (p *process) read() {
	defer close(p.answers)
	defer p.end()
	r := bufio.NewReaderSize(p.stdout, 32<<10)
	for {
		line, err := readLine(r)
		if err != nil && !errors.Is(err, errTooMuch) {
			return
		}
		select {
		case p.answers <- answer{line, err}:
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

// readLine reads a line of at most MaxReply bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > MaxReply {
			return nil, errTooMuch
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// end ends a process and what it started, as far as that can be known.
func (p *process) end() {
	_ = p.stdin.Close()
	endGroup(p.cmd.Process)
	_ = p.stdout.Close()
}

// kill ends the process and waits until it is gone. The next query starts another one.
func (x *program) kill() {
	if p := x.proc; p != nil {
		p.end()
		<-p.done
		x.proc = nil
	}
}

func (x *program) close() {
	x.turns <- struct{}{}
	x.kill()
	<-x.turns
}

// launch starts a command whose standard input and output are the conversation.
func (x *program) launch(cmd *exec.Cmd, g *group) (*process, error) {
	p := &process{cmd: cmd, group: g}
	cmd.Stderr = x.stderr
	cmd.WaitDelay = time.Second
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.begin(); err != nil {
		return nil, fmt.Errorf("start %s: %w", x.args[0], err)
	}
	return p, nil
}

// bare starts the program without a cage.
func (x *program) bare() (*process, error) {
	cmd := exec.Command(x.args[0], x.args[1:]...)
	cmd.Dir, cmd.Env = x.opt.Dir, x.environ()
	alone(cmd)
	return x.launch(cmd, nil)
}

// start starts the program in as much of a cage as this system has.
func (x *program) start(ctx context.Context) (*process, error) {
	if err := executable(x.args[0]); err != nil {
		return nil, err
	}
	if len(x.opt.Shim) == 0 {
		return x.bare()
	}
	return x.caged(ctx)
}

// status reads what the shim has to say: nothing, once the program runs.
func status(ctx context.Context, r *os.File) error {
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r, 4096))
		said <- string(text)
	}()
	defer r.Close() // ends the reading
	select {
	case text := <-said:
		if text != "" {
			return errors.New(clean(text))
		}
		return nil
	case <-ctx.Done():
		return late(ctx, startTime)
	}
}
