package console

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen is a terminal that gets text alone: what it would act on in place of printing it is shown. Names, messages and files come from
// manifests, images and instances, which may be anybody's. Whoever draws, or passes on what its user asked for as it is, takes raw.
type Screen struct {
	w    io.Writer
	file *os.File // nil in tests

	mu   sync.Mutex
	rest []byte // the beginning of a character
}

// NewScreen makes a screen of what is not to be asked whether it is a terminal.
func NewScreen(w io.Writer) *Screen { return &Screen{w: w} }

// toScreen makes a screen of what is a terminal. What is none is left alone: programs read it.
func toScreen(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &Screen{w: f, file: f}
	}
	return w
}

// Raw gives what is behind a screen.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(*Screen); ok {
		return s.w
	}
	return w
}

// Terminal gives the terminal that a writer is, or nil.
func Terminal(w io.Writer) *os.File {
	if f, ok := Raw(w).(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

func (s *Screen) Write(buf []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := append(s.rest, buf...)
	s.rest = nil
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if tail := data[len(data)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				s.rest, data = bytes.Clone(tail), data[:len(data)-n]
			}
			break
		}
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		if i < len(lines)-1 {
			lines[i] = strings.TrimSuffix(lines[i], "\r") // the end of a line as terminals write it
		}
		lines[i] = Visible(lines[i])
	}
	if _, err := io.WriteString(s.w, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(buf), nil
}

// Moves reports whether a terminal acts on a character in place of printing it.
func Moves(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == 0x2028 || r == 0x2029
}

// Visible shows what a terminal would act on in place of printing it: control characters, bytes that are no UTF-8 (some terminals have
// controls there), and what turns the direction of text. Tabs stay.
func Visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\t' || !Moves(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
