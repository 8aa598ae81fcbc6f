//go:build linux

package hybrid

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/internal/elf"
)

// Program returns a static executable of about 1,000 bytes that executes the OCI runtime with its own arguments and environment. If it is
// to hide cgroup2's list of controllers, it enters a mount namespace of its own first, and covers the list there. It returns false for an
// architecture that it does not know.
//
// The runtime is executed from a read-only mount of its file that is attached nowhere, so that no container can write to it through
// /proc (CVE-2019-5736). Crun sees that and does not first make such a mount, or a copy of itself, and execute itself again. Where the
// kernel cannot do that, before Linux 5.12, the file is executed as it is, and crun does what it always did.
//
// Only the mount of cgroup2, with whatever is mounted on it, becomes private, so that the cover does not reach the
// host. MS_REC|MS_SLAVE or MS_PRIVATE on "/" would change the propagation of the mounts that the runtime binds into
// containers; as it is, the runtime sees and does exactly what it would on the host. If a step fails, for example
// because cgroup2 is not mounted there, the runtime is executed all the same and reports itself what it is missing.
//
// It is machine code because it runs at every start: a shell or a Go program would take milliseconds.
func Program(goarch, runtime string, hide bool) ([]byte, bool) {
	n, ok := map[string]numbers{
		"amd64":   {unshare: 272, mount: 165, execve: 59, write: 1, exit: 60, dup3: 292, execveat: 322},
		"arm64":   generic,
		"arm":     {unshare: 337, mount: 21, execve: 11, write: 4, exit: 1, dup3: 358, execveat: 387},
		"riscv64": generic,
	}[goarch]
	if !ok {
		return nil, false
	}
	data := &text{}
	sorry := "cannot run " + runtime + "\n"
	at, file, null, program, words := data.add(unified), data.add(controllers), data.add("/dev/null"), data.add(runtime), data.add(sorry)
	here := data.add("")
	readOnly := data.add("\x01" + strings.Repeat("\x00", attributes-1)) // MOUNT_ATTR_RDONLY is to be set, and no more
	var lines []line
	if hide {
		lines = []line{
			{n.unshare, []uint32{unix.CLONE_NEWNS}, true},
			{n.mount, []uint32{0, at, 0, unix.MS_REC | unix.MS_PRIVATE, 0}, true},
			{n.mount, []uint32{null, file, 0, unix.MS_BIND, 0}, true},
		}
	}
	lines = append(lines, []line{
		{openTree, []uint32{0, program, unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC}, false},
		{n.dup3, []uint32{result, high, unix.O_CLOEXEC}, false}, // under a number that is known
		{mountSetattr, []uint32{high, here, unix.AT_EMPTY_PATH, readOnly, attributes}, true},
		{n.execveat, []uint32{high, here, argv, envp, unix.AT_EMPTY_PATH}, false},
		{n.execve, []uint32{program, argv, envp}, false},
		{n.write, []uint32{2, words, uint32(len(sorry))}, false},
		{n.exit, []uint32{127}, false},
	}...)
	machine, code := assemble(goarch, lines)
	if len(code) > room {
		return nil, false
	}
	return elf.Executable(machine, append(append(code, make([]byte, room-len(code))...), data.b...)), true
}

// numbers are the numbers of system calls.
type numbers struct{ unshare, mount, execve, write, exit, dup3, execveat uint32 }

// generic is the table of all newer architectures.
var generic = numbers{unshare: 97, mount: 40, execve: 221, write: 64, exit: 93, dup3: 24, execveat: 281}

// Newer system calls have one number everywhere.
const openTree, mountSetattr = 428, 442

// attributes is the size of a struct mount_attr, high a descriptor that nobody else has.
const attributes, high = 32, 1000

// line is a system call. If one that must work fails, execve is next.
type line struct {
	number uint32
	args   []uint32
	must   bool
}

// Arguments that are known only when the program runs. result is what the call before gave, and can be the first one only.
const argv, envp, result = 0xfffffff0, 0xfffffff1, 0xfffffff2

// room is the space for the code; its strings follow.
const room = 768

// text holds the strings that the code refers to.
type text struct{ b []byte }

// add appends a string and returns the address that it will have.
func (t *text) add(s string) uint32 {
	at := uint32(elf.Entry + room + len(t.b))
	t.b = append(append(t.b, s...), 0)
	return at
}

