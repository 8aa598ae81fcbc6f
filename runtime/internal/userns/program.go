//go:build linux

package userns

import (
	"encoding/binary"

	"skerry.dev/skerry/runtime/internal/elf"
)

// program gives a static ELF executable that enters a user namespace of its own, writes one byte to its output and ends when it has read
// one, or the end, from its input. What the kernel refuses it with is its exit status. False: there is none for an architecture as Go
// names it.
//
// It is that small because it is begun for each container: forking the agent itself into a namespace copies the tables of all its memory.
func program(goarch string) ([]byte, bool) {
	words := func(ws ...uint32) (code []byte) {
		for _, w := range ws {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		return code
	}
	switch goarch {
	case "amd64":
		return elf.Executable(62, []byte{
			0xb8, 0x10, 0x01, 0, 0, 0xbf, 0, 0, 0, 0x10, 0x0f, 0x05, // unshare(CLONE_NEWUSER)
			0x85, 0xc0, 0x75, 38, // test eax, eax; jnz to neg
			0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x48, 0x89, 0xe6, 0xba, 1, 0, 0, 0, 0x0f, 0x05, // write(1, rsp, 1)
			0x31, 0xc0, 0x31, 0xff, 0x48, 0x89, 0xe6, 0xba, 1, 0, 0, 0, 0x0f, 0x05, // read(0, rsp, 1)
			0x31, 0xc0, 0x90, 0x90, // xor eax, eax; nop; nop
			0xf7, 0xd8, 0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, // neg eax; exit(eax)
		}), true
	case "arm64":
		return elf.Executable(183, words(
			0xd2a00000|0x1000<<5, 0xd2800008|97<<5, 0xd4000001, // unshare(CLONE_NEWUSER)
			0xb5000000|12<<5,                                                           // cbnz x0, +48
			0xd2800000|1<<5, 0x910003e1, 0xd2800002|1<<5, 0xd2800008|64<<5, 0xd4000001, // write(1, sp, 1)
			0xd2800000, 0x910003e1, 0xd2800002|1<<5, 0xd2800008|63<<5, 0xd4000001, // read(0, sp, 1)
			0xd2800000,                               // movz x0, #0
			0xcb0003e0, 0xd2800008|93<<5, 0xd4000001, // neg x0; exit(x0)
		)), true
	case "arm":
		return elf.Executable(elf.ARM, words(
			0xe3a00201, 0xe3007151, 0xef000000, // unshare(CLONE_NEWUSER)
			0xe3500000, 0x1a00000a, // cmp r0, #0; bne to rsb
			0xe3a00001, 0xe1a0100d, 0xe3a02001, 0xe3a07004, 0xef000000, // write(1, sp, 1)
			0xe3a00000, 0xe1a0100d, 0xe3a02001, 0xe3a07003, 0xef000000, // read(0, sp, 1)
			0xe3a00000,                         // mov r0, #0
			0xe2600000, 0xe3a07001, 0xef000000, // rsb r0, r0, #0; exit(r0)
		)), true
	case "riscv64":
		return elf.Executable(243, words(
			0x10000537, 0x00000893|97<<20, 0x00000073, // unshare(CLONE_NEWUSER)
			0x02051863,                                                                    // bnez a0, +48
			0x00000513|1<<20, 0x00010593, 0x00000613|1<<20, 0x00000893|64<<20, 0x00000073, // write(1, sp, 1)
			0x00000513, 0x00010593, 0x00000613|1<<20, 0x00000893|63<<20, 0x00000073, // read(0, sp, 1)
			0x00000513,                                // li a0, 0
			0x40a00533, 0x00000893|93<<20, 0x00000073, // neg a0; exit(a0)
		)), true
	}
	return nil, false
}
