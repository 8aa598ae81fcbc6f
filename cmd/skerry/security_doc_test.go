package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// SECURITY.md names, for each that may be hostile, tests that attack as they would, and ATTACKS.md those of what was tried: these exist,
// in the packages that they say.
func TestSecurityNamesTests(t *testing.T) {
	for _, file := range []string{"SECURITY.md", "docs/ATTACKS.md"} {
		t.Run(file, func(t *testing.T) { namesTests(t, "../../"+file) })
	}
}

func namesTests(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found, at := 0, ""
	for _, word := range regexp.MustCompile("`[a-z][a-z0-9/]*`|(?:Test|Fuzz)[A-Z][A-Za-z0-9]*").FindAllString(string(text), -1) {
		if word[0] == '`' {
			at = strings.Trim(word, "`")
			continue
		}
		found++
		dir := "../../" + at
		if at == "skerry" {
			dir = "../.."
		}
		if err := exec.Command("grep", "-qs", "^func "+word+"(", "-r", "--include=*_test.go", dir).Run(); err != nil {
			t.Errorf("there is no %s in %s", word, at)
		}
	}
	if found < 30 {
		t.Errorf("only %d tests are named", found)
	}
}
