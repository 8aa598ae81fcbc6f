//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// machineFiles writes files as the kernel has them below /proc and /sys.
func machineFiles(t *testing.T, dir string, list map[string]string) {
	t.Helper()
	for name, text := range list {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPressure(t *testing.T) {
	dir := t.TempDir()
	m := machineCounters{proc: dir}
	defer m.close()
	if p := m.pressure(); p != nil {
		t.Errorf("%+v without a kernel that tells", p)
	}
	machineFiles(t, dir, map[string]string{
		"pressure/cpu":    "some avg10=12.50 avg60=1.00 avg300=0.00 total=12345\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n",
		"pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"pressure/io":     "some avg10=lots\n",
	})
	if p := m.pressure(); p == nil || *p != (wire.Pressure{CPU: 0.125}) {
		t.Errorf("%+v", p)
	}
	machineFiles(t, dir, map[string]string{"pressure/cpu": "some avg10=25.00 avg60=1.00 avg300=0.00 total=12345\n"})
	if p := m.pressure(); p == nil || *p != (wire.Pressure{CPU: 0.25}) {
		t.Errorf("later: %+v", p)
	}
}

// What the kernel counts is read each time, by files that stay open, and of disks only what is a whole one.
func TestMachineCounters(t *testing.T) {
	proc, sys := t.TempDir(), t.TempDir()
	m := machineCounters{proc: proc, sys: sys}
	defer m.close()
	if busy, total := m.cpuTimes(); busy != 0 || total != 0 {
		t.Errorf("%v of %v without a file", busy, total)
	}
	machineFiles(t, proc, map[string]string{
		"stat":    "cpu  10 1 2 80 5 1 1 0 0 0\ncpu0 10 1 2 80 5 1 1 0 0 0\n",
		"meminfo": "MemTotal:       2000 kB\nMemFree:         100 kB\nMemAvailable:   1500 kB\nBuffers:          10 kB\n",
		"diskstats": "   8       0 sda 1 0 8 1 1 0 8 1 0 40 2\n   8       1 sda1 1 0 8 1 1 0 8 1 0 40 2\n" +
			"   7       0 loop0 1 0 8 1 1 0 8 1 0 900 2\n 259       0 nvme0n1 1 0 8 1 1 0 8 1 0 2 2\n",
	})
	for _, disk := range []string{"sda", "loop0", "nvme0n1"} {
		machineFiles(t, sys, map[string]string{filepath.Join("block", disk, "size"): "1\n"})
	}
	for range 2 {
		if busy, total := m.cpuTimes(); busy != 15 || total != 100 {
			t.Errorf("%v of %v", busy, total)
		}
		if total, free := m.memory(); total != 2000*skerry.KiB || free != 1500*skerry.KiB {
			t.Errorf("%v of %v", free, total)
		}
		if ms, disks := m.diskTime(); ms != 42 || disks != 2 {
			t.Errorf("%d ms of %d disks", ms, disks)
		}
	}
	machineFiles(t, proc, map[string]string{"stat": "cpu  20 1 2 80 5 1 1 0 0 0\n", "diskstats": ""})
	if busy, total := m.cpuTimes(); busy != 25 || total != 110 {
		t.Errorf("later: %v of %v", busy, total)
	}
	if ms, disks := m.diskTime(); ms != 0 || disks != 0 {
		t.Errorf("%d ms of %d disks that are gone", ms, disks)
	}
	// On this machine.
	var own machineCounters
	defer own.close()
	if busy, total := own.cpuTimes(); !(busy > 0 && total > busy) {
		t.Errorf("%v of %v", busy, total)
	}
	wholeTotal, _ := memory()
	if total, free := own.memory(); total != wholeTotal || free <= 0 || free > total {
		t.Errorf("%v of %v, of %v", free, total, wholeTotal)
	}
}
