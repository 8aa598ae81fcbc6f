package artifact

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
)

// kernelPlatform tells by a file's content whether it is a kernel that a machine boots directly, and for which machines: an ELF file
// with a note of where it is entered (PVH), or an image of Linux.
func kernelPlatform(f io.ReaderAt) (Platform, bool) {
	bare := func(arch string) (Platform, bool) { return Platform{OS: bareOS, Arch: arch}, true }
	var begin [0x206]byte
	if n, _ := f.ReadAt(begin[:], 0); n == len(begin) {
		switch {
		case string(begin[0x202:0x206]) == "HdrS":
			return bare("amd64")
		case string(begin[0x38:0x3c]) == "ARM\x64":
			return bare("arm64")
		case string(begin[0x30:0x35]) == "RISCV":
			return bare("riscv64")
		}
	}
	e, err := elf.NewFile(f)
	if err != nil || e.Machine != elf.EM_X86_64 && e.Machine != elf.EM_386 {
		return Platform{}, false
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > maxNotes {
			continue
		}
		data := make([]byte, p.Filesz)
		if _, err := p.ReadAt(data, 0); err == nil && hasEntryNote(data) {
			return bare("amd64")
		}
	}
	return Platform{}, false
}

// DiskDir is where an image has its disk, for a machine that boots it. KubeVirt's have it there, too.
const DiskDir = "/disk"

// isDisk tells by a file's content whether it is a disk that a machine boots: a qcow2, or a raw one with a boot sector or a table of
// partitions.
func isDisk(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var begin [1024]byte
	if n, _ := f.ReadAt(begin[:], 0); n < len(begin) {
		return false, nil
	}
	if _, kernel := kernelPlatform(f); kernel { // Linux's has a boot sector
		return false, nil
	}
	return string(begin[:4]) == "QFI\xfb" || string(begin[510:512]) == "\x55\xaa" || string(begin[512:520]) == "EFI PART", nil
}

const (
	maxNotes      = 64 << 10
	pvhEntry      = 18 // XEN_ELFNOTE_PHYS32_ENTRY
	noteHeader    = 12
	noteAlignment = 4
)

// hasEntryNote looks for the note of PVH among those of a segment.
func hasEntryNote(notes []byte) bool {
	align := func(n uint32) uint64 { return (uint64(n) + noteAlignment - 1) &^ (noteAlignment - 1) }
	for len(notes) >= noteHeader {
		le := binary.LittleEndian
		name, desc, kind := le.Uint32(notes), le.Uint32(notes[4:]), le.Uint32(notes[8:])
		rest := notes[noteHeader:]
		size := align(name) + align(desc)
		if uint64(name) > uint64(len(rest)) {
			return false
		}
		if kind == pvhEntry && bytes.Equal(rest[:name], []byte("Xen\x00")) {
			return true
		}
		if size >= uint64(len(rest)) {
			return false
		}
		notes = rest[size:]
	}
	return false
}
