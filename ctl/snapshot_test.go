package ctl

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sealing "filippo.io/age"
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// TestSealedSnapshots writes a file for a key, for a passphrase and open, and opens it by the right one alone. A file is there only when it
// is whole.
func TestSealedSnapshots(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SKERRY_PASSPHRASE", "correct horse battery staple")
	key, err := sealing.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := sealing.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mine, theirs, wrong := file("mine", key.String()), file("theirs", other.String()), file("wrong", "wrong horse battery staple\n")
	content := strings.Repeat("what is in it ", 1<<14)
	cmd := &cobra.Command{}
	cmd.SetErr(io.Discard)
	written := func(name string, to []string, seal *sealFlags) []byte {
		t.Helper()
		recipients, err := recipientsOf(cmd, to, seal)
		if err == nil {
			err = writeWhole(cmd, filepath.Join(dir, name), strings.NewReader(content), recipients)
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	byKey, byPass, open := written("by-key", []string{key.Recipient().String()}, &sealFlags{}), written("by-pass", nil, &sealFlags{passphrase: true}), written("open", nil, &sealFlags{})
	if bytes.Contains(byKey, []byte("what is in it")) || bytes.Contains(byPass, []byte("what is in it")) || string(open) != content {
		t.Error("what is sealed can be read, or what is not cannot")
	}
	for name, c := range map[string]struct {
		data []byte
		key  string
		seal sealFlags
		code skerry.Code // empty: it opens
	}{
		"the key":                   {byKey, mine, sealFlags{}, ""},
		"another key":               {byKey, theirs, sealFlags{}, skerry.CodeForbidden},
		"no key":                    {byKey, "", sealFlags{}, skerry.CodeInvalid},
		"the passphrase":            {byPass, "", sealFlags{passphrase: true}, ""},
		"another passphrase":        {byPass, "", sealFlags{passFile: wrong}, skerry.CodeForbidden},
		"a key for a passphrase":    {byPass, mine, sealFlags{}, skerry.CodeForbidden},
		"nothing for an open one":   {open, "", sealFlags{}, ""},
		"a key for an open one":     {open, mine, sealFlags{}, skerry.CodeInvalid},
		"a sealed one that is cut":  {byKey[:len(byKey)-1], mine, sealFlags{}, "cut"},
		"a passphrase file missing": {byPass, "", sealFlags{passFile: filepath.Join(dir, "none")}, skerry.CodeInvalid},
	} {
		in, err := unseal(cmd, bytes.NewReader(c.data), c.key, &c.seal)
		var got []byte
		if err == nil {
			got, err = io.ReadAll(in)
		}
		switch {
		case c.code == "" && (err != nil || string(got) != content):
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		case c.code == "cut" && err == nil:
			t.Errorf("%s was taken for whole", name)
		case c.code != "" && c.code != "cut" && (err == nil || skerry.AsError(err).Code != c.code):
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if _, err := recipientsOf(cmd, []string{key.Recipient().String()}, &sealFlags{passphrase: true}); err == nil {
		t.Error("a key and a passphrase were taken together")
	}
	if _, err := recipientsOf(cmd, []string{"age1nonsense"}, &sealFlags{}); err == nil {
		t.Error("nonsense was taken for a key")
	}
	if err := writeWhole(cmd, filepath.Join(dir, "broken"), io.MultiReader(strings.NewReader("x"), broken{}), nil); err == nil {
		t.Error("a stream that broke off was written")
	}
	var partial bytes.Buffer
	cmd.SetOut(&partial)
	err = writeWhole(cmd, "", io.MultiReader(strings.NewReader(content), broken{}), []sealing.Recipient{key.Recipient()})
	if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeUnavailable || !strings.Contains(e.Hint, "incomplete") {
		t.Errorf("a stream that broke off, on standard output: %v", err)
	}
	if in, err := sealing.Decrypt(&partial, key); err == nil {
		if got, err := io.ReadAll(in); err == nil {
			t.Errorf("the first %d bytes of it are taken for whole", len(got))
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*broken*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, ".skerry-*"))
	if err != nil || len(left)+len(hidden) > 0 {
		t.Errorf("left: %v %v", left, hidden)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestEmptyProtection: a key or a file that is empty, as from a variable that is not set, writes no plain file.
func TestEmptyProtection(t *testing.T) {
	for _, flag := range []string{"--to", "--passphrase-file"} {
		var to []string
		var seal sealFlags
		cmd := &cobra.Command{}
		cmd.Flags().StringSliceVar(&to, "to", nil, "")
		seal.add(cmd, "encrypt")
		if err := cmd.ParseFlags([]string{flag, ""}); err != nil {
			t.Fatal(err)
		}
		_, err := recipientsOf(cmd, to, &seal)
		if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeInvalid || e.Hint == "" || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
