//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

// debian is a root that has nothing but dpkg's records, and packages for it.
type debian struct {
	*testing.T
	root, packages string
}

func newDebian(t *testing.T) *debian {
	t.Helper()
	for _, program := range []string{"dpkg", "dpkg-deb", "systemctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&testenv.Unsupported{What: "Debian packages", Why: "there is no " + program})
		}
	}
	d := &debian{t, t.TempDir(), t.TempDir()}
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(d.root, "var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.write("var/lib/dpkg/status", "")
	return d
}

// write makes a file in the root.
func (d *debian) write(name, text string) {
	d.Helper()
	name = filepath.Join(d.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
}

// dummy is a program that does what scripts/deb asks of one.
func (d *debian) dummy(name string) string {
	d.Helper()
	name = filepath.Join(d.packages, name)
	if err := os.WriteFile(name, []byte("#!/bin/sh\n[ \"$1\" != man ] || echo .TH >\"$2/skerry.1\"\n"), 0o755); err != nil {
		d.Fatal(err)
	}
	return name
}

// made packs a program and gives the file of the package.
func (d *debian) made(program, version string, env ...string) string {
	d.Helper()
	out := d.TempDir()
	cmd := exec.Command("../../scripts/deb", program, runtime.GOARCH, version, out)
	cmd.Env = append(os.Environ(), "COMPRESSION=none", "SOURCE_DATE_EPOCH=1700000000", "NOTICES=../../LICENSE")
	cmd.Env = append(cmd.Env, env...)
	name, err := cmd.Output()
	if err != nil {
		d.Fatalf("%v: %v", cmd.Args, err)
	}
	return filepath.Join(out, strings.TrimSpace(string(name)))
}

func (d *debian) try(args ...string) (string, error) {
	args = append([]string{"--root=" + d.root, "--force-script-chrootless", "--force-not-root", "--log=/dev/null"}, args...)
	out, err := exec.Command("dpkg", args...).CombinedOutput()
	return string(out), err
}

func (d *debian) dpkg(args ...string) string {
	d.Helper()
	out, err := d.try(args...)
	if err != nil {
		d.Fatalf("dpkg %v: %v\n%s", args, err, out)
	}
	return out
}

func (d *debian) systemctl(args ...string) {
	d.Helper()
	if out, err := exec.Command("systemctl", append([]string{"--root=" + d.root}, args...)...).CombinedOutput(); err != nil {
		d.Fatalf("systemctl %v: %v\n%s", args, err, out)
	}
}

func (d *debian) has(want bool, names ...string) {
	d.Helper()
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(d.root, name)); (err == nil) != want {
			d.Errorf("%s: %v; want it there: %v", name, err, want)
		}
	}
}

const enabled = "etc/systemd/system/multi-user.target.wants/skerry-worker.service"

// A Debian package is installed, upgraded, removed and purged. That it starts, upgrades and stops roles under systemd is for the guest of
// e2e/guest to tell.
func TestDebianPackage(t *testing.T) {
	d := newDebian(t)
	older, newer := d.made(testenv.Program(t), "v1.2-rc1"), d.made(testenv.Program(t), "v1.2-5-gabc")
	d.dpkg("--install", older)
	d.has(true, "usr/bin/skerry", "etc/skerry", "usr/lib/systemd/system/skerry-worker.service", "usr/lib/systemd/system/skerry.slice",
		"usr/share/man/man1/skerry-apply.1.gz", "usr/share/bash-completion/completions/skerry", "usr/share/doc/skerry/copyright",
		"usr/share/doc/skerry/THIRD-PARTY-NOTICES.gz")
	d.has(false, enabled) // nobody said which role this machine has
	units, err := filepath.Glob(filepath.Join(d.root, "usr/lib/systemd/system/*.service"))
	if err != nil || len(units) != 5 {
		t.Errorf("units %q: %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil || strings.Contains(string(text), "/usr/local") {
			t.Errorf("%s names a program that is not there: %v\n%s", unit, err, text)
		}
	}

	kept := "var/lib/skerry/worker/volumes/kept"
	d.write("etc/skerry/worker.env", "SKERRY_NAME=w1\n")
	d.write(kept, "data")
	d.systemctl("enable", "skerry-worker")
	d.dpkg("--install", newer)
	for _, line := range []string{"Version: 1.2+5.gabc", "Status: install ok installed"} {
		if out := d.dpkg("--status", "skerry"); !strings.Contains(out, "\n"+line+"\n") {
			t.Errorf("after the upgrade there is no %q in %s", line, out)
		}
	}
	d.has(true, "usr/bin/skerry", enabled, "etc/skerry/worker.env")

	d.dpkg("--remove", "skerry")
	d.has(false, "usr/bin/skerry", "usr/lib/systemd/system/skerry-worker.service", enabled)
	d.has(true, "etc/skerry/worker.env")
	if out := d.dpkg("--purge", "skerry"); !strings.Contains(out, "/var/lib/skerry is kept") {
		t.Errorf("a purge does not tell of the data: %s", out)
	}
	d.has(false, "etc/skerry")
	if got, err := os.ReadFile(filepath.Join(d.root, kept)); string(got) != "data" {
		t.Errorf("a volume after a purge: %q, %v", got, err)
	}
}

// An agent gives way to a package's program by the time of its file, which is the same in each copy of a package.
func TestDebianReinstall(t *testing.T) {
	d := newDebian(t)
	one := d.made(d.dummy("skerry"), "v1")
	var times []time.Time
	for range 2 {
		d.dpkg("--install", one)
		program := filepath.Join(d.root, "usr/bin/skerry")
		st, err := os.Stat(program)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, st.ModTime())
	}
	if !times[1].After(times[0]) {
		t.Errorf("the program that was installed again is of %s, as before it was: %s", times[1], times[0])
	}
}