// assemble translates. On entry the stack pointer points to the number of arguments; the arguments, a zero and the environment follow.
func assemble(goarch string, lines []line) (machine uint16, code []byte) {
	words := func(ws ...uint32) {
		for _, w := range ws {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
	}
	var jumps []int // branches to execve, taken on failure
	for _, l := range lines {
		if l.args[len(l.args)-1] == envp {
			for _, at := range jumps {
				by := uint32(len(code) - at)
				switch goarch {
				case "amd64":
					binary.LittleEndian.PutUint32(code[at+2:], by-6) // jnz by
				case "arm64":
					binary.LittleEndian.PutUint32(code[at:], 0xb5000000|by/4<<5) // cbnz x0, by
				case "arm":
					binary.LittleEndian.PutUint32(code[at:], 0x1a000000|(by/4-2)&0xffffff) // bne by
				case "riscv64":
					binary.LittleEndian.PutUint32(code[at:], 0x00051063|by>>5&0x3f<<25|by>>1&0xf<<8) // bnez a0, by
				}
			}
		}
		for i, v := range append(l.args, l.number) {
			if i == len(l.args) {
				i = 5 // where the call number goes
			}
			switch goarch {
			case "amd64":
				machine = 62
				switch v {
				case argv:
					code = append(code, 0x48, 0x8d, [...]byte{1: 0x74, 2: 0x54}[i], 0x24, 8) // lea rsi or rdx, [rsp+8]
				case envp: // mov rax, [rsp]; lea rdx or r10, [rsp+rax*8+16]
					code = append(code, 0x48, 0x8b, 0x04, 0x24, [...]byte{2: 0x48, 3: 0x4c}[i], 0x8d, 0x54, 0xc4, 16)
				case result:
					code = append(code, 0x89, 0xc7) // mov edi, eax
				default:
					code = append(code, [][]byte{{0xbf}, {0xbe}, {0xba}, {0x41, 0xba}, {0x41, 0xb8}, {0xb8}}[i]...) // mov edi; esi; edx; r10d; r8d; eax, v
					words(v)
				}
			case "arm64":
				machine = 183
				r := [...]uint32{0, 1, 2, 3, 4, 8}[i]
				switch v {
				case argv:
					words(0x910023e0 | r) // add xr, sp, #8
				case envp:
					words(0xf94003e0|r, 0x8b206fe0|r<<16|r, 0x91004000|r<<5|r) // ldr xr, [sp]; add xr, sp, xr, lsl #3; add xr, xr, #16
				case result: // is there already
				default:
					words(0xd2800000|v&0xffff<<5|r, 0xf2a00000|v>>16<<5|r) // movz xr, #v; movk xr, #v>>16, lsl #16
				}
			case "arm":
				machine = elf.ARM
				r := [...]uint32{0, 1, 2, 3, 4, 7}[i]
				switch v {
				case argv:
					words(0xe28d0004 | r<<12) // add rr, sp, #4
				case envp: // ldr rr, [sp]; add rr, sp, rr, lsl #2; add rr, rr, #8
					words(0xe59d0000|r<<12, 0xe08d0100|r<<12|r, 0xe2800008|r<<16|r<<12)
				case result:
				default: // movw rr, #v; movt rr, #v>>16
					words(0xe3000000|v>>12&0xf<<16|r<<12|v&0xfff, 0xe3400000|v>>28<<16|r<<12|v>>16&0xfff)
				}
			case "riscv64":
				machine = 243
				r := [...]uint32{10, 11, 12, 13, 14, 17}[i]
				switch v {
				case argv:
					words(0x00810013 | r<<7) // addi ar, sp, 8
				case envp: // ld ar, 0(sp); slli ar, ar, 3; add ar, ar, sp; addi ar, ar, 16
					words(0x00013003|r<<7, 0x00301013|r<<15|r<<7, 0x00200033|r<<15|r<<7, 0x01000013|r<<15|r<<7)
				case result:
				default:
					words(0x37|r<<7|(v+0x800)&0xfffff000, 0x1b|r<<7|r<<15|v<<20) // lui ar, v+0x800; addiw ar, ar, v
				}
			}
		}
		switch goarch {
		case "amd64":
			code = append(code, 0x0f, 0x05) // syscall
			if l.must {
				code = append(code, 0x85, 0xc0) // test eax, eax
				jumps = append(jumps, len(code))
				code = append(code, 0x0f, 0x85, 0, 0, 0, 0)
			}
		case "arm64":
			words(0xd4000001) // svc #0
		case "arm":
			words(0xef000000) // svc #0
			if l.must {
				words(0xe3500000) // cmp r0, #0
			}
		case "riscv64":
			words(0x00000073) // ecall
		}
		if l.must && goarch != "amd64" {
			jumps = append(jumps, len(code))
			words(0)
		}
	}
	return machine, code
}
