// Package probe makes the smallest program that can prove a runtime works: it prints a line and exits with a known
// status. It is written by hand, machine instruction by machine instruction, so that a self-test needs no compiler, no
// image and no file of the host. Runtime drivers import it.
package probe

import (
	"encoding/binary"

	"skerry.dev/skerry/runtime/internal/elf"
)

// Line is what the program prints, Code its exit status.
const (
	Line = "skerry-probe"
	Code = 7
)

// Program gives a static ELF executable for an architecture as Go names it; false when there is none.
func Program(goarch string) ([]byte, bool) {
	msg := Line + "\n"
	n := uint32(len(msg))
	var machine uint16
	var code []byte
	words := func(ws ...uint32) {
		for _, w := range ws {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
	}
	switch goarch {
	case "amd64":
		machine = 62
		code = []byte{
			0xb8, 1, 0, 0, 0, // mov eax, 1 (write)
			0xbf, 1, 0, 0, 0, // mov edi, 1
			0x48, 0x8d, 0x35, 21, 0, 0, 0, // lea rsi, [rip+21]
			0xba, byte(n), 0, 0, 0, // mov edx, n
			0x0f, 0x05, // syscall
			0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
			0xbf, Code, 0, 0, 0, // mov edi, Code
			0x0f, 0x05, // syscall
			0x0f, 0x0b, // ud2
		}
	case "arm64":
		machine = 183
		words(
			0xd2800000|1<<5,    // movz x0, #1
			0x10000000|7<<5|1,  // adr x1, +28
			0xd2800000|n<<5|2,  // movz x2, #n
			0xd2800000|64<<5|8, // movz x8, #64 (write)
			0xd4000001,         // svc #0
			0xd2800000|Code<<5, // movz x0, #Code
			0xd2800000|93<<5|8, // movz x8, #93 (exit)
			0xd4000001,         // svc #0
		)
	case "arm":
		machine = elf.ARM
		words(
			0xe3a00001,      // mov r0, #1
			0xe28f1000|20,   // add r1, pc, #20
			0xe3a02000|n,    // mov r2, #n
			0xe3a07004,      // mov r7, #4 (write)
			0xef000000,      // svc #0
			0xe3a00000|Code, // mov r0, #Code
			0xe3a07001,      // mov r7, #1 (exit)
			0xef000000,      // svc #0
		)
	case "riscv64":
		machine = 243
		words(
			0x00000517,               // auipc a0, 0
			0x00000593|36<<20|10<<15, // addi a1, a0, 36
			0x00000513|1<<20,         // addi a0, zero, 1
			0x00000613|n<<20,         // addi a2, zero, n
			0x00000893|64<<20,        // addi a7, zero, 64 (write)
			0x00000073,               // ecall
			0x00000513|Code<<20,      // addi a0, zero, Code
			0x00000893|93<<20,        // addi a7, zero, 93 (exit)
			0x00000073,               // ecall
		)
	default:
		return nil, false
	}
	return elf.Executable(machine, append(code, msg...)), true
}

// Waiter gives a static ELF executable that listens at a port and does nothing else until it is killed; false when there is none.
func Waiter(goarch string) ([]byte, bool) {
	words := func(ws ...uint32) (code []byte) {
		for _, w := range ws {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		return code
	}
	switch goarch {
	case "amd64":
		return elf.Executable(62, []byte{
			0xb8, 41, 0, 0, 0, 0xbf, 2, 0, 0, 0, 0xbe, 1, 0, 0, 0, 0x31, 0xd2, 0x0f, 0x05, // socket(AF_INET, SOCK_STREAM, 0)
			0x89, 0xc7, 0xbe, 1, 0, 0, 0, 0xb8, 50, 0, 0, 0, 0x0f, 0x05, // listen(it, 1)
			0x31, 0xff, 0x31, 0xf6, 0x31, 0xd2, 0x4d, 0x31, 0xd2, // xor edi, edi; esi; edx; r10
			0xb8, 0x0f, 0x01, 0, 0, // mov eax, 271 (ppoll)
			0x0f, 0x05, // syscall
			0xeb, 0xee, // jmp to xor
		}), true
	case "arm64":
		return elf.Executable(183, words(
			0xd2800000|2<<5, 0xd2800001|1<<5, 0xd2800002, 0xd2800008|198<<5, 0xd4000001, // socket(AF_INET, SOCK_STREAM, 0)
			0xd2800001|1<<5, 0xd2800008|201<<5, 0xd4000001, // listen(it, 1)
			0xd2800000, 0xd2800001, 0xd2800002, 0xd2800003, // movz x0, #0; x1; x2; x3
			0xd2800008|73<<5, // movz x8, #73 (ppoll)
			0xd4000001,       // svc #0
			0x17fffffa,       // b -24
		)), true
	case "arm":
		return elf.Executable(elf.ARM, words(
			0xe3a00002, 0xe3a01001, 0xe3a02000, 0xe3007119, 0xef000000, // socket(AF_INET, SOCK_STREAM, 0)
			0xe3a01001, 0xe300711c, 0xef000000, // listen(it, 1)
			0xe3a00000, 0xe3a01000, 0xe3a02000, 0xe3a03000, // mov r0, #0; r1; r2; r3
			0xe3007150, // movw r7, #336 (ppoll)
			0xef000000, // svc #0
			0xeafffff8, // b -24
		)), true
	case "riscv64":
		return elf.Executable(243, words(
			0x00000513|2<<20, 0x00000593|1<<20, 0x00000613, 0x00000893|198<<20, 0x00000073, // socket(AF_INET, SOCK_STREAM, 0)
			0x00000593|1<<20, 0x00000893|201<<20, 0x00000073, // listen(it, 1)
			0x00000513, 0x00000593, 0x00000613, 0x00000693, // addi a0, zero, 0; a1; a2; a3
			0x00000893|73<<20, // addi a7, zero, 73 (ppoll)
			0x00000073,        // ecall
			0xfe9ff06f,        // j -24
		)), true
	}
	return nil, false
}
