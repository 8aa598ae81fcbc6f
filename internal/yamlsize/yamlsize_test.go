package yamlsize

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
)

func TestCheck(t *testing.T) {
	long := "a: &a " + strings.Repeat("x", 1000) + "\nb:\n"
	nested := "a: &a [xxxxxxxxxx]\n"
	for _, name := range []string{"b", "c", "d", "e"} {
		before := string(name[0] - 1)
		nested += name + ": &" + name + " [*" + before + strings.Repeat(", *"+before, 9) + "]\n"
	}
	for text, large := range map[string]bool{
		"a: b": false, "a: & *": false, "a: &x 1\nb: *x\n": false,
		long + "- *a\n": false, long + strings.Repeat("- *a\n", 20): true,
		nested: true, "a: &a [*a]\n": true, "x: 1\n---\n" + nested: true, "a: &x [": false,
	} {
		if err := Check([]byte(text), 10000); (err != nil) != large || large && skerry.AsError(err).Code != skerry.CodeTooLarge {
			t.Errorf("check of %.60q: %v", text, err)
		}
	}
}
