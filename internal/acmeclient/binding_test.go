package acmeclient

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

// FuzzBindingKey reads keys in both alphabets alike, and never shows one in an error.
func FuzzBindingKey(f *testing.F) {
	for _, s := range []string{"", "MDEyMzQ1Njc4OTAxMjM0NQ", " MDEyMzQ1Njc4OTAxMjM0NQ==\n", "-_-_-_-_-_-_-_-_-_-_-_-_", "a b", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := ParseBindingKey(s)
		if err != nil {
			if len(s) > 20 && strings.Contains(err.Error(), s) {
				t.Errorf("key %q: the error shows it: %v", s, err)
			}
			return
		}
		for _, text := range []string{base64.StdEncoding.EncodeToString(key), base64.RawURLEncoding.EncodeToString(key)} {
			if again, err := ParseBindingKey(text); err != nil || !bytes.Equal(again, key) {
				t.Errorf("key %q: got %x, %v, want %x", text, again, err, key)
			}
		}
	})
}
