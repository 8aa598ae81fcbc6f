//go:build linux && amd64

package vm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
)

// computers is a driver with an image of testdata/disk.S.
func computers(t *testing.T) *appliances {
	t.Helper()
	image := t.TempDir()
	if err := os.Mkdir(filepath.Join(image, "disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	testenv.BootDisk(t, "../..", filepath.Join(image, "disk"))
	d, err := NewComputers(applianceOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if r := d.Check(t.Context()); !r.Passed {
		t.Fatalf("%+v", r)
	}
	return &appliances{T: t, d: d, image: image}
}

// TestComputer boots a disk by its firmware: what it writes is there after a reset and gone with the task, the image's disk is as it was,
// and it is told who it is.
func TestComputer(t *testing.T) {
	a := computers(t)
	image := filepath.Join(a.image, "disk", "system.img")
	before, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("colour=blue\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, attachment := cable(t)
	for _, relaxed := range []bool{false, true} {
		sp := a.spec("/disk")
		sp.Hostname, sp.Env, sp.Network = "ann-0", []string{"COLOUR=it's blue"}, attachment
		sp.Mounts = []runtime.Mount{{Type: "bind", Source: config, Target: "/etc/ann.conf", ReadOnly: true}}
		sp.Machine = &runtime.Machine{UserData: "#cloud-config\nruncmd: [[true]]\n", SSHKeys: []string{"ssh-ed25519 AAAA ann"}, Disk: 2 * skerry.MiB, Relaxed: relaxed}
		h := a.start(sp)
		for _, line := range []string{
			"first", "second",
			`{"environment":{"COLOUR":"it's blue"},"instance-id":"` + string(h.ID) + `","local-hostname":"ann-0","public-keys":["ssh-ed25519 AAAA ann"]}`,
			"runcmd: [[true]]",
		} {
			a.says(h, line)
		}
		pid := firstChild(t, h.PID)
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		want := `"cache":{"direct":false,"no-flush":false}`
		if relaxed {
			want = `"cache":{"direct":false,"no-flush":true}`
		}
		if err != nil || bytes.Count(args, []byte(`"cache":`)) != 3 || !bytes.Contains(args, []byte(want+`,"driver":"qcow2"`)) {
			t.Errorf("its disks are not as they should be: %v\n%s", err, bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
		}
		if err := a.d.Stop(t.Context(), h, time.Minute); err != nil {
			t.Error(err)
		}
		a.says(h, "power button")
		if e := a.exit(h); e.Code != 0 {
			t.Errorf("it ended as %+v", e)
		}
		if err := a.d.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	if after, err := os.ReadFile(image); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the image's disk is not what it was: %v", err)
	}
	a.nothingLeft()
}

// firstChild is the number of the process that another one started.
func firstChild(t *testing.T, of int) int {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, s := range stats {
		data, _ := os.ReadFile(s)
		if bytes.Contains(data, []byte("\nPPid:\t"+strconv.Itoa(of)+"\n")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(s)))
			return pid
		}
	}
	t.Fatalf("process %d started none", of)
	return 0
}

// TestHostileDisks are refused before a machine is made, and leave nothing.
func TestHostileDisks(t *testing.T) {
	d, err := NewComputers(applianceOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	good := filepath.Join(t.TempDir(), "good")
	if err := makeOverlay(good, 1<<30); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	if format, size, err := openDisk(bytes.NewReader(whole), int64(len(whole))); format != "qcow2" || size != 1<<30 || err != nil {
		t.Fatalf("%s, %d, %v", format, size, err)
	}
	be := binary.BigEndian
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"based on a file": {func(b []byte) []byte {
			be.PutUint64(b[8:], 200)
			be.PutUint32(b[16:], 11)
			copy(b[200:], "/etc/shadow")
			return b
		}, "based on"},
		"data in a file":         {func(b []byte) []byte { be.PutUint64(b[72:], 1<<2); return b }, "in another file"},
		"names a data file":      {func(b []byte) []byte { be.PutUint32(b[104:], qcowDataFile); be.PutUint32(b[108:], 8); return b }, "in another file"},
		"encrypted":              {func(b []byte) []byte { be.PutUint32(b[32:], 2); return b }, "encrypted"},
		"damaged":                {func(b []byte) []byte { be.PutUint64(b[72:], 1<<1); return b }, "not known"},
		"of the future":          {func(b []byte) []byte { be.PutUint32(b[4:], 4); return b }, "version"},
		"huge":                   {func(b []byte) []byte { be.PutUint64(b[24:], 1<<62); return b }, "bytes"},
		"strange clusters":       {func(b []byte) []byte { be.PutUint32(b[20:], 60); return b }, "clusters"},
		"a header without end":   {func(b []byte) []byte { be.PutUint32(b[100:], 1<<30); return b }, "header"},
		"cut off":                {func(b []byte) []byte { return b[:40] }, "cut off"},
		"nothing":                {func(b []byte) []byte { return nil }, "no qcow2"},
		"of others":              {func(b []byte) []byte { return append([]byte("KDMV"), b...) }, "qemu-img convert"},
		"an extension too large": {func(b []byte) []byte { be.PutUint32(b[104:], 1); be.PutUint32(b[108:], 1<<31); return b }, "no sense"},
	} {
		image := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(image, "disk"), 0o755), os.WriteFile(filepath.Join(image, "disk", "x.qcow2"), c.change(bytes.Clone(whole)), 0o644)); err != nil {
			t.Fatal(err)
		}
		_, err := d.start(t.Context(), runtime.Spec{ID: "hostile.main.1", Args: []string{"/disk"}, RootFS: []runtime.Mount{{Type: "bind", Source: image}}}, &choice{accel: "tcg"})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := d.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// FuzzDisk looks at disks that anybody may have made.
func FuzzDisk(f *testing.F) {
	good := filepath.Join(f.TempDir(), "good")
	if err := makeOverlay(good, 1<<20); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:1024])
	f.Fuzz(func(t *testing.T, data []byte) {
		if format, size, err := openDisk(bytes.NewReader(data), int64(len(data))); err == nil && (size <= 0 || size%sectorSize != 0 || format == "qcow2" && binary.BigEndian.Uint64(data[8:]) != 0) {
			t.Errorf("%s of %d bytes", format, size)
		}
	})
}

// TestSeed reads the disc of an instance back, by the names that Linux takes of it.
func TestSeed(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	s := &seed{InstanceID: "ann.main.1", Hostname: "ann", UserData: strings.Repeat("#cloud-config\n", 300), Env: []string{"A=it's"}, Files: []seedFile{{config, "/etc/a b/c"}}}
	mac, _ := net.ParseMAC("02:00:00:00:00:01")
	card := &nic{MAC: mac, MTU: 1400, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24")}, Routes: []hop{{To: "0.0.0.0/0", Via: "192.0.2.1"}, {To: "198.51.100.0/24", Via: "203.0.113.1", OnLink: true}, {To: "192.0.2.0/24"}}}
	f, err := s.file(card, []string{"192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("it can be written")
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"\x01CD001\x01", "\x02CD001\x01", "\xffCD001\x01"} {
		if at := (16 + i) * isoSector; string(b[at:at+7]) != want {
			t.Fatalf("block %d begins with %q", 16+i, b[at:at+7])
		}
	}
	names := [2][]string{{"META-DATA.;1", "NETWORK-CONFIG.;1", "USER-DATA.;1", "VENDOR-DATA.;1"}, {"meta-data", "network-config", "user-data", "vendor-data"}}
	wants := []string{
		`{"environment":{"A":"it's"},"instance-id":"ann.main.1","local-hostname":"ann"}` + "\n",
		`{"ethernets":{"instance":{"accept-ra":false,"addresses":["192.0.2.7/24"],"dhcp4":false,"dhcp6":false,"match":{"macaddress":"02:00:00:00:00:01"},"mtu":1400,` +
			`"nameservers":{"addresses":["192.0.2.1"],"search":[]},"routes":[{"to":"0.0.0.0/0","via":"192.0.2.1"},{"on-link":true,"to":"198.51.100.0/24","via":"203.0.113.1"}]}},"version":2}` + "\n",
		s.UserData,
		"#cloud-boothook\n#!/bin/sh\nset -eu\numask 077\nmkdir -p '/etc/skerry'\nbase64 -d > '/etc/skerry/environment' <<'.'\nQT0naXQnXCcncycK\n.\nchmod 600 '/etc/skerry/environment'\n" +
			"mkdir -p '/etc/a b'\nbase64 -d > '/etc/a b/c' <<'.'\neA==\n.\nchmod 640 '/etc/a b/c'\n",
	}
	for k, list := range names {
		dir := binary.LittleEndian.Uint32(b[(16+k)*isoSector+156+2:])
		at := int(dir) * isoSector
		at += 2 * int(b[at]) // itself and its parent
		for i, want := range list {
			name := string(b[at+33 : at+33+int(b[at+32])])
			if k == 1 {
				name = strings.ReplaceAll(name, "\x00", "")
			}
			begin, size := int(binary.LittleEndian.Uint32(b[at+2:]))*isoSector, int(binary.BigEndian.Uint32(b[at+14:]))
			if name != want || string(b[begin:begin+size]) != wants[i] {
				t.Errorf("%q, not %q, holds\n%s", name, want, b[begin:begin+size])
			}
			at += int(b[at])
		}
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, seedFiles+1), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Files = append(s.Files, seedFile{big, "/big"})
	if _, err := s.file(nil, nil); err == nil {
		t.Error("too much fits")
	}
}

// TestNothingBoots has machines in which nothing ever speaks: a system that does nothing, and a kernel that ends itself or stands still at once.
// Each is held by its limits, ends as it is told to, and leaves nothing.
func TestNothingBoots(t *testing.T) {
	still := make([]byte, 1<<20)
	copy(still, "\xfa\xf4\xeb\xfd") // no interrupts, stand still, and again
	copy(still[510:], "\x55\xaa")
	image := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(image, "disk"), 0o755), os.WriteFile(filepath.Join(image, "disk", "empty.img"), still, 0o644)); err != nil {
		t.Fatal(err)
	}
	disks, kernels := computers(t), unikernels(t)
	disks.image = image
	for name, c := range map[string]struct {
		a    *appliances
		args []string
		self bool // it ends by itself
	}{
		"a disk": {disks, []string{"/disk"}, false}, "a kernel that hangs": {kernels, []string{"/greeter", "hang"}, false}, "one that resets itself": {kernels, []string{"/greeter", "reset"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := c.a.on(t)
			sp := a.spec(c.args...)
			sp.Resources.CPU = 200
			h := a.start(sp)
			machine, want := 0, runtime.Exit{Code: 1}
			if !c.self {
				machine = firstChild(t, h.PID)
				want = runtime.Exit{Code: 137, Signal: 9}
				if err := a.d.Stop(t.Context(), h, 10*time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
			if e := a.exit(h); e.Code != want.Code || e.Signal != want.Signal || e.Lost {
				t.Errorf("it ended as %+v", e)
			}
			if err := a.d.Remove(t.Context(), h); err != nil {
				t.Error(err)
			}
			if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", machine)); len(stat) > 0 && !strings.Contains(string(stat), ") Z ") {
				t.Errorf("its machine is left: %s", stat)
			}
			a.nothingLeft()
		})
	}
}
