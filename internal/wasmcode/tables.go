// Package wasmcode is what is done to a WebAssembly module before an engine gets it. It runs nothing. Whoever runs modules
// imports it: plugins of the scheduler, the wasm runtime.
package wasmcode

import (
	"bytes"
	"errors"
	"fmt"
)

// maxTable bounds the entries of a module's tables together; the engine spends 8 bytes on each.
const maxTable = 1 << 20

// ErrModule is given for what is no module at all.
var ErrModule = errors.New("it is not a WebAssembly module")

// FixTables gives every table of a module its first size as its largest: the engine bounds the growth of memories, not of
// tables, which an endless table.grow would take 32 GiB with. Compilers make tables of fixed size anyway.
func FixTables(module []byte) ([]byte, error) {
	if !bytes.HasPrefix(module, []byte("\x00asm\x01\x00\x00\x00")) {
		if bytes.HasPrefix(module, []byte("\x00asm")) {
			return nil, errors.New("it is a WebAssembly component or of an unknown version; build a core module (WASI preview 1)")
		}
		return nil, ErrModule
	}
	rest := module[8:]
	for len(rest) > 0 {
		id := rest[0]
		start := len(module) - len(rest)
		size, n := uleb(rest[1:])
		if n == 0 || int64(size) > int64(len(rest)-1-n) {
			return nil, ErrModule
		}
		body := rest[1+n : 1+n+int(size)]
		rest = rest[1+n+int(size):]
		if id != 4 {
			continue
		}
		fixed, err := fixTableSection(body)
		if err != nil {
			return nil, err
		}
		out := append(bytes.Clone(module[:start]), 4)
		out = putUleb(out, uint32(len(fixed)))
		out = append(out, fixed...)
		return append(out, rest...), nil // a second table section is refused by the engine
	}
	return module, nil
}

// fixTableSection rewrites the limits of tables: reference type, flag, smallest size, and, with flag 1, the largest.
func fixTableSection(body []byte) ([]byte, error) {
	count, n := uleb(body)
	if n == 0 || count > maxTable {
		return nil, ErrModule
	}
	body = body[n:]
	out := putUleb(nil, count)
	var sum uint64
	for range count {
		if len(body) < 2 || body[1] > 1 {
			return nil, fmt.Errorf("it has a table that is not supported")
		}
		typ, flag := body[0], body[1]
		least, n := uleb(body[2:])
		if n == 0 {
			return nil, ErrModule
		}
		body = body[2+n:]
		if flag == 1 {
			most, n := uleb(body)
			if n == 0 || most < least {
				return nil, ErrModule
			}
			body = body[n:]
		}
		if sum += uint64(least); sum > maxTable {
			return nil, fmt.Errorf("its tables have more than %d entries", maxTable)
		}
		out = putUleb(putUleb(append(out, typ, 1), least), least)
	}
	if len(body) > 0 {
		return nil, ErrModule
	}
	return out, nil
}

// uleb reads an unsigned LEB128 number of 32 bits and tells its length; 0 when it is none.
func uleb(b []byte) (v uint32, n int) {
	for i := 0; i < len(b) && i < 5; i++ {
		if i == 4 && b[i] > 0x0f {
			return 0, 0
		}
		v |= uint32(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

func putUleb(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}
