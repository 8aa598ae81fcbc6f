//go:build linux

package hybrid

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/internal/elf"
)

// Program returns a static executable of about 700 bytes. It enters a mount namespace of its own, covers cgroup2's list
// of controllers there, and executes the OCI runtime with its own arguments and environment. It returns false for an
// architecture that it does not know.
//
// Only the mount of cgroup2, with whatever is mounted on it, becomes private, so that the cover does not reach the
// host. MS_REC|MS_SLAVE or MS_PRIVATE on "/" would change the propagation of the mounts that the runtime binds into
// containers; as it is, the runtime sees and does exactly what it would on the host. If a step fails, for example
// because cgroup2 is not mounted there, the runtime is executed all the same and reports itself what it is missing.
//
// It is machine code because it runs at every start: a shell or a Go program would take milliseconds.
func Program(goarch, runtime string) ([]byte, bool) {
	n, ok := map[string]numbers{
		"amd64":   {unshare: 272, mount: 165, execve: 59, write: 1, exit: 60},
		"arm64":   generic,
		"arm":     {unshare: 337, mount: 21, execve: 11, write: 4, exit: 1},
		"riscv64": generic,
	}[goarch]
	if !ok {
		return nil, false
	}
	data := &text{}
	sorry := "cannot run " + runtime + "\n"
	at, file, null, program, words := data.add(unified), data.add(controllers), data.add("/dev/null"), data.add(runtime), data.add(sorry)
	lines := []line{
		{n.unshare, []uint32{unix.CLONE_NEWNS}, true},
		{n.mount, []uint32{0, at, 0, unix.MS_REC | unix.MS_PRIVATE, 0}, true},
		{n.mount, []uint32{null, file, 0, unix.MS_BIND, 0}, true},
		{n.execve, []uint32{program, argv, envp}, false},
		{n.write, []uint32{2, words, uint32(len(sorry))}, false},
		{n.exit, []uint32{127}, false},
	}
	machine, code := assemble(goarch, lines)
	if len(code) > room {
		return nil, false
	}
	return elf.Executable(machine, append(append(code, make([]byte, room-len(code))...), data.b...)), true
}

// numbers are the numbers of system calls.
type numbers struct{ unshare, mount, execve, write, exit uint32 }

// generic is the table of all newer architectures.
var generic = numbers{unshare: 97, mount: 40, execve: 221, write: 64, exit: 93}

// line is a system call. If one that must work fails, execve is next.
type line struct {
	number uint32
	args   []uint32
	must   bool
}

// Arguments that are known only when the program runs.
const argv, envp = 0xfffffff0, 0xfffffff1

// room is the space for the code; its strings follow.
const room = 512

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
					code[at+1] = byte(by - 2)
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
					code = append(code, 0x48, 0x8d, 0x74, 0x24, 8) // lea rsi, [rsp+8]
				case envp:
					code = append(code, 0x48, 0x8b, 0x04, 0x24, 0x48, 0x8d, 0x54, 0xc4, 16) // mov rax, [rsp]; lea rdx, [rsp+rax*8+16]
				default:
					code = append(code, [][]byte{{0xbf}, {0xbe}, {0xba}, {0x41, 0xba}, {0x41, 0xb8}, {0xb8}}[i]...) // mov edi; esi; edx; r10d; r8d; eax, v
					words(v)
				}
			case "arm64":
				machine = 183
				r := [...]uint32{0, 1, 2, 3, 4, 8}[i]
				switch v {
				case argv:
					words(0x910023e1) // add x1, sp, #8
				case envp:
					words(0xf94003e2, 0x8b226fe2, 0x91004042) // ldr x2, [sp]; add x2, sp, x2, lsl #3; add x2, x2, #16
				default:
					words(0xd2800000|v&0xffff<<5|r, 0xf2a00000|v>>16<<5|r) // movz xr, #v; movk xr, #v>>16, lsl #16
				}
			case "arm":
				machine = elf.ARM
				r := [...]uint32{0, 1, 2, 3, 4, 7}[i]
				switch v {
				case argv:
					words(0xe28d1004) // add r1, sp, #4
				case envp:
					words(0xe59d2000, 0xe08d2102, 0xe2822008) // ldr r2, [sp]; add r2, sp, r2, lsl #2; add r2, r2, #8
				default: // movw rr, #v; movt rr, #v>>16
					words(0xe3000000|v>>12&0xf<<16|r<<12|v&0xfff, 0xe3400000|v>>28<<16|r<<12|v>>16&0xfff)
				}
			case "riscv64":
				machine = 243
				r := [...]uint32{10, 11, 12, 13, 14, 17}[i]
				switch v {
				case argv:
					words(0x00810593) // addi a1, sp, 8
				case envp:
					words(0x00013603, 0x00361613, 0x00260633, 0x01060613) // ld a2, 0(sp); slli a2, a2, 3; add a2, a2, sp; addi a2, a2, 16
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
				code = append(code, 0x75, 0) // jnz
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
