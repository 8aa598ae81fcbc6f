package console

import (
	"bytes"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                           "plain",
		"tab\tand größe":                  "tab\tand größe",
		"ended by a terminal\r":           `ended by a terminal\x0d`,
		"\x1b[2J\x1b]0;title\x07":         `\x1b[2J\x1b]0;title\x07`,
		"over\rwritten":                   `over\x0dwritten`,
		"\x9b31m":                         `\x9b31m`,
		"\u009b31m \u202e gnp.exe \u2028": `\u009b31m \u202e gnp.exe \u2028`,
		"\ufffd is a character":           "\ufffd is a character",
		"del\x7f":                         `del\x7f`,
	} {
		if got := Visible(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m\r")
	f.Fuzz(func(t *testing.T, s string) {
		got := Visible(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q became %q", s, got)
		}
		for _, r := range got {
			if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Fatalf("%q became %q", s, got)
			}
		}
	})
}

// Characters that come in parts are whole again, and lines end as they did.
func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s := NewScreen(&b)
	for _, part := range []string{"gr\xc3", "\xb6\xc3\x9f", "e\r\n\xe2\x80", "\xae\x1b[2J\r", "x\n"} {
		if n, err := s.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%q: %d, %v", part, n, err)
		}
	}
	if got, want := b.String(), "größe\n"+`\u202e\x1b[2J\x0dx`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if Raw(s) != &b || toScreen(&b) != &b || Terminal(s) != nil {
		t.Error("a buffer is taken for a terminal")
	}
}
