package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"skerry.dev/skerry"
)

// The file is a row of blocks, each with the points of some ten minutes:
//
//	"skh1" | length, 4 bytes | CRC-32C of the rest, 4 bytes | CBOR
//
// A block is appended and never changed. Once its blocks have a day of points the file is renamed to FILE.old, in place of the one
// before, so that both have from one day to two, and each point is written once. Nothing is forced to the disk: a power cut may take the
// last minutes, or leave half a block. Who reads goes on at the next block that is whole.
const (
	magic     = "skh1"
	headSize  = len(magic) + 8
	maxBlock  = 256 << 10
	maxFile   = 2 << 20
	oldSuffix = ".old"
)

// block is what one write adds.
type block struct {
	Series []blockSeries `cbor:"1,keyasint"`
}

// blockSeries has points of a worker, or of the site if the name is empty. A point is its minute and its columns, from the second one on
// as the difference to the one before: most of these are one byte. Later versions may add columns.
type blockSeries struct {
	Worker string    `cbor:"1,keyasint,omitempty"`
	Points [][]int64 `cbor:"2,keyasint"`
}

// readings is of how many minutes a block has points: a role that ends early leaves a short one.
func (b *block) readings() (n int) {
	for _, s := range b.Series {
		n = max(n, len(s.Points))
	}
	return n
}

// seal puts a block into its frame.
func seal(b *block) ([]byte, error) {
	body, err := cbor.Marshal(b)
	if err != nil {
		return nil, err
	}
	out := append([]byte(magic), make([]byte, 8)...)
	binary.LittleEndian.PutUint32(out[len(magic):], uint32(len(body)))
	binary.LittleEndian.PutUint32(out[len(magic)+4:], checksum(body))
	return append(out, body...), nil
}

func checksum(body []byte) uint32 { return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) }

// unseal gives the blocks in data that are whole.
func unseal(data []byte) (out []block) {
	for {
		at := bytes.Index(data, []byte(magic))
		if at < 0 || len(data)-at < headSize {
			return out
		}
		data = data[at:]
		size, sum := binary.LittleEndian.Uint32(data[len(magic):]), binary.LittleEndian.Uint32(data[len(magic)+4:])
		var b block
		if size > maxBlock || int(size) > len(data)-headSize || checksum(data[headSize:headSize+int(size)]) != sum ||
			cbor.Unmarshal(data[headSize:headSize+int(size)], &b) != nil {
			data = data[1:] // its length may be what is damaged
			continue
		}
		out = append(out, b)
		data = data[headSize+int(size):]
	}
}

// pack writes points as differences.
func pack(points []point) [][]int64 {
	out := make([][]int64, 0, len(points))
	var last point
	for _, p := range points {
		row := make([]int64, 0, 1+columns)
		row = append(row, int64(p.minute)-int64(last.minute))
		for i, n := range p.v {
			row = append(row, int64(n)-int64(last.v[i]))
		}
		out, last = append(out, row), p
	}
	return out
}

// unpack reads what pack wrote, as far as that can be true.
func unpack(rows [][]int64) (out []point) {
	var last point
	sum := func(before uint32, row []int64, i int) (uint32, bool) {
		if i >= len(row) {
			return before, true
		}
		// Neither can overflow: both are of 32 bits, or the row is refused.
		if row[i] < -math.MaxUint32 || row[i] > math.MaxUint32 {
			return 0, false
		}
		n := int64(before) + row[i]
		return uint32(n), n >= 0 && n <= math.MaxUint32
	}
	for _, row := range rows {
		var p point
		ok := len(row) > 0
		for i := 0; ok && i <= columns; i++ {
			if i == 0 {
				p.minute, ok = sum(last.minute, row, 0)
			} else {
				p.v[i-1], ok = sum(last.v[i-1], row, i)
			}
		}
		if !ok {
			return out
		}
		out, last = append(out, p), p
	}
	return out
}

// take adds the points of blocks that were read.
func (h *History) take(blocks []block) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range blocks {
		for _, in := range b.Series {
			if in.Worker != site && skerry.CheckName(in.Worker) != nil {
				continue
			}
			s := h.open(in.Worker)
			if s == nil {
				continue
			}
			for _, p := range unpack(in.Points) {
				s.add(p)
			}
		}
	}
}

// load reads what there is. A file that cannot be read is none.
func (h *History) load() {
	if h.file == "" {
		return
	}
	for _, path := range []string{h.file + oldSuffix, h.file} {
		data, err := readFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.log.Warn("the history of the site cannot be read", "file", path, "err", err)
		}
		blocks := unseal(data)
		h.take(blocks)
		h.size, h.readings = len(data), 0
		for n := range blocks {
			h.readings += blocks[n].readings()
		}
	}
}

// readFile reads as much of a file as is ever written.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+maxBlock))
}

// unwritten takes out what the file does not have.
func (h *History) unwritten() *block {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b block
	for _, name := range slices.Sorted(maps.Keys(h.series)) {
		if s := h.series[name]; s.fresh > 0 {
			b.Series = append(b.Series, blockSeries{name, pack(s.points[len(s.points)-s.fresh:])})
			s.fresh = 0
		}
	}
	if len(b.Series) == 0 {
		return nil
	}
	return &b
}

// save appends what is new. What cannot be written stays in memory alone; it is not tried again, because a full disk is full for long.
func (h *History) save() {
	b := h.unwritten()
	if b == nil || h.file == "" {
		return
	}
	err := h.write(b)
	if err != nil && !h.failed {
		h.log.Warn("the history of the site cannot be written; it is kept in memory", "file", h.file, "err", err)
	}
	h.failed = err != nil
}

func (h *History) write(more *block) error {
	data, err := seal(more)
	if err != nil {
		return err
	}
	if h.readings >= maxPoints || h.size+len(data) > maxFile {
		if err := os.Rename(h.file, h.file+oldSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		h.size, h.readings = 0, 0
	}
	f, err := os.OpenFile(h.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := f.Write(data)
	h.size, h.readings = h.size+n, h.readings+more.readings()
	return errors.Join(err, f.Close())
}
