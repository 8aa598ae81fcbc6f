//go:build linux

package wasm

import (
	"context"
	"maps"
	"runtime"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// sockets closes the connections that a module closes. The engine (wazero 1.12) forgets to: the client would hear nothing until
// the garbage collector comes by. It looks on as the module calls sock_accept, to find the descriptor that the kernel gave, and
// fd_close and sock_shutdown. A module is one thread, so there is no lock.
type sockets struct {
	params [3]uint64
	conns  map[uint32]conn // by the module's number
	known  map[uint64]int  // descriptors by inode, those in conns and those that were ended and not collected yet
	closed int             // since the last collection
}

// conn is a descriptor of this process, and what it was opened for.
type conn struct {
	fd  int
	ino uint64
}

// collectAfter is after how many closed connections their descriptors are collected.
const collectAfter = 100

func (s *sockets) NewFunctionListener(def api.FunctionDefinition) experimental.FunctionListener {
	switch def.Name() {
	case "sock_accept", "sock_shutdown", "fd_close":
		return s
	}
	return nil
}

func (s *sockets) Before(_ context.Context, _ api.Module, _ api.FunctionDefinition, params []uint64, _ experimental.StackIterator) {
	copy(s.params[:], params)
}

func (s *sockets) After(_ context.Context, mod api.Module, def api.FunctionDefinition, results []uint64) {
	if len(results) == 0 || uint32(results[0]) != 0 { // its length is that of the parameters, where those are more
		return
	}
	switch def.Name() {
	case "sock_accept": // fd, flags, address of the new one
		if n, ok := mod.Memory().ReadUint32Le(uint32(s.params[2])); ok {
			s.accepted(n)
		}
	case "sock_shutdown": // fd, how: 3 is both ways
		if uint32(s.params[1]) == 3 {
			s.end(uint32(s.params[0]))
		}
	case "fd_close":
		s.end(uint32(s.params[0]))
	}
}

func (s *sockets) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}

// accepted finds the connection that is not known yet.
func (s *sockets) accepted(n uint32) {
	for fd, missed := 3, 0; missed < 64; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			missed++
			continue
		}
		if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			continue
		}
		if _, ok := s.known[st.Ino]; ok {
			continue // one that was ended has its peer until that closes it, too
		}
		if _, err := unix.Getpeername(fd); err == nil { // not one that listens
			s.conns[n], s.known[st.Ino] = conn{fd, st.Ino}, fd
			return
		}
	}
}

func (s *sockets) end(n uint32) {
	c, ok := s.conns[n]
	if !ok {
		return
	}
	delete(s.conns, n)
	if is(c.fd, c.ino) {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
	if s.closed++; s.closed >= collectAfter {
		s.closed = 0
		runtime.GC() // it closes what nobody refers to any more
		maps.DeleteFunc(s.known, func(ino uint64, fd int) bool { return !is(fd, ino) })
	}
}

// is reports whether a descriptor is still what it was.
func is(fd int, ino uint64) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Ino == ino
}
