//go:build linux

package wireguard

import (
	"os"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{NetNS: true})) }
