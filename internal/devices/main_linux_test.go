package devices

import (
	"os"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(responderVar); kind != "" {
		os.Exit(respond(kind))
	}
	os.Exit(testenv.Main(m, testenv.Options{NetNS: true}))
}
