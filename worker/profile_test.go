//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

func TestProfile(t *testing.T) {
	dir := t.TempDir()
	if p, err := ReadProfile(dir); p != nil || err != nil {
		t.Error(p, err)
	}
	at := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	if err := WriteProfile(dir, map[string]wire.RuntimeProfile{"gvisor": {CPU: 1.4, At: at}}); err != nil {
		t.Fatal(err)
	}
	if p, err := ReadProfile(dir); err != nil || len(p) != 1 || p["gvisor"] != (wire.RuntimeProfile{CPU: 1.4, At: at}) {
		t.Error(p, err)
	}
	if err := WriteProfile(dir, map[string]wire.RuntimeProfile{"gvisor": {CPU: 0, At: at}}); err == nil {
		t.Error("nothing takes no time at all")
	}
	for _, bad := range []string{"", "[]", `{"oci":{"cpu":-1}}`, `{"oci":{"cpu":1e9,"at":"2026-11-22T00:00:00Z"}}`, `{"oci":{"cpu":1}}`, `{"oci":{"cpu":1,"at":"2026-11-22T00:00:00Z","rate":-5}}`,
		`{"oci":{"cpu":1,"at":"2026-11-22T00:00:00Z","rate":1e300}}`, `{"oci":{"cpu":1,"at":"2026-11-22T00:00:00Z","share":99}}`, `{"oci":{"cpu":1,"at":"2026-11-22T00:00:00Z","spread":-1}}`} {
		if err := os.WriteFile(filepath.Join(dir, profileFile), []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if p, err := ReadProfile(dir); err == nil {
			t.Errorf("%q gives %v", bad, p)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}
