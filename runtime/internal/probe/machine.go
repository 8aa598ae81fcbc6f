package probe

import (
	"encoding/binary"
	"slices"
)

// ExitPort is where a machine's own system on amd64 writes its exit status.
const ExitPort = 0x501

// rounds is how often the programs for machines go round before they print: nothing for a processor, also for one that is translated,
// but many minutes where one that seems to be real interprets its guests' instructions one by one.
const rounds = 100_000_000

// Kernel gives an ELF kernel for the machines of an architecture, which does what Program does; false when there is none. It is
// entered as PVH has it, in 32-bit protected mode without a stack.
func Kernel(goarch string) ([]byte, bool) {
	if goarch != "amd64" {
		return nil, false
	}
	const base, headers, note = 0x100000, 64 + 2*56, 20
	le := binary.LittleEndian
	code := []byte{
		0xb9, 0, 0, 0, 0, // mov ecx, rounds
		0x49,       // dec ecx
		0x75, 0xfd, // jnz to dec
		0xbe, 0, 0, 0, 0, // mov esi, the line
		0xb9, byte(len(Line) + 1), 0, 0, 0, // mov ecx, its length
		0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8 (the serial port)
		0xf3, 0x6e, // rep outsb
		0x66, 0xba, ExitPort & 0xff, ExitPort >> 8, // mov dx, ExitPort
		0xb0, Code, // mov al, Code
		0xee,             // out dx, al
		0xf4, 0xeb, 0xfd, // hlt; jmp to hlt
	}
	le.PutUint32(code[1:], rounds)
	le.PutUint32(code[9:], uint32(base+headers+note+len(code)))
	size := uint64(headers + note + len(code) + len(Line) + 1)
	data := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	data = le.AppendUint16(data, 2)  // executable
	data = le.AppendUint16(data, 62) // amd64
	data = le.AppendUint32(data, 1)
	for _, v := range []uint64{base + headers + note, 64, 0} { // entry, program headers, no sections
		data = le.AppendUint64(data, v)
	}
	data = le.AppendUint32(data, 0) // flags
	for _, v := range []uint16{64, 56, 2, 0, 0, 0} {
		data = le.AppendUint16(data, v)
	}
	segment := func(kind, flags uint32, at, size, align uint64) {
		data = le.AppendUint32(data, kind)
		data = le.AppendUint32(data, flags)
		for _, v := range []uint64{at, base + at, base + at, size, size, align} {
			data = le.AppendUint64(data, v)
		}
	}
	segment(1, 5, 0, size, 0x1000)         // PT_LOAD, to read and execute
	segment(4, 4, headers, note, 4)        // PT_NOTE
	for _, v := range []uint32{4, 4, 18} { // XEN_ELFNOTE_PHYS32_ENTRY
		data = le.AppendUint32(data, v)
	}
	data = append(data, "Xen\x00"...)
	data = le.AppendUint32(data, base+headers+note)
	return slices.Concat(data, code, []byte(Line+"\n")), true
}

// Disk gives a disk for the machines of an architecture, whose boot sector does what Program does; false when there is none.
func Disk(goarch string) ([]byte, bool) {
	if goarch != "amd64" {
		return nil, false
	}
	const base = 0x7c00 // where firmware puts and enters it, in real mode
	code := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xfc,                   // cld
		0x66, 0xb9, 0, 0, 0, 0, // mov ecx, rounds
		0x66, 0x49, // dec ecx
		0x75, 0xfc, // jnz to dec
		0xbe, 0, 0, // mov si, the line
		0xb9, byte(len(Line) + 1), 0, // mov cx, its length
		0xba, 0xf8, 0x03, // mov dx, 0x3f8
		0xf3, 0x6e, // rep outsb
		0xba, ExitPort & 0xff, ExitPort >> 8, // mov dx, ExitPort
		0xb0, Code, // mov al, Code
		0xee,             // out dx, al
		0xf4, 0xeb, 0xfd, // hlt; jmp to hlt
	}
	binary.LittleEndian.PutUint32(code[7:], rounds)
	binary.LittleEndian.PutUint16(code[16:], uint16(base+len(code)))
	b := make([]byte, 1<<20) // firmware takes what is smaller for no disk
	copy(b, append(code, Line+"\n"...))
	b[510], b[511] = 0x55, 0xaa
	return b, true
}
