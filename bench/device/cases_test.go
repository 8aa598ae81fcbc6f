package device

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Figures of one run are of one run; those of another program, thread or place of files are not.
func TestTogether(t *testing.T) {
	m := &measuring{cases: Catalogue(), sized: size{seconds: 1, scale: 10, cores: 2, dir: dirHere}}
	var groups []string
	for i, n := 0, 0; i < len(m.cases); i += n {
		if n = m.together(i); n > 1 {
			groups = append(groups, fmt.Sprintf("%d %s", n, m.cases[i].ID))
		}
	}
	want := []string{"2 cpu.sysbench.large.events", "2 cpu.7zip.compress", "2 cpu.openssl.rsa4096", "4 memory.copy.1", "4 memory.copy.n", "4 disk.bonnie.write.overlay", "4 disk.bonnie.write.mount"}
	if !slices.Equal(groups, want) {
		t.Errorf("%q", groups)
	}
}

// Copies are added up, and all of them must have ended well.
func TestValue(t *testing.T) {
	c := Case{parse: field("x")}
	two := []outcome{{out: []byte("x 1.5\n")}, {out: []byte("x 2\n")}}
	if v, err := c.value(two); v != 3.5 || err != nil {
		t.Error(v, err)
	}
	two[1].code, two[1].out = 1, []byte("it was too much\n")
	if _, err := c.value(two); err == nil || !strings.Contains(err.Error(), "too much") {
		t.Error(err)
	}
	c.killed = true
	two[0].killed = true
	if v, err := c.value(two[:1]); v != 1 || err != nil {
		t.Error(v, err)
	}
}

// The film has as many bytes as its frames need.
func TestFilm(t *testing.T) {
	v := video{width: 64, height: 32, frames: 3}
	var b bytes.Buffer
	if err := v.write(&b); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(b.String(), "\n")
	if !strings.HasPrefix(head, "YUV4MPEG2 W64 H32 ") || len(rest) != 3*(len("FRAME\n")+64*32*3/2) {
		t.Errorf("%q, %d bytes", head, len(rest))
	}
}
