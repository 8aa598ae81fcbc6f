package plugin

// module is a WebAssembly module for tests, put together by hand: it imports fd_write, has one memory and one function,
// _start, and a text at address 16 that an iovec at address 0 describes.
type module struct {
	pages  uint32 // of memory at the start
	text   string
	body   []byte // of _start, function 1
	tables []byte // content of the table section, nil for none
	from   string // module of the import; empty: WASI
	start  string // name of the export; empty: _start
}

// Instructions.
var (
	wasmPrint = []byte{0x41, 1, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 0, 0x1a} // drop(fd_write(1, 0, 1, 8))
	wasmWarn  = []byte{0x41, 2, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 0, 0x1a} // to standard error
	wasmHang  = []byte{0x03, 0x40, 0x0c, 0, 0x0b}                         // loop br 0 end
	wasmCrash = []byte{0x00}                                              // unreachable
	wasmDeep  = []byte{0x10, 1}                                           // call _start
	// if memory.grow(16384) == -1 { unreachable }: 1 GiB
	wasmGrow = []byte{0x41, 0x80, 0x80, 0x01, 0x40, 0, 0x41, 0x7f, 0x46, 0x04, 0x40, 0x00, 0x0b}
	// if table.grow(null, 100000000) != -1 { unreachable }
	wasmTable = []byte{0xd0, 0x70, 0x41, 0x80, 0xc2, 0xd7, 0x2f, 0xfc, 0x0f, 0, 0x41, 0x7f, 0x47, 0x04, 0x40, 0x00, 0x0b}
)

func says(text string) module { return module{text: text, body: wasmPrint} }

func (m module) encode() []byte {
	vec := func(b []byte) []byte { return append(putUleb(nil, uint32(len(b))), b...) }
	str := func(s string) []byte { return vec([]byte(s)) }
	cat := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	from, start := m.from, m.start
	if from == "" {
		from = "wasi_snapshot_preview1"
	}
	if start == "" {
		start = "_start"
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, content ...[]byte) { out = append(append(out, id), vec(cat(content...))...) }
	section(1, []byte{2, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 0, 0})
	section(2, []byte{1}, str(from), str("fd_write"), []byte{0, 0})
	section(3, []byte{1, 1})
	if m.tables != nil {
		section(4, m.tables)
	}
	section(5, []byte{1, 0}, putUleb(nil, max(1, m.pages)))
	section(7, []byte{2}, str("memory"), []byte{2, 0}, str(start), []byte{0, 1})
	code := cat([]byte{0}, m.body, []byte{0x0b})
	section(10, []byte{1}, vec(code))
	n := uint32(len(m.text))
	iovec := []byte{16, 0, 0, 0, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
	section(11, []byte{2, 0, 0x41, 0, 0x0b}, vec(iovec), []byte{0, 0x41, 16, 0x0b}, str(m.text))
	return out
}
