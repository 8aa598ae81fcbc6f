//go:build linux

package vm

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
)

// isoSector is a block of a disc.
const isoSector = 2048

// isoFile is a file in the only directory of a disc.
type isoFile struct {
	name string
	data []byte
}

// isoImage makes an ISO 9660 file system with Joliet's names. The files fit into one block of a directory.
func isoImage(label string, files []isoFile) []byte {
	slices.SortFunc(files, func(a, b isoFile) int { return strings.Compare(a.name, b.name) })
	const (
		volume, joliet, tables, root, first = 16, 17, 19, 23, 25 // blocks: two volumes, their tables of directories, roots, files
	)
	next := uint32(first)
	at := make([]uint32, len(files))
	for i, f := range files {
		at[i] = next
		next += uint32((len(f.data) + isoSector - 1) / isoSector)
	}
	data := make([]byte, int(next)*isoSector)
	block := func(n int) []byte { return data[n*isoSector : (n+1)*isoSector] }
	for i, f := range files {
		copy(data[int(at[i])*isoSector:], f.data)
	}
	for k, wide := range []bool{false, true} {
		text := func(s string) []byte {
			if !wide {
				return []byte(strings.ToUpper(s))
			}
			var out []byte
			for _, u := range utf16.Encode([]rune(s)) {
				out = binary.BigEndian.AppendUint16(out, u)
			}
			return out
		}
		dir := isoRecord(root+uint32(k), isoSector, 2, []byte{0})
		list := append(slices.Clone(dir), isoRecord(root+uint32(k), isoSector, 2, []byte{1})...)
		for i, f := range files {
			name := f.name
			if !wide {
				name += ".;1"
			}
			list = append(list, isoRecord(at[i], uint32(len(f.data)), 0, text(name))...)
		}
		copy(block(root+k), list)
		// The tables of directories, of each order of bytes, have the root alone.
		little, big := block(tables+2*k), block(tables+2*k+1)
		little[0], big[0], little[8], big[8] = 1, 1, 0, 0
		binary.LittleEndian.PutUint32(little[2:], root+uint32(k))
		binary.BigEndian.PutUint32(big[2:], root+uint32(k))
		little[6], big[7] = 1, 1
		v := block(volume + k)
		v[0] = byte(1 + k) // primary, supplementary
		copy(v[1:], "CD001\x01")
		for _, blank := range [][2]int{{8, 72}, {190, 813}} {
			for i := blank[0]; i < blank[1]; i++ {
				if v[i] = ' '; wide && i%2 == blank[0]%2 {
					v[i] = 0
				}
			}
		}
		copy(v[40:72], text(label))
		bothEnds(v[80:], next)
		if wide {
			copy(v[88:], "%/E")
		}
		for _, n := range [][2]int{{120, 1}, {124, 1}, {128, isoSector}} {
			binary.LittleEndian.PutUint16(v[n[0]:], uint16(n[1]))
			binary.BigEndian.PutUint16(v[n[0]+2:], uint16(n[1]))
		}
		bothEnds(v[132:], 10)
		binary.LittleEndian.PutUint32(v[140:], uint32(tables+2*k))
		binary.BigEndian.PutUint32(v[148:], uint32(tables+2*k+1))
		copy(v[156:], dir)
		for _, date := range []int{813, 830, 847, 864} {
			copy(v[date:], "0000000000000000")
		}
		v[881] = 1
	}
	end := block(joliet + 1)
	end[0] = 255
	copy(end[1:], "CD001\x01")
	return data
}

// isoRecord is an entry of a directory.
func isoRecord(at, size uint32, flags byte, name []byte) []byte {
	r := make([]byte, 33+len(name)+(len(name)+1)%2)
	r[0] = byte(len(r))
	bothEnds(r[2:], at)
	bothEnds(r[10:], size)
	copy(r[18:], []byte{100, 1, 1, 0, 0, 0, 0}) // 2000-01-01
	r[25], r[28], r[31], r[32] = flags, 1, 1, byte(len(name))
	copy(r[33:], name)
	return r
}

// bothEnds writes a number in both orders of bytes.
func bothEnds(b []byte, n uint32) {
	binary.LittleEndian.PutUint32(b, n)
	binary.BigEndian.PutUint32(b[4:], n)
}
