package store

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
)

// A dump is, in this order:
//
//	"SKERRYDB"                   8 bytes
//	version                      uvarint, now 1
//	revision                     uvarint, of the store when it was dumped
//	records in key order         1 byte 1, uvarint and key, uvarint and value
//	end                          1 byte 0, uvarint number of records
//	SHA-256 of all that          32 bytes, then nothing more
const (
	dumpMagic   = "SKERRYDB"
	dumpVersion = 1
)

// BesideKey begins the keys of what a dump has beside the store's records. None of those begins like this.
const BesideKey = "!"

// Errors of Load.
var (
	ErrBadDump  = errors.New("not a whole, unaltered backup")
	ErrNotEmpty = errors.New("the store has records already; restore into an empty one")
)

// snapshotter gives all records of one moment, in key order.
type snapshotter interface {
	snapshot(ctx context.Context, begin func(revision int64) error, each func(Record) error) error
}

// loader takes all records in one durable step, or none.
type loader interface {
	load(ctx context.Context, records func(put func(Record) error) error) error
}

// Dump writes all records as they are at one moment; commits go on meanwhile. Secrets are in it as they are in the
// store: Backup encrypts. What is beside the store is written first, and its keys begin with BesideKey: a restore takes it out.
func Dump(ctx context.Context, store Store, out io.Writer, beside ...Record) error {
	b := bufio.NewWriterSize(out, 64<<10)
	d := &dumper{h: sha256.New(), w: b}
	begin := func(revision int64) error {
		d.buf = binary.AppendUvarint(append(d.buf[:0], dumpMagic...), dumpVersion)
		d.buf = binary.AppendUvarint(d.buf, uint64(revision))
		return d.flush()
	}
	var n uint64
	each := func(r Record) error {
		n++
		d.buf = binary.AppendUvarint(append(d.buf[:0], 1), uint64(len(r.Key)))
		d.buf = append(d.buf, r.Key...)
		d.buf = binary.AppendUvarint(d.buf, uint64(len(r.Value)))
		d.buf = append(d.buf, r.Value...)
		return d.flush()
	}
	first := func(revision int64) error {
		err := begin(revision)
		for _, r := range beside {
			if err == nil {
				err = each(r)
			}
		}
		return err
	}
	if err := snapshot(ctx, store, first, each); err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	d.buf = binary.AppendUvarint(append(d.buf[:0], 0), n)
	if err := d.flush(); err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	if _, err := b.Write(d.h.Sum(nil)); err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	return b.Flush()
}

// Lister is the part of a Store that Scan needs.
type Lister interface {
	List(ctx context.Context, prefix string) ([]Record, int64, error)
}

// Scan calls each with all records of one moment, in key order. Where the store can, they are read while it runs: a list of all would have
// a large store in memory twice.
func Scan(ctx context.Context, s Lister, each func(Record) error) error {
	return snapshot(ctx, s, func(int64) error { return nil }, each)
}

