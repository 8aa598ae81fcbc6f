package store

import (
	"encoding/binary"
	"hash/crc32"
	"os"
)

// headSuffix names the file beside a store that holds the newest acknowledged revision.
const headSuffix = ".head"

// headSize is its length in bytes: magic, revision, CRC-32C of both.
const headSize = 20

const headMagic = "SKRYHEAD"

// head remembers outside the database how far it was acknowledged. SQLite ends recovery at the first frame of its log whose
// checksum is wrong and drops what follows without a word; the head reveals that.
//
// It is written after a commit is durable, and not synced: after a power cut it may be behind the database, never ahead of it.
// Nothing depends on it being there: where it cannot be written, a lost tail is not noticed.
type head struct {
	path string
	f    *os.File // nil: not opened yet, or it cannot be
}

// read gives the revision acknowledged last; 0 when that is not known.
func (h *head) read() int64 {
	b, err := os.ReadFile(h.path)
	if err != nil || len(b) != headSize || string(b[:8]) != headMagic ||
		crc32.Checksum(b[:16], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(b[16:]) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b[8:]))
}

// write sets the revision.
func (h *head) write(revision int64) {
	if h.f == nil {
		f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return
		}
		h.f = f
	}
	b := make([]byte, 0, headSize)
	b = binary.LittleEndian.AppendUint64(append(b, headMagic...), uint64(revision))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	_, _ = h.f.WriteAt(b, 0)
}

// set makes a revision durable before the database gets there.
func (h *head) set(revision int64) error {
	if h.write(revision); h.f == nil {
		return nil
	}
	return h.f.Sync()
}

func (h *head) close() error {
	if h.f == nil {
		return nil
	}
	return h.f.Close()
}