// The other package takes over what runs, and its configuration outlives a purge of the first.
func TestDebianOtherPackage(t *testing.T) {
	d := newDebian(t)
	whole, worker := d.made(d.dummy("skerry"), "v1"), d.made(d.dummy("skerry-worker"), "v1")
	d.dpkg("--install", whole)
	d.write("etc/skerry/worker.env", "SKERRY_NAME=w1\n")
	d.systemctl("enable", "skerry-worker", "skerry-root")
	if out, err := d.try("--install", worker); err == nil || !strings.Contains(out, "systemctl disable --now skerry-root.service") {
		t.Errorf("a root was left without its unit: %v\n%s", err, out)
	}
	d.has(true, "usr/lib/systemd/system/skerry-root.service", enabled)
	d.systemctl("disable", "skerry-root")
	d.dpkg("--install", worker)
	d.has(false, "usr/lib/systemd/system/skerry-root.service")
	d.has(true, "usr/bin/skerry", "usr/lib/systemd/system/skerry-worker.service", enabled)
	if out := d.dpkg("--purge", "skerry"); strings.Contains(out, "is kept") {
		t.Errorf("what is in use is offered to be deleted: %s", out)
	}
	d.has(true, "usr/bin/skerry", enabled, "etc/skerry/worker.env")

	d.dpkg("--install", whole)
	d.dpkg("--purge", "skerry-worker")
	d.has(true, "usr/bin/skerry", "usr/lib/systemd/system/skerry-root.service", enabled, "etc/skerry/worker.env")
	d.dpkg("--purge", "skerry")
	d.has(false, "usr/bin/skerry", enabled, "etc/skerry")
}

// What `make install` put there comes before the package, and is not the package's to end.
func TestDebianBesideAnotherProgram(t *testing.T) {
	d := newDebian(t)
	one := d.made(d.dummy("skerry"), "v1")
	const unit = "usr/local/lib/systemd/system/skerry-worker.service"
	d.write("usr/local/bin/skerry", "#!/bin/sh\n")
	d.write(unit, "[Service]\nExecStart=/usr/local/bin/skerry worker\n[Install]\nWantedBy=multi-user.target\n")
	if err := os.Chmod(filepath.Join(d.root, "usr/local/bin/skerry"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.write("etc/skerry/worker.env", "SKERRY_NAME=w1\n")
	d.systemctl("enable", "skerry-worker")
	if out := d.dpkg("--install", one); !strings.Contains(out, "/"+unit+" starts /usr/local/bin/skerry") {
		t.Errorf("nothing is said of a unit that hides the package's: %s", out)
	}
	d.dpkg("--purge", "skerry")
	d.has(true, enabled, unit, "etc/skerry/worker.env")
}

// A package can be removed where a unit is masked, and where there is no systemd.
func TestDebianRemovalWithoutUnits(t *testing.T) {
	d := newDebian(t)
	one := d.made(d.dummy("skerry"), "v1")
	d.dpkg("--install", one)
	d.systemctl("mask", "skerry-worker", "skerry-root")
	d.dpkg("--remove", "skerry")
	d.has(false, "usr/bin/skerry")
	d.dpkg("--install", one)

	scripts, few := filepath.Join(t.TempDir(), "control"), t.TempDir()
	if out, err := exec.Command("dpkg-deb", "--control", one, scripts).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, program := range []string{"sh", "grep", "touch", "rm"} {
		path, err := exec.LookPath(program)
		if err == nil {
			err = os.Symlink(path, filepath.Join(few, program))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"postinst", "configure", ""}, {"prerm", "remove"}, {"prerm", "remove", "in-favour", "skerry-worker", "1"},
		{"prerm", "upgrade", "2"}, {"postinst", "abort-remove"}, {"postrm", "remove"}, {"postrm", "purge"}, {"postrm", "abort-upgrade", "1"}} {
		cmd := exec.Command("sh", append([]string{filepath.Join(scripts, args[0])}, args[1:]...)...)
		cmd.Env = []string{"PATH=" + few, "DPKG_ROOT=" + d.root}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v without systemctl: %v\n%s", args, err, out)
		}
	}
}

// The same input gives the same bytes on every file system and with every mask, and versions come in the order of time.
func TestDebianFiles(t *testing.T) {
	d := newDebian(t)
	program := d.dummy("skerry")
	one := d.made(program, "v1.2")
	mask := syscall.Umask(0o077)
	other := d.made(program, "v1.2", "TMPDIR=/dev/shm", "LC_ALL=C.UTF-8")
	syscall.Umask(mask)
	if out, err := exec.Command("cmp", one, other).CombinedOutput(); err != nil {
		t.Errorf("made in memory the package is another: %v\n%s", err, out)
	}

	var last string
	for _, given := range []string{"85d48fff", "85d48fff-dirty", "v1.2-rc1", "v1.2-rc1-3-gabc", "v1.2-rc2", "v1.2", "v1.2-dirty",
		"v1.2-5-gabc", "v1.2-5-gabc-dirty", "v1.2.1_x"} {
		_, version, _ := strings.Cut(filepath.Base(d.made(program, given)), "_")
		version, _, _ = strings.Cut(version, "_")
		if last != "" && exec.Command("dpkg", "--compare-versions", last, "lt", version).Run() != nil {
			t.Errorf("%s, version %s, does not come after %s", given, version, last)
		}
		last = version
	}
}
