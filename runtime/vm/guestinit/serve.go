//go:build linux

package main

import (
	"io"
	"strings"
	"sync"
	"syscall"

	"skerry.dev/skerry/runtime/vm/wire"
)

// link is the port or socket to the host.
type link struct {
	fd     int
	socket bool
	mu     sync.Mutex // held while a frame is written
}

func (l *link) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(l.fd, b)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n > 0:
			return n, nil
		case l.socket:
			return 0, io.EOF // vm-run is gone, and with it whoever wants this machine
		default:
			pause() // nobody is at the other end yet
		}
	}
}

func (l *link) Write(b []byte) (int, error) { return len(b), writeAll(l.fd, b) }

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err == syscall.EINTR || err == syscall.EAGAIN {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (l *link) send(kind wire.Kind, stream uint32, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return wire.Write(l, wire.Frame{Kind: kind, Stream: stream, Data: data})
}

// untilGone takes what the host still says. To wait for nothing at all is an error to Go, with which init would end.
func (l *link) untilGone() error {
	for {
		if _, err := wire.Read(l); err != nil {
			return err
		}
	}
}

// guest is what init knows of what runs.
type guest struct {
	link    *link
	spawner *spawner
	group   int // descriptor of the program's control group

	mu    sync.Mutex // protects procs
	procs map[uint32]*process
}

type process struct {
	pid    int
	input  *queue
	master int     // of the terminal, or -1
	credit *credit // for output
}

// credit is what may still be sent.
type credit struct {
	mu   sync.Mutex
	cond sync.Cond
	left int
}

func newCredit() *credit {
	c := &credit{left: wire.Window}
	c.cond.L = &c.mu
	return c
}

func (c *credit) add(n int) {
	c.mu.Lock()
	c.left = min(c.left+n, wire.Window)
	c.mu.Unlock()
	c.cond.Broadcast()
}

// take waits until something may be sent, and gives how much, at most n.
func (c *credit) take(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.left <= 0 {
		c.cond.Wait()
	}
	n = min(n, c.left)
	c.left -= n
	return n
}

// queue is input on its way to a process, at most a window of it.
type queue struct {
	mu   sync.Mutex
	cond sync.Cond
	data []byte
	over bool // nothing more is put
	dead bool // nothing more is wanted
}

func newQueue() *queue {
	q := &queue{}
	q.cond.L = &q.mu
	return q
}

// put adds input; none is its end. What exceeds the window was not granted, and is dropped.
func (q *queue) put(b []byte) {
	q.mu.Lock()
	if len(b) == 0 {
		q.over = true
	} else if !q.over && len(q.data)+len(b) <= wire.Window {
		q.data = append(q.data, b...)
	}
	q.mu.Unlock()
	q.cond.Signal()
}

// end makes get give nil at once.
func (q *queue) end() {
	q.mu.Lock()
	q.dead = true
	q.mu.Unlock()
	q.cond.Signal()
}

// get waits for input; nil is the end.
func (q *queue) get() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.data) == 0 && !q.over && !q.dead {
		q.cond.Wait()
	}
	if q.dead || len(q.data) == 0 {
		return nil
	}
	b := q.data
	q.data = nil
	return b
}

// serve runs the program, and what the host asks for, until the program has ended.
func (g *guest) serve(program *wire.Process) error {
	ends := make(chan end, 2)
	go func() { ends <- end{err: g.process(0, program)} }()
	go func() {
		for {
			f, err := wire.Read(g.link)
			if err != nil {
				ends <- end{true, err}
				return
			}
			g.handle(f)
		}
	}()
	return ending(ends, g.link.socket)
}

// end is one of the program, or that of the host.
type end struct {
	host bool
	err  error
}

// ending waits for one, and gives its error. What was said last is in memory of the machine's when it was written to a
// socket, and would end with it: the host ends the machine when it has read that. A serial port takes nothing before
// the host's side has it.
func ending(ends <-chan end, socket bool) error {
	e := <-ends
	if !e.host && e.err == nil && socket {
		<-ends
	}
	return e.err
}

func (g *guest) get(stream uint32) *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.procs[stream]
}

func (g *guest) handle(f wire.Frame) {
	if f.Kind == wire.KindAsk {
		u := g.usage()
		_ = g.link.send(wire.KindUsage, f.Stream, wire.Encode(&u))
		return
	}
	if f.Kind == wire.KindFile {
		_ = takeFile(f.Data) // the host sends it again when it changes
		return
	}
	if f.Kind == wire.KindExec {
		p := &wire.Process{}
		if wire.Decode(f.Data, p) == nil && f.Stream != 0 && g.get(f.Stream) == nil {
			// Known at once, so that input that follows finds it.
			g.know(f.Stream)
			go g.process(f.Stream, p)
		}
		return
	}
	proc := g.get(f.Stream)
	if proc == nil {
		return
	}
	switch f.Kind {
	case wire.KindSignal:
		if len(f.Data) == 1 {
			g.mu.Lock()
			if proc.pid > 0 {
				_ = syscall.Kill(proc.pid, syscall.Signal(f.Data[0]))
			}
			g.mu.Unlock()
		}
	case wire.KindStdin:
		proc.input.put(f.Data)
	case wire.KindResize:
		var size wire.Size
		if wire.Decode(f.Data, &size) == nil {
			g.mu.Lock()
			setSize(proc.master, size)
			g.mu.Unlock()
		}
	case wire.KindGrant:
		if n, err := wire.Number(f.Data); err == nil && n <= wire.Window {
			proc.credit.add(int(n))
		}
	}
}

