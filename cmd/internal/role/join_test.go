package role

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketPath(t *testing.T) {
	short, err := socketPath("/var/lib/skerry/root")
	if err != nil || short != "/var/lib/skerry/root/control.sock" {
		t.Errorf("%s %v", short, err)
	}
	long, err := socketPath("/" + strings.Repeat("x", 200))
	if err != nil || len(long) > 107 {
		t.Errorf("%s %v", long, err)
	}
}

// A join token comes from a file, or from an argument, and not from both.
func TestJoinFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("skt1.worker.x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    JoinFlags
		want string
	}{
		{JoinFlags{TokenFile: file}, "skt1.worker.x"},
		{JoinFlags{Token: "@" + file}, "skt1.worker.x"}, {JoinFlags{Token: "skt1.worker.y"}, "skt1.worker.y"},
		{JoinFlags{}, ""}, {JoinFlags{Token: "skt1.worker.y", TokenFile: file}, "!"}, {JoinFlags{TokenFile: file + "x"}, "!"},
	} {
		if got, err := c.f.Text(); (err != nil) != (c.want == "!") || err == nil && got != c.want {
			t.Errorf("%+v: %q, %v", c.f, got, err)
		}
	}
}
