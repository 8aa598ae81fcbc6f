//go:build linux

package blockdev

import (
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

func TestWhole(t *testing.T) {
	sys := t.TempDir()
	disk := filepath.Join(sys, "devices", "sda")
	if err := os.MkdirAll(filepath.Join(disk, "sda1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"dev": "8:0\n", "sda1/dev": "8:1\n", "sda1/partition": "1\n"} {
		if err := os.WriteFile(filepath.Join(disk, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for number, target := range map[string]string{"8:0": "devices/sda", "8:1": "devices/sda/sda1"} {
		if err := os.Symlink(target, filepath.Join(sys, number)); err != nil {
			t.Fatal(err)
		}
		if got, err := whole(sys, number); got != "8:0" || err != nil {
			t.Errorf("%s: %q, %v", number, got, err)
		}
	}
	if got, err := whole(sys, "9:9"); err == nil {
		t.Errorf("a device that is not there is %q", got)
	}
}

func TestMountedFrom(t *testing.T) {
	const mounts = `24 29 0:22 / /proc rw - proc proc rw
36 29 0:31 /root / rw,noatime shared:1 - btrfs /dev/sda2 rw,subvol=/root
37 29 254:0 / /boot rw - ext4 /dev/vda rw
broken line
`
	for number, want := range map[string]string{"0:31": "/dev/sda2", "254:0": "/dev/vda", "0:99": ""} {
		if got := mountedFrom(mounts, number); got != want {
			t.Errorf("%s: %q, not %q", number, got, want)
		}
	}
}

// Of knows where the tests' own directory is, if that is on a disk at all.
func TestOf(t *testing.T) {
	got, err := Of(".")
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "a disk", Why: err.Error()})
	}
	if _, err := os.Stat("/sys/dev/block/" + got); err != nil {
		t.Error(got, err)
	}
}
