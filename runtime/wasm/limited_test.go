//go:build linux

package wasm

import (
	"io"
	"strings"
	"testing"
)

// What a compiler says is bounded also where it is copied, as package exec does.
func TestLimited(t *testing.T) {
	l := &limited{left: 5}
	n, err := io.Copy(l, io.LimitReader(strings.NewReader(strings.Repeat("0123456789", 1000)), 10_000))
	if err != nil || n != 10_000 || l.String() != "01234" {
		t.Errorf("%d bytes were taken, %d kept: %v", n, len(l.String()), err)
	}
}
