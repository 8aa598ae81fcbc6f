package auth

import (
	"strings"
	"testing"
)

// TestDecoy: it takes the same work to verify as a hash, from which it differs in what is random alone, and nothing verifies against it.
func TestDecoy(t *testing.T) {
	a := Argon2{}.fill()
	decoy, other := strings.Split(a.decoy(), "$"), strings.Split(a.decoy(), "$")
	for i, part := range strings.Split(a.hash("a password"), "$") {
		if len(decoy) != 6 || len(decoy[i]) != len(part) || i < 4 && decoy[i] != part || i >= 4 && decoy[i] == other[i] {
			t.Errorf("part %d of decoys: got %q and %q, want what is like %q", i, decoy[i], other[i], part)
		}
	}
	if verifyPassword(strings.Join(decoy, "$"), "") {
		t.Error("a decoy verifies for the empty password: got true, want false")
	}
}
