package device

import (
	"slices"
	"strings"
	"testing"
)

func TestDiskBackings(t *testing.T) {
	line := func(args ...string) string { return strings.Join(args, "\x00") + "\x00" }
	for _, c := range []struct {
		cmdline string
		want    []string
	}{
		{line("/usr/bin/qemu-system-x86_64", "-blockdev", `{"cache":{"direct":false,"no-flush":false},"driver":"raw","node-name":"a","read-only":false}`, "-blockdev", `{"driver":"raw","read-only":true}`), []string{"disk: QEMU, raw, cache=writeback"}},
		{line("qemu-system-aarch64", "-blockdev", `{"cache":{"direct":false,"no-flush":true},"driver":"qcow2"}`), []string{"disk: QEMU, qcow2, cache=unsafe"}},
		{line("qemu-system-x86_64", "-blockdev", `{"cache":{"direct":true},"driver":"raw"}`), []string{"disk: QEMU, raw, cache=none"}},
		{line("/usr/lib/qemu/virtiofsd", "--fd=3", "-o", "cache=auto"), []string{"shared directory: virtiofs, cache=auto"}},
		{line("qemu-system-x86_64", "-blockdev"), nil},
		{line("sh", "-blockdev", `{"driver":"raw"}`, "cache=x"), nil},
		{"", nil},
	} {
		if got := diskBackings(c.cmdline); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q", c.cmdline, got)
		}
	}
}

func TestMountBacking(t *testing.T) {
	const info = `25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw,errors=remount-ro
30 25 0:22 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1024k
31 30 0:40 / /tmp/c rw,relatime - overlay overlay rw,lowerdir=/a:/b,upperdir=/u,workdir=/w,volatile
32 25 8:2 / /ro ro,noatime - ext4 /dev/b ro
broken line
`
	for dir, want := range map[string]string{"/": "ext4 (rw,relatime,errors=remount-ro)", "/home": "ext4 (rw,relatime,errors=remount-ro)", "/tmp/x": "tmpfs (rw,nosuid,size=1024k)",
		"/tmp/c": "overlay (rw,relatime,volatile)", "/tmp/cc": "tmpfs (rw,nosuid,size=1024k)", "/ro/x": "ext4 (ro,noatime)"} {
		if got := mountBacking(info, dir); got != want {
			t.Errorf("%s: %q", dir, got)
		}
	}
	if got := mountBacking("", "/"); got != "" {
		t.Error(got)
	}
}

// Whatever a process of the host has there: it is read, not trusted.
func FuzzBackings(f *testing.F) {
	f.Add("qemu-system-x86_64\x00-blockdev\x00{\"driver\":\"raw\"}\x00", "/tmp")
	f.Add("25 1 8:1 / / rw - ext4 /dev/root rw\n", "/")
	f.Fuzz(func(t *testing.T, text, dir string) {
		diskBackings(text)
		mountBacking(text, dir)
	})
}
