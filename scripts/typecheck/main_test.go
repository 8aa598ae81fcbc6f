package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPlatforms checks a program whose library does not compile for one platform, and whose tests do not for another.
func TestPlatforms(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":               "module example.org/m\n\ngo 1.24\n",
		"main.go":              "package main\n\nimport \"example.org/m/lib\"\n\nfunc main() { lib.F() }\n",
		"lib/lib.go":           "package lib\n\nfunc F() int { return f() }\n",
		"lib/f_linux.go":       "package lib\n\nfunc f() int { return 1 }\n",
		"lib/f_windows.go":     "package lib\n\nfunc f() int { return \"1\" }\n",
		"lib/lib_test.go":      "package lib_test\n\nimport (\n\t\"testing\"\n\n\t\"example.org/m/lib\"\n)\n\nfunc TestF(*testing.T) { lib.F() }\n",
		"lib/f_arm64_test.go":  "package lib\n\nvar _ string = F()\n",
		"linuxonly/p_linux.go": "package linuxonly\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		system, arch, pattern string
		tests, fails          bool
	}{
		{"linux", "amd64", ".", false, false},
		{"linux", "amd64", "./...", true, false},
		{"linux", "arm64", ".", false, false},
		{"linux", "arm64", "./...", true, true},
		{"windows", "amd64", ".", false, true}, // in a body of what it imports
		{"darwin", "amd64", ".", false, true},  // f is missing
	} {
		env := append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+c.system, "GOARCH="+c.arch)
		if failed, err := check(c.tests, env, []string{c.pattern}); err != nil || failed != c.fails {
			t.Errorf("%+v: failed %v, %v", c, failed, err)
		}
	}
}
