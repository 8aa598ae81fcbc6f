//go:build linux && amd64

package vm

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
	"skerry.dev/skerry/runtime/vm/wire"
)

// BenchmarkStart measures from Start to the moment in which the guest's program is executed, beside QEMU alone with the same
// kernel, init and disk. The two take turns.
func BenchmarkStart(b *testing.B) {
	os.Setenv(kernelEnv, testenv.GuestKernel(b))
	opened, err := open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	d := opened.(*Driver)
	defer d.Close()
	root := []runtime.Mount{runtime.Overlay(runtimetest.Image(b, runtimetest.Workload(b)))}
	spec := runtime.Spec{RootFS: root, Args: []string{"workload", "sleep"}, ReadOnlyRoot: true, Resources: runtime.Resources{Memory: 64 << 20}}
	c, err := d.choose(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	dirs, err := layers(root)
	if err != nil {
		b.Fatal(err)
	}
	image, err := d.ensureDisk(b.Context(), dirs)
	if err != nil {
		b.Fatal(err)
	}
	var ours, bare []time.Duration
	var memory int64
	i := 0
	for b.Loop() {
		i++
		spec.ID = runtime.TaskID(fmt.Sprintf("bench.main.%d", i))
		began := time.Now()
		h, err := d.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		b.StopTimer()
		t, err := d.base.Tasks.Get(h)
		if err != nil {
			b.Fatal(err)
		}
		st, err := t.Group().Stats(time.Now())
		if err != nil {
			b.Fatal(err)
		}
		memory = max(memory, int64(st.Memory))
		if err := d.Remove(b.Context(), h); err != nil {
			b.Fatal(err)
		}
		s, err := d.setup(spec, c, image)
		if err != nil {
			b.Fatal(err)
		}
		bare = append(bare, byHand(b, s, filepath.Join(image, diskFileName)))
		b.StartTimer()
	}
	b.ReportMetric(p50(ours), "start-p50-ms")
	b.ReportMetric(p50(bare), "qemu-p50-ms")
	b.ReportMetric(p50(ours)/p50(bare), "times")
	b.ReportMetric(float64(memory)/(1<<20), "cgroup-MiB")
}

// byHand boots a machine without anything around it.
func byHand(b *testing.B, s *setup, image string) time.Duration {
	open := func(path string) *os.File {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { f.Close() })
		return f
	}
	pair := func() (net.Conn, *os.File) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
		defer ours.Close()
		conn, err := net.FileConn(ours)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close(); theirs.Close() })
		return conn, theirs
	}
	console, consoleEnd := pair()
	control, controlEnd := pair()
	go io.Copy(io.Discard, console)
	cmd, err := qemu(s.QEMU).command(&machine{
		Accel: s.Accel, Parts: board("amd64"), Kernel: open(s.Kernel), Initrd: open(s.Initrd), Cmdline: commandLine, RAM: s.RAM, CPUs: s.CPUs,
		Disks: []disk{{Serial: "root", File: open(image), ReadOnly: true}}, Console: consoleEnd, Control: controlEnd,
	})
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for {
		f, err := wire.Read(control)
		switch {
		case err != nil:
			b.Fatal(err)
		case f.Kind == wire.KindHello:
			if err := wire.Write(control, wire.Frame{Kind: wire.KindConfig, Data: wire.Encode(&s.Guest)}); err != nil {
				b.Fatal(err)
			}
		case f.Kind == wire.KindStarted:
			return time.Since(began)
		case f.Kind == wire.KindFailed:
			b.Fatalf("%q", f.Data)
		}
	}
}

// p50 is the median in milliseconds.
func p50(ds []time.Duration) float64 {
	s := slices.Sorted(slices.Values(ds))
	return float64(s[len(s)/2].Microseconds()) / 1000
}

// BenchmarkUnikernel measures from Start to the first line of a unikernel's console, beside QEMU alone with the same kernel.
func BenchmarkUnikernel(b *testing.B) {
	kernel := testenv.Unikernel(b, "../..")
	d, err := NewUnikernels(applianceOptions(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	benchAppliance(b, d, filepath.Dir(kernel), "greeter", func(files *opened, m *machine) (err error) {
		m.Kernel, err = files.open(kernel, os.O_RDONLY)
		return err
	})
}

// BenchmarkComputer measures the same of a machine that boots a disk.
func BenchmarkComputer(b *testing.B) {
	image := b.TempDir()
	if err := os.Mkdir(filepath.Join(image, "disk"), 0o755); err != nil {
		b.Fatal(err)
	}
	disk0 := testenv.BootDisk(b, "../..", filepath.Join(image, "disk"))
	d, err := NewComputers(applianceOptions(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	benchAppliance(b, d, image, "/disk", func(files *opened, m *machine) error {
		f, err := files.open(disk0, os.O_RDWR)
		m.Disks = []disk{{Serial: "disk", File: f}}
		return err
	})
}

// benchAppliance starts machines by a driver and by hand, in turns.
func benchAppliance(b *testing.B, d *Appliances, image, command string, byHand func(*opened, *machine) error) {
	defer d.Close()
	c, err := d.choose(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var ours, bare []time.Duration
	var memory int64
	for i := 0; b.Loop(); i++ {
		spec := runtime.Spec{ID: runtime.TaskID(fmt.Sprintf("bench.main.%d", i)), Args: []string{command}, Resources: runtime.Resources{Memory: 16 << 20},
			RootFS: []runtime.Mount{{Type: "bind", Source: image}}}
		began := time.Now()
		h, err := d.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		log, err := d.OpenLog(b.Context(), h, runtime.LogOptions{Follow: true})
		if err == nil {
			_, err = log.Next()
			log.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		b.StopTimer()
		time.Sleep(time.Second) // until it does nothing
		st, err := d.Stats(b.Context(), h)
		if err != nil {
			b.Fatal(err)
		}
		memory = max(memory, int64(st.Memory))
		if err := d.Remove(b.Context(), h); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, alone(b, d, c, byHand))
		b.StartTimer()
	}
	b.ReportMetric(p50(ours), "start-p50-ms")
	b.ReportMetric(p50(bare), "qemu-p50-ms")
	b.ReportMetric(float64(memory)/(1<<20), "cgroup-MiB")
}

// alone runs QEMU with nothing around it, from its start to the first that its machine prints.
func alone(b *testing.B, d *Appliances, c *choice, complete func(*opened, *machine) error) time.Duration {
	b.Helper()
	var files opened
	defer files.close()
	m := &machine{Accel: c.accel, Parts: d.kind.parts("amd64"), RAM: 16 << 20, CPUs: 1}
	console, theirs, err := files.pair()
	if err == nil {
		m.Console = theirs
		err = complete(&files, m)
	}
	if err != nil {
		b.Fatal(err)
	}
	defer console.Close()
	cmd, err := qemu(c.qemu).command(m)
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_, err = console.Read(make([]byte, 1))
	took := time.Since(began)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		b.Fatal(err)
	}
	return took
}
