package store

import (
	"encoding/binary"
	"hash/crc32"
)

// Sealed gives changes a right checksum, so that a fuzzer gets past it.
func Sealed(b []byte) []byte {
	b = b[:len(b):len(b)]
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
