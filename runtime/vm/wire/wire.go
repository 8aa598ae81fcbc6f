// Package wire is the language between vm-run on the host and the init of the guest, over a virtio serial port or socket, and between
// the agent and vm-run: frames of a kind, a stream's number and data. Either side may be hostile, so whatever is read is
// bounded and checked. It imports next to nothing, because the guest's init is made of it.
package wire

import (
	"errors"
	"io"
)

// Version is that of the protocol; host and guest are of one build, except while an upgrade has replaced the program and not yet restarted
// the agent: its guests then meet another vm-run. It is raised with each change of a message.
const Version = 2

// MaxData bounds the data of a frame; Chunk what is sent of a stream in one; Window what is sent of a stream before the other
// side has granted more.
const (
	MaxData = 1 << 20
	Chunk   = 32 << 10
	Window  = 256 << 10
)

// Kind says what a frame is.
type Kind byte

// Frames to the guest. Stream 0 is the program of the task.
const (
	KindConfig Kind = 1 + iota // Config
	KindExec                   // Process: start it beside the program
	KindSignal                 // a byte: the signal for the stream's process
	KindStdin                  // input; empty: its end
	KindResize                 // Size of the stream's terminal
	KindAsk                    // ask for Usage
	KindFile                   // File: a part of a shared directory that is copied; empty: these were all that there are
)

// Frames from the guest.
const (
	KindHello   Kind = 65 + iota // a byte: Version
	KindStarted                  // the stream's process is being executed
	KindFailed                   // Failure: it is not
	KindStdout                   // output
	KindStderr                   //
	KindExit                     // Exit
	KindUsage                    // Usage
)

// KindGrant lets the other side send so many more bytes of a stream, as a 32-bit number.
const KindGrant Kind = 129

// Frame is one message.
type Frame struct {
	Kind   Kind
	Stream uint32
	Data   []byte
}

const headerSize = 9

// ErrFrame is given for what is no frame.
var ErrFrame = errors.New("the other side speaks another language")

// Write writes a frame in one piece.
func Write(w io.Writer, f Frame) error {
	if len(f.Data) > MaxData {
		return ErrFrame
	}
	b := make([]byte, 0, headerSize+len(f.Data))
	b = append(b, byte(f.Kind))
	b = put32(b, f.Stream)
	b = put32(b, uint32(len(f.Data)))
	_, err := w.Write(append(b, f.Data...))
	return err
}

// Read reads a frame. The error is io.EOF only between frames.
func Read(r io.Reader) (Frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	d := Decoder{b: h[1:]}
	f := Frame{Kind: Kind(h[0]), Stream: d.U32()}
	n := d.U32()
	if n > MaxData {
		return Frame{}, ErrFrame
	}
	f.Data = make([]byte, n)
	if _, err := io.ReadFull(r, f.Data); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return f, nil
}

func put32(b []byte, n uint32) []byte {
	return append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// U32 encodes a number.
func U32(n uint32) []byte { return put32(nil, n) }

// Encoder puts values one after the other.
type Encoder struct{ b []byte }

func (e *Encoder) U32(n uint32) { e.b = put32(e.b, n) }
func (e *Encoder) U64(n uint64) { e.U32(uint32(n >> 32)); e.U32(uint32(n)) }
func (e *Encoder) Bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}
func (e *Encoder) Str(s string) { e.U32(uint32(len(s))); e.b = append(e.b, s...) }
func (e *Encoder) Strs(l []string) {
	e.U32(uint32(len(l)))
	for _, s := range l {
		e.Str(s)
	}
}

// Decoder takes values out again. After the first that is not there, all are zero and Done gives ErrFrame.
type Decoder struct {
	b   []byte
	bad bool
}

func (d *Decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *Decoder) U32() uint32 {
	v := d.take(4)
	if v == nil {
		return 0
	}
	return uint32(v[0])<<24 | uint32(v[1])<<16 | uint32(v[2])<<8 | uint32(v[3])
}

func (d *Decoder) U64() uint64 { hi := d.U32(); return uint64(hi)<<32 | uint64(d.U32()) }

func (d *Decoder) Bool() bool {
	v := d.take(1)
	return v != nil && v[0] != 0
}

func (d *Decoder) Str() string { return string(d.take(int(d.U32()))) }

// count reads the length of a list of which each element takes at least size bytes.
func (d *Decoder) count(size int) int {
	n := int(d.U32())
	if n < 0 || n > len(d.b)/size {
		d.bad = true
		return 0
	}
	return n
}

func (d *Decoder) Strs() []string {
	n := d.count(4)
	var l []string
	for i := 0; i < n && !d.bad; i++ {
		l = append(l, d.Str())
	}
	return l
}

// Done says whether everything was there, and nothing more.
func (d *Decoder) Done() error {
	if d.bad || len(d.b) > 0 {
		return ErrFrame
	}
	return nil
}

// Port is the name of the serial port, and of the shared directory. Where the machine has a virtio socket in place of the port, the guest
// connects to HostCID, SocketPort: before anything but its init runs.
const (
	Port       = "skerry"
	HostCID    = 2
	SocketPort = 1024
)
