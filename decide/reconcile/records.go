package reconcile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"skerry.dev/skerry/wire"
)

// Records are small and binary: a format byte, then fields as unsigned varints and length-prefixed strings. Readers
// accept trailing bytes, so that a newer writer may add fields.
const recordFormat = 1

var errRecord = errors.New("record is damaged")

type recordWriter struct{ b []byte }

func newRecord() *recordWriter { return &recordWriter{[]byte{recordFormat}} }

func (w *recordWriter) num(v uint64) *recordWriter {
	w.b = binary.AppendUvarint(w.b, v)
	return w
}

func (w *recordWriter) str(s string) *recordWriter {
	w.b = append(binary.AppendUvarint(w.b, uint64(len(s))), s...)
	return w
}

func (w *recordWriter) bytes(p []byte) *recordWriter {
	w.b = append(binary.AppendUvarint(w.b, uint64(len(p))), p...)
	return w
}

type recordReader struct {
	b   []byte
	err error
}

func readRecord(b []byte) *recordReader {
	r := &recordReader{b: b}
	if len(b) == 0 || b[0] != recordFormat {
		r.err = errRecord
		return r
	}
	r.b = b[1:]
	return r
}

func (r *recordReader) num() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.err = errRecord
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *recordReader) bytes() []byte {
	n := r.num()
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.b)) {
		r.err = errRecord
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *recordReader) str() string { return string(r.bytes()) }

// DamagedError names a record that could not be read back. The caller sets the set aside and starts it anew: a Source
// under a new incarnation, a Replica empty.
type DamagedError struct {
	Key string
	Err error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("record %q: %v", e.Key, e.Err) }

// Unwrap gives the cause.
func (e *DamagedError) Unwrap() error { return e.Err }

// dirty remembers which records a Flush must write, once meta is set.
type dirty struct {
	meta bool
	keys map[string]struct{}
}

func (d *dirty) mark(key string) {
	d.note(key)
	d.meta = true
}

// note has the next Flush that there is write a record, too, and asks for none.
func (d *dirty) note(key string) {
	if d.keys == nil {
		d.keys = make(map[string]struct{})
	}
	d.keys[key] = struct{}{}
}

// leftovers has the records of items removed that a commit cut short left without the one that says what they belong to.
func (d *dirty) leftovers(prefix string, records map[string][]byte) {
	for full := range records {
		if key, ok := strings.CutPrefix(full, prefix+"i/"); ok {
			d.mark(key)
		}
	}
}

// itemSize estimates the bytes of an item in a frame.
func itemSize(it wire.SetItem) int { return len(it.Key) + len(it.Value) + 24 }
