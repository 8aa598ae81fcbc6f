//go:build linux

// Package snapshot is the format of a copy of local volumes: a tar archive, compressed with zstd, that begins with a description of itself.
// It writes directories into such a stream, and unpacks one that anybody may have made: nothing in it leads out of the directories that it
// is unpacked into, and it takes no more room than was said. It never follows a link. The worker imports it.
package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Version is that of the format. A reader refuses a later one.
const Version = 1

const (
	metaName    = "skerry-snapshot.json" // no volume has this name, which has dots
	maxMeta     = 64 << 10
	maxVolumes  = 64
	xattrPrefix = "SCHILY.xattr."
	maxWindow   = 8 << 20 // of a compressed stream, in memory
)

// Meta describes a snapshot, as the first file of its archive.
type Meta struct {
	Format  int                   `json:"format"`
	Service skerry.ServiceKey     `json:"service"`
	Replica int                   `json:"replica,omitempty"`
	At      time.Time             `json:"at"`
	Volumes []spec.SnapshotVolume `json:"volumes"`
}

func (m *Meta) check() error {
	if m.Format != Version {
		return invalid("its format is %d; this program knows %d", m.Format, Version)
	}
	if len(m.Volumes) == 0 || len(m.Volumes) > maxVolumes || m.Replica < 0 {
		return invalid("it has %d volumes of replica %d; from 1 to %d can be, from 0 on", len(m.Volumes), m.Replica, maxVolumes)
	}
	seen := map[string]bool{}
	for _, v := range m.Volumes {
		if err := skerry.CheckName(v.Name); err != nil || seen[v.Name] || v.Size < 0 || v.Size > spec.MaxAmount {
			return invalid("%.100q of %d bytes is no volume, or there twice", v.Name, v.Size)
		}
		seen[v.Name] = true
	}
	return nil
}

// Invalid is why a stream is no snapshot that may be unpacked.
type Invalid struct{ Reason string }

func (e *Invalid) Error() string { return "not a snapshot that can be taken: " + e.Reason }

func invalid(format string, args ...any) error { return &Invalid{fmt.Sprintf(format, args...)} }

// Tree is a volume that is to be written.
type Tree struct {
	volume  string
	dir     string
	entries []entry // what was cloned; nil: what is in dir when it is written
	owner   func(uint32) uint32
	Skipped int // sockets, pipes and devices, which were left out
}

type entry struct {
	header tar.Header
	path   string // with what is in the file; "": nothing is
}

// Dir gives a volume as it is while Write reads it. It takes no memory for files, however many there are. owner gives
// the number in the stream of a user or group that files belong to; nil: the same.
func Dir(volume, dir string, owner func(uint32) uint32) *Tree {
	return &Tree{volume: volume, dir: dir, owner: owner}
}

// maxListed bounds the memory for the names of files: of those that are cloned, and of those that have several names.
const maxListed = 64 << 20

// entrySize is what an entry takes besides its names.
const entrySize = 512

// ErrLong says that there are too many files to clone each of them.
var ErrLong = errors.New("there are more files than are remembered at a time")

// Clone lists what is in a volume, and has each file cloned at once: what is written later comes from the clones.
func Clone(ctx context.Context, volume, dir string, owner func(uint32) uint32, clone func(from *os.File) (to string, err error)) (*Tree,
	error) {
	t, listed := &Tree{volume: volume, entries: []entry{}, owner: owner}, 0
	w := &walker{ctx: ctx, tree: t, visit: func(h *tar.Header, f *os.File) (err error) {
		e := entry{header: *h}
		if listed += entrySize + len(h.Name) + len(h.Linkname); listed > maxListed {
			return ErrLong
		}
		if h.Typeflag == tar.TypeReg && h.Size > 0 {
			e.path, err = clone(f)
		}
		t.entries = append(t.entries, e)
		return err
	}}
	return t, w.walk(dir)
}