func (g *guest) know(stream uint32) *process {
	p := &process{input: newQueue(), master: -1, credit: newCredit()}
	g.mu.Lock()
	g.procs[stream] = p
	g.mu.Unlock()
	return p
}

// process runs one process from its start to its exit.
func (g *guest) process(stream uint32, spec *wire.Process) error {
	proc := g.get(stream)
	if proc == nil {
		proc = g.know(stream)
	}
	defer func() {
		g.mu.Lock()
		delete(g.procs, stream)
		proc.pid, proc.master = 0, -1
		g.mu.Unlock()
	}()
	st, err := openStreams(spec, stream != 0)
	j := &job{err: err}
	if err == nil {
		j = g.spawner.start(spec, st.child)
	}
	if j.err != nil {
		st.close()
		return g.link.send(wire.KindFailed, stream, wire.Encode(&wire.Failure{Field: j.field, Message: j.err.Error()}))
	}
	st.closeChild()
	g.mu.Lock()
	proc.pid, proc.master = j.pid, st.master
	g.mu.Unlock()
	if err := g.link.send(wire.KindStarted, stream, nil); err != nil {
		return err
	}
	if st.in >= 0 {
		go g.feed(stream, proc, st)
	}
	var pumps sync.WaitGroup
	for i, fd := range st.out {
		if fd < 0 {
			continue
		}
		kind := wire.KindStdout
		if i == 1 {
			kind = wire.KindStderr
		}
		pumps.Add(1)
		go func() {
			defer pumps.Done()
			g.pump(stream, kind, fd, proc)
		}()
	}
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(j.pid, &ws, 0, nil); err != syscall.EINTR {
			break
		}
	}
	g.mu.Lock()
	proc.pid, proc.master = 0, -1
	g.mu.Unlock()
	proc.input.end()
	x := wire.Exit{Code: uint32(ws.ExitStatus())}
	if ws.Signaled() {
		x.Code = 128 + uint32(ws.Signal())
	}
	if stream == 0 {
		// The kernel has ended everything else in the program's namespace: its output has an end.
		pumps.Wait()
		syscall.Sync()
		x.Usage = g.usage()
		x.OOM = x.Code != 0 && x.Usage.OOMKills > 0
	} else {
		waitAtMost(&pumps)
	}
	return g.link.send(wire.KindExit, stream, wire.Encode(&x))
}

// waitAtMost waits a second for output: what a process left behind may hold it open.
func waitAtMost(pumps *sync.WaitGroup) {
	done := make(chan struct{}, 2)
	go func() { pumps.Wait(); done <- struct{}{} }()
	go func() {
		_ = syscall.Nanosleep(&syscall.Timespec{Sec: 1}, nil)
		done <- struct{}{}
	}()
	<-done
}

// pump sends output as far as the host grants. The task's own is always taken.
func (g *guest) pump(stream uint32, kind wire.Kind, fd int, proc *process) {
	buf := make([]byte, wire.Chunk)
	for {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 { // the end of a terminal is an error, EIO
			syscall.Close(fd)
			return
		}
		for data := buf[:n]; len(data) > 0; {
			n := len(data)
			if stream != 0 {
				n = proc.credit.take(n)
			}
			if g.link.send(kind, stream, data[:n]) != nil {
				return
			}
			data = data[n:]
		}
	}
}

// feed writes input to a process, and grants more as it goes.
func (g *guest) feed(stream uint32, p *process, st *streams) {
	for {
		data := p.input.get()
		if data == nil || writeAll(st.in, data) != nil {
			break
		}
		_ = g.link.send(wire.KindGrant, stream, wire.U32(uint32(len(data))))
	}
	syscall.Close(st.in)
}

// usage reads the program's control group.
func (g *guest) usage() (u wire.Usage) {
	read := func(name string) string {
		fd, err := openAt(g.group, name)
		if err != nil {
			return ""
		}
		defer syscall.Close(fd)
		b := make([]byte, 8192)
		n, _ := syscall.Read(fd, b)
		return string(b[:max(n, 0)])
	}
	u.Memory, u.Peak, u.Pids = number(read("memory.current")), number(read("memory.peak")), number(read("pids.current"))
	u.Peak = max(u.Peak, u.Memory)
	u.WorkingSet = u.Memory - min(u.Memory, keyed(read("memory.stat"), "inactive_file"))
	u.OOMKills = keyed(read("memory.events"), "oom_kill")
	return u
}

// keyed finds the number after a key in lines of "key number".
func keyed(text, key string) uint64 {
	for _, line := range strings.Split(text, "\n") {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			return number(v)
		}
	}
	return 0
}
