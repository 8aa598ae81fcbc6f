package api

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// TestAliasesOfManifests: a manifest that is small only because of its aliases does not fill the server's memory.
func TestAliasesOfManifests(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 500_000) + "\nb:\n" + strings.Repeat("- *a\n", 50_000)
	if _, err := DecodeManifest("application/yaml", []byte(text)); err == nil || skerry.AsError(err).Code != skerry.CodeTooLarge {
		t.Errorf("the manifest became: %v", err)
	}
}
