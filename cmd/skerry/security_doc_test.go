package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// SECURITY.md names, for each that may be hostile, tests that attack as they would: these exist, in the packages that it says.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	found, at := 0, ""
	for _, word := range regexp.MustCompile("`[a-z][a-z0-9/]*`|Test[A-Z][A-Za-z0-9]*").FindAllString(string(text), -1) {
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