func snapshot(ctx context.Context, s Lister, begin func(int64) error, each func(Record) error) error {
	if sn, ok := s.(snapshotter); ok {
		return sn.snapshot(ctx, begin, each)
	}
	rs, rev, err := s.List(ctx, "")
	if err != nil {
		return err
	}
	if err := begin(rev); err != nil {
		return err
	}
	for _, r := range rs {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

type dumper struct {
	h   hash.Hash
	w   io.Writer
	buf []byte
}

func (d *dumper) flush() error {
	d.h.Write(d.buf)
	_, err := d.w.Write(d.buf)
	return err
}

// Alter looks at a record before it is loaded, and may change it or leave it out. A restore uses it to begin a new
// incarnation. Nil loads records as they are. It sees each record once, in key order, and must not keep the value.
type Alter func(*Record) (keep bool, err error)

// Load fills an empty store from a dump. The dump is read to its end and verified before the first record is written:
// a truncated or altered one is ErrBadDump and leaves the store as it was. Revisions start anew.
func Load(ctx context.Context, s Store, r io.Reader, alter Alter) error {
	return loadFrom(ctx, s, r, alter, func(r io.Reader) (io.Reader, error) { return r, nil })
}

// loadFrom reads r twice, first to verify, then to load. open decrypts. What cannot be rewound is kept in a temporary
// file in the form it came in, so that a secret that was encrypted stays so.
func loadFrom(ctx context.Context, store Store, in io.Reader, alter Alter, open func(io.Reader) (io.Reader, error)) error {
	if alter == nil {
		alter = func(*Record) (bool, error) { return true, nil }
	}
	rs, start, err := seekable(in)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if f, ok := rs.(*spool); ok {
		defer f.remove()
	}
	for _, write := range []bool{false, true} {
		if _, err := rs.Seek(start, io.SeekStart); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		plain, err := open(rs)
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		records := func(put func(Record) error) error {
			_, err := readDump(ctx, plain, func(r Record) error {
				if !write {
					return put(r)
				}
				keep, err := alter(&r)
				if err != nil || !keep {
					return err
				}
				return put(r)
			})
			return err
		}
		if !write {
			err = records(func(Record) error { return nil })
		} else {
			err = load(ctx, store, records)
		}
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}

func load(ctx context.Context, store Store, records func(func(Record) error) error) error {
	if l, ok := store.(loader); ok {
		return l.load(ctx, records)
	}
	if have, _, err := store.List(ctx, ""); err != nil {
		return err
	} else if len(have) > 0 {
		return ErrNotEmpty
	}
	// Several commits; when one fails, those before it are taken back.
	var batch []Op
	var keys []string
	size := 0
	flush := func() error {
		_, err := store.Commit(ctx, batch)
		if err == nil {
			for _, op := range batch {
				keys = append(keys, op.Key)
			}
		}
		batch, size = batch[:0:0], 0
		return err
	}
	err := records(func(r Record) error {
		n := len(r.Key) + len(r.Value)
		if len(batch) == 100 || size+n > MaxValue+MaxKey {
			if err := flush(); err != nil {
				return err
			}
		}
		var none int64
		batch, size = append(batch, Op{Key: r.Key, Value: r.Value, Expect: &none}), size+n
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		return nil
	}
	for part := range slices.Chunk(keys, 100) {
		var ops []Op
		for _, k := range part {
			ops = append(ops, Op{Key: k, Delete: true})
		}
		if _, undo := store.Commit(context.WithoutCancel(ctx), ops); undo != nil {
			return fmt.Errorf("%w; and what was loaded before could not be taken back, so empty the store by hand: %w", err, undo)
		}
	}
	return err
}

// readDump checks form and digest while it hands out records; only its nil error makes them trustworthy.
func readDump(ctx context.Context, src io.Reader, each func(Record) error) (revision int64, err error) {
	h := sha256.New()
	b := bufio.NewReaderSize(src, 64<<10)
	in := &dumpReader{b: b, h: h}
	bad := func(what string) error {
		if in.err != nil && !errors.Is(in.err, io.EOF) && !errors.Is(in.err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %w", ErrBadDump, in.err)
		}
		if in.err != nil {
			return fmt.Errorf("%w: it ends in the middle", ErrBadDump)
		}
		return fmt.Errorf("%w: %s", ErrBadDump, what)
	}
	if magic := in.bytes(uint64(len(dumpMagic))); string(magic) != dumpMagic {
		return 0, bad("it does not begin like one")
	}
	version := in.num()
	if in.err != nil || version == 0 {
		return 0, bad("it does not begin like one")
	}
	if version > dumpVersion {
		return 0, fmt.Errorf("the backup has format %d and this program knows %d; use the newer program", version, dumpVersion)
	}
	rev := in.num()
	var n uint64
	var last string
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		flag := in.bytes(1)
		if in.err != nil || flag[0] > 1 {
			return 0, bad("a record has an unknown form")
		}
		if flag[0] == 0 {
			break
		}
		keyLen := in.num()
		if keyLen > MaxKey {
			return 0, bad("a key is too long")
		}
		key := string(in.bytes(keyLen))
		valueLen := in.num()
		if valueLen > MaxValue {
			return 0, bad("a value is too large")
		}
		value := in.bytes(valueLen)
		if in.err != nil {
			return 0, bad("")
		}
		if err := checkKey(key); err != nil {
			return 0, bad(err.Error())
		}
		if n > 0 && key <= last {
			return 0, bad("its keys are out of order")
		}
		last = key
		n++
		if err := each(Record{Key: key, Value: value}); err != nil {
			return 0, err
		}
	}
	if count := in.num(); in.err != nil || count != n {
		return 0, bad("records are missing")
	}
	want := h.Sum(nil)
	var have [sha256.Size]byte
	if _, in.err = io.ReadFull(b, have[:]); in.err != nil {
		return 0, bad("")
	}
	if !slices.Equal(want, have[:]) {
		return 0, bad("its digest does not match")
	}
	if _, err := b.ReadByte(); err == nil {
		return 0, bad("something follows its end")
	} else if !errors.Is(err, io.EOF) {
		in.err = err
		return 0, bad("")
	}
	return int64(rev), nil
}

type dumpReader struct {
	b   *bufio.Reader
	h   hash.Hash
	err error
}

// ReadByte is for binary.ReadUvarint.
func (d *dumpReader) ReadByte() (byte, error) {
	c, err := d.b.ReadByte()
	if err == nil {
		d.h.Write([]byte{c})
	}
	return c, err
}

func (d *dumpReader) num() uint64 {
	if d.err != nil {
		return 0
	}
	var n uint64
	n, d.err = binary.ReadUvarint(d)
	return n
}

func (d *dumpReader) bytes(n uint64) []byte {
	if d.err != nil {
		return nil
	}
	b := make([]byte, n)
	_, d.err = io.ReadFull(d.b, b)
	d.h.Write(b)
	return b
}

// seekable gives r itself when it can be rewound, else a copy in a temporary file.
func seekable(r io.Reader) (io.ReadSeeker, int64, error) {
	if rs, ok := r.(io.ReadSeeker); ok {
		if at, err := rs.Seek(0, io.SeekCurrent); err == nil {
			return rs, at, nil
		}
	}
	f, err := os.CreateTemp("", "skerry-restore-*")
	if err != nil {
		return nil, 0, err
	}
	sp := &spool{f}
	if _, err := io.Copy(f, r); err != nil {
		sp.remove()
		return nil, 0, err
	}
	return sp, 0, nil
}

type spool struct{ *os.File }

func (s *spool) remove() {
	_ = s.Close()
	_ = os.Remove(s.Name())
}
