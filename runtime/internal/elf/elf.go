// Package elf wraps machine code into the smallest executable that Linux runs: one segment, no sections, no libraries. It writes no files.
// Packages that make programs by hand import it.
package elf

import "encoding/binary"

// Entry is the address of the first byte of the code.
const Entry = base + header

const base, header = 0x10000, 64 + 56

// ARM is ELF's number of 32-bit ARM, the only architecture of those that programs are made for with files of 32 bits.
const ARM = 40

// Executable makes a static executable of code, which is loaded at Entry and entered at its first byte. machine is ELF's number of the
// architecture.
func Executable(machine uint16, code []byte) []byte {
	if machine == ARM {
		return executable32(machine, code)
	}
	le := binary.LittleEndian
	b := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b = le.AppendUint16(b, 2) // executable
	b = le.AppendUint16(b, machine)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, Entry)
	b = le.AppendUint64(b, 64) // program headers
	b = le.AppendUint64(b, 0)  // no sections
	b = le.AppendUint32(b, 0)  // flags
	for _, v := range []uint16{64, 56, 1, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	size := uint64(header + len(code))
	b = le.AppendUint32(b, 1) // PT_LOAD
	b = le.AppendUint32(b, 5) // read, execute
	for _, v := range []uint64{0, base, base, size, size, 0x10000} {
		b = le.AppendUint64(b, v)
	}
	return append(b, code...)
}

// executable32 makes a file of 32 bits. Its header is shorter; the code is where it is in the others.
func executable32(machine uint16, code []byte) []byte {
	le := binary.LittleEndian
	b := []byte{0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b = le.AppendUint16(b, 2) // executable
	b = le.AppendUint16(b, machine)
	size := uint32(header + len(code))
	for _, v := range []uint32{1, Entry, 52, 0, 0x05000000} { // version, entry, program headers, no sections, flags: EABI version 5
		b = le.AppendUint32(b, v)
	}
	for _, v := range []uint16{52, 32, 1, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	for _, v := range []uint32{1, 0, base, base, size, size, 5, 0x10000} { // PT_LOAD; read, execute
		b = le.AppendUint32(b, v)
	}
	return append(append(b, make([]byte, header-len(b))...), code...)
}