// Write writes a snapshot of volumes, of which no more than length bytes are read: a file with holes can be of any length.
func Write(ctx context.Context, w io.Writer, m Meta, length int64, trees ...*Tree) error {
	m.Format = Version
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20))
	if err != nil {
		return err
	}
	err = writeTar(ctx, z, m, length, trees)
	if e := z.Close(); err == nil {
		err = e
	}
	return err
}

func writeTar(ctx context.Context, out io.Writer, m Meta, length int64, trees []*Tree) error {
	t := &writer{ctx: ctx, Writer: tar.NewWriter(out), left: length}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: metaName, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(data)), ModTime: m.At,
		Format: tar.FormatPAX}); err != nil {
		return err
	}
	if _, err := t.Write(data); err != nil {
		return err
	}
	for _, tree := range trees {
		if tree.entries == nil {
			if err := (&walker{ctx: ctx, tree: tree, visit: t.entry}).walk(tree.dir); err != nil {
				return err
			}
		}
		for i := range tree.entries {
			if err := t.cloned(&tree.entries[i]); err != nil {
				return fmt.Errorf("volume %s: %w", tree.volume, err)
			}
		}
	}
	return t.Close()
}

// writer writes the entries of an archive.
type writer struct {
	ctx context.Context
	*tar.Writer
	left int64
}

func (w *writer) cloned(e *entry) error {
	if e.path == "" {
		return w.entry(&e.header, nil)
	}
	f, err := os.Open(e.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.entry(&e.header, f)
}

func (w *writer) entry(h *tar.Header, f *os.File) error {
	if w.left -= h.Size; w.left < 0 {
		return skerry.Errorf(skerry.CodeQuota, "with %s the volumes are longer, holes included, than a snapshot may be that this worker could restore", clip(h.Name)).
			WithHint("delete large files with holes, or make room on the worker")
	}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", clip(h.Name), err)
	}
	if h.Typeflag != tar.TypeReg || h.Size == 0 {
		return nil
	}
	n, err := io.Copy(w, io.LimitReader(&reader{w.ctx, f}, h.Size))
	if err == nil && n < h.Size {
		err = fmt.Errorf("%s became shorter while it was copied: %w", clip(h.Name), io.ErrUnexpectedEOF)
	}
	return err
}

// clip shortens a name for a message.
func clip(name string) string { return fmt.Sprintf("%.200q", name) }

// reader reads until its context ends.
type reader struct {
	ctx context.Context
	f   *os.File
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.f.Read(p)
}

// Limits bound a stream.
type Limits struct {
	Bytes int64 // that may be written; zeros in whole blocks are not
	Files int64
	Loose struct{ Bytes, Files int64 } // of volumes without a size; 0: nothing besides
	// Length bounds the stream once it is decompressed.
	Length int64
}

// LimitsFor gives the limits of a stream for which there is so much room. Files with holes are longer than what they take.
func LimitsFor(room int64) Limits {
	return Limits{Bytes: room, Files: max(room/1024, 1<<16), Length: max(room, 1<<20) * 16}
}

// Read reads a snapshot. open gives, once it is known which volumes there are, the directories they are unpacked into; without it the
// stream is only checked.
func Read(r io.Reader, lim Limits, open func(m *Meta) (map[string]*os.Root, error)) (*Meta, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	m, err := readTar(z, lim, open)
	if err != nil {
		return nil, err
	}
	// What follows the archive's end is part of no file; the stream must end well.
	if n, err := io.Copy(io.Discard, io.LimitReader(z, 1<<20)); err != nil || n == 1<<20 {
		return nil, invalid("something follows its end: %v", err)
	}
	return m, nil
}

func readMeta(t *tar.Reader) (*Meta, error) {
	h, err := t.Next()
	if err != nil {
		return nil, invalid("it cannot be read: %v", err)
	}
	if h.Name != metaName || h.Typeflag != tar.TypeReg || h.Size > maxMeta {
		return nil, invalid("it does not begin with %s", metaName)
	}
	data, err := io.ReadAll(t)
	if err != nil {
		return nil, err
	}
	m := new(Meta)
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(m); err != nil {
		return nil, invalid("%s: %v", metaName, err)
	}
	return m, m.check()
}
