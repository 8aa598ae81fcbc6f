package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// What an operator writes wrong about places is named with its path, and others read no credentials.
func TestPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "places.yaml")
	const good = "offsite: {to: s3://backups/edge, region: eu-1, accessKey: a, secretKey: s, " +
		"recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]}\n"
	for _, c := range []struct{ text, want string }{
		{good, ""}, {"{}", ""},
		{strings.Replace(good, "offsite", "Off site", 1), "Off site: name"},
		{strings.Replace(good, "s3://backups", "http://10.0.0.1", 1), "offsite: \"http://10.0.0.1"},
		{strings.Replace(good, "secretKey: s, ", "", 1), "no accessKey or no secretKey"},
		{strings.Replace(good, "aqmcac8p", "aqmcac8q", 1), "offsite.recipients: recipient"},
		{strings.Replace(good, "region", "regin", 1), "regin"},
		{"offsite", "must be a mapping"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := placesFile(file)()
		text := ""
		if e := skerry.AsError(err); err != nil {
			text = fmt.Sprint(e.Message, e.Problems)
			for _, p := range e.Problems {
				text += " " + p.Path + ": " + p.Message
			}
		}
		if (c.want == "") != (err == nil) || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s; expected %q", c.text, text, c.want)
		}
	}
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := placesFile(file)(); err == nil || !strings.Contains(skerry.AsError(err).Hint, "chmod 600") {
		t.Errorf("others may read it: %v", err)
	}
}
