package wasmcode

import "slices"

// Module is a small WebAssembly module put together by hand, for self-tests and tests: it imports fd_write and proc_exit, has one
// memory and one function, _start, and a text at address 16 that an iovec at address 0 describes.
type Module struct {
	Pages  uint32 // of memory at the start
	Text   string
	Body   []byte // of _start, function 2
	Tables []byte // content of the table section, nil for none
	From   string // module of the imports; empty: WASI
	Start  string // name of the export; empty: _start
}

// Instructions.
var (
	Print = []byte{0x41, 1, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 0, 0x1a} // drop(fd_write(1, 0, 1, 8))
	Warn  = []byte{0x41, 2, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 0, 0x1a} // to standard error
	Hang  = []byte{0x03, 0x40, 0x0c, 0, 0x0b}                         // loop br 0 end
	Crash = []byte{0x00}                                              // unreachable
	Deep  = []byte{0x10, 2}                                           // call _start
	// Grow is: if memory.grow(16384) == -1 { unreachable }, 1 GiB
	Grow = []byte{0x41, 0x80, 0x80, 0x01, 0x40, 0, 0x41, 0x7f, 0x46, 0x04, 0x40, 0x00, 0x0b}
	// GrowTable is: if table.grow(null, 100000000) != -1 { unreachable }
	GrowTable = []byte{0xd0, 0x70, 0x41, 0x80, 0xc2, 0xd7, 0x2f, 0xfc, 0x0f, 0, 0x41, 0x7f, 0x47, 0x04, 0x40, 0x00, 0x0b}
)

// Exit is proc_exit(code), for a code below 64.
func Exit(code byte) []byte { return []byte{0x41, code & 0x3f, 0x10, 1} }

// Forever repeats instructions without end.
func Forever(body []byte) []byte {
	return slices.Concat([]byte{0x03, 0x40}, body, []byte{0x0c, 0, 0x0b})
}

// Encode writes the module.
func (m Module) Encode() []byte {
	vec := func(b []byte) []byte { return append(putUleb(nil, uint32(len(b))), b...) }
	str := func(s string) []byte { return vec([]byte(s)) }
	cat := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	from, start := m.From, m.Start
	if from == "" {
		from = "wasi_snapshot_preview1"
	}
	if start == "" {
		start = "_start"
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, content ...[]byte) { out = append(append(out, id), vec(cat(content...))...) }
	section(1, []byte{3, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 1, 0x7f, 0, 0x60, 0, 0})
	section(2, []byte{2}, str(from), str("fd_write"), []byte{0, 0}, str(from), str("proc_exit"), []byte{0, 1})
	section(3, []byte{1, 2})
	if m.Tables != nil {
		section(4, m.Tables)
	}
	section(5, []byte{1, 0}, putUleb(nil, max(1, m.Pages)))
	section(7, []byte{2}, str("memory"), []byte{2, 0}, str(start), []byte{0, 2})
	code := cat([]byte{0}, m.Body, []byte{0x0b})
	section(10, []byte{1}, vec(code))
	n := uint32(len(m.Text))
	iovec := []byte{16, 0, 0, 0, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
	section(11, []byte{2, 0, 0x41, 0, 0x0b}, vec(iovec), []byte{0, 0x41, 16, 0x0b}, str(m.Text))
	return out
}
