package tier

import (
	"net/http"
	"testing"

	"skerry.dev/skerry/auth"
)

// A link that cannot be made leaves nothing that waits for it; package testenv looks for what is left.
func TestUpThatCannotBeMade(t *testing.T) {
	if _, err := NewUp(UpConfig{Member: &auth.Member{}, HTTP: http.NotFoundHandler()}); err == nil {
		t.Error("a link to nowhere was made")
	}
}
