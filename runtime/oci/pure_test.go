//go:build linux

package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// TestManyLayers mounts more layers than their paths fit into one mount call.
func TestManyLayers(t *testing.T) {
	base, target := filepath.Join(t.TempDir(), strings.Repeat("long", 30)), t.TempDir()
	var lower []string
	for i := range 60 {
		dir := filepath.Join(base, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		lower = append(lower, dir)
	}
	if err := mountOverlay(target, lower, nil); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(target, unix.MNT_DETACH)
	if entries, err := os.ReadDir(target); len(entries) != 60 || err != nil {
		t.Errorf("%d files, %v", len(entries), err)
	}
}

func TestExplain(t *testing.T) {
	spec := runtime.Spec{Args: []string{"/bin/web"}, Dir: "/srv"}
	for msg, field := range map[string]string{
		"executable file `/bin/web` not found: No such file or directory":                                                   "args[0]",
		`runc create failed: unable to start container process: exec: "/bin/web": stat /bin/web: no such file or directory`: "args[0]",
		`exec: "/bin/web": permission denied`:                                                                               "args[0]",
		"exec container process `/bin/web`: Exec format error":                                                              "args[0]",
		"chdir to cwd (\"/srv\") set in config.json failed: no such file or directory":                                      "dir",
		`time="2026-11-21T10:57:30Z" level=warning msg="no matter" error="x"
time="2026-11-21T10:57:30Z" level=error msg="runc create failed: unable to start container process: exec: \"/bin/web\": stat /bin/web: no such file or directory"`: "args[0]",
		"something else": "",
	} {
		err := Explain(spec, &monitor.CreateError{Message: msg})
		if se, ok := errors.AsType[*runtime.StartError](err); !ok || se.Field != field || field != "" && se.Hint == "" {
			t.Errorf("%q: %v", msg, err)
		}
	}
	err := Explain(spec, &monitor.CreateError{Message: `time="x" level=error msg="runc create failed: a \"reason\""`})
	if err.Error() != `a "reason"` {
		t.Error(err)
	}
	if err := Explain(spec, os.ErrClosed); err != os.ErrClosed {
		t.Error(err)
	}
}

func TestCapabilities(t *testing.T) {
	c, err := capabilities(runtime.Spec{CapDrop: []string{"ALL"}, CapAdd: []string{"NET_RAW"}})
	if err != nil || !slices.Equal(c.Bounding, []string{"CAP_NET_RAW"}) || !slices.Equal(c.Ambient, []string{"CAP_NET_RAW"}) {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = capabilities(runtime.Spec{})
	if err != nil || slices.Contains(c.Bounding, "CAP_NET_RAW") || slices.Contains(c.Bounding, "CAP_SYS_ADMIN") || len(c.Ambient) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, _ = capabilities(runtime.Spec{Privileged: true}); len(c.Effective) != len(runtime.Capabilities()) {
		t.Errorf("%+v", c)
	}
}

// TestUserCannotEscape gives the driver an image whose /etc/passwd leads out of it.
func TestUserCannotEscape(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{outside + "/passwd": "spy:x:77:77:::\n", root + "/x": ""} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(root+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside+"/passwd", root+"/etc/passwd"); err != nil {
		t.Fatal(err)
	}
	if u, err := lookupUser(root, "spy"); err == nil {
		t.Errorf("found %+v", u)
	}
	// A pipe in the image must not hold the worker up.
	if err := errors.Join(os.Remove(root+"/etc/passwd"), unix.Mkfifo(root+"/etc/passwd", 0o644)); err != nil {
		t.Fatal(err)
	}
	if u, err := lookupUser(root, "12:34"); err != nil || u.UID != 12 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestPlausibleFilter(t *testing.T) {
	ret := []byte{0x06, 0, 0, 0, 0, 0, 0xff, 0x7f}
	good := append(make([]byte, 120), ret...)
	if !plausible(good) || plausible(good[:121]) || plausible(good[:120]) || plausible(nil) {
		t.Error("a program cut short passes for a whole one")
	}
}

// With users of its own nobody in a container may raise a limit above the agent's own, and whoever asks for it is told what to change.
func TestLimitsWithinOwn(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	spec := runtime.Spec{UserNS: &runtime.UserNamespace{First: 1 << 20, Size: 1 << 16},
		Ulimits: []runtime.Ulimit{{Name: "nofile", Hard: own.Max}}}
	if err := withinOwn("oci", &spec); err != nil {
		t.Error(err)
	}
	spec.Ulimits[0].Hard++
	if err := withinOwn("oci", &spec); err == nil || !strings.Contains(err.Error(), "LimitNOFILE=") {
		t.Errorf("above its own: %v", err)
	}
	spec.UserNS = nil
	if err := withinOwn("oci", &spec); err != nil {
		t.Errorf("with the host's users: %v", err)
	}
	spec = runtime.Spec{UserNS: &runtime.UserNamespace{}, Ulimits: []runtime.Ulimit{{Name: "none"}}}
	if err := withinOwn("oci", &spec); err == nil {
		t.Error("a limit that does not exist is taken")
	}
}
