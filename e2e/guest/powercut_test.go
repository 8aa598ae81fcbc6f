//go:build linux && amd64

package guest

import (
	"bufio"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var cuts = flag.Int("cuts", 20, "how often TestPowerCuts cuts the power")

// guestDisks makes a disk with a root whose first process is ours, and an empty one that lives through the cuts.
func guestDisks(t *testing.T) (root, data string) {
	t.Helper()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	for _, d := range []string{"proc", "sys", "tmp", "dev", "data", "sbin"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for out, pkg := range map[string]string{"sbin/init": "./e2e/guest/powercut", "skerry": "./cmd/skerry"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(tree, out), pkg)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, text)
		}
	}
	root, data = filepath.Join(dir, "root.ext4"), filepath.Join(dir, "data.ext4")
	for _, args := range [][]string{{"-q", "-F", "-d", tree, root, "256M"}, {"-q", "-F", data, "256M"}} {
		if text, err := exec.Command("mkfs.ext4", args...).CombinedOutput(); err != nil {
			t.Fatalf("make a disk: %v\n%s", err, text)
		}
	}
	return root, data
}

// TestPowerCuts cuts the power of a guest in which a root runs while users write: every write that was acknowledged before is
// there when the power is back. What the guest had not written to its disk is gone with its memory.
func TestPowerCuts(t *testing.T) {
	kernel := filepath.Join(image(t), "vmlinuz")
	root, data := guestDisks(t)
	acked := map[string]uint64{}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	total := 0
	for n := range *cuts + 1 {
		console := filepath.Join(filepath.Dir(data), "console")
		cmd := exec.Command("qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2", "-m", "512",
			"-nodefaults", "-display", "none", "-kernel", kernel,
			"-append", "console=ttyS0 root=/dev/nvme0n1 ro rootfstype=ext4 init=/sbin/init panic=-1 mitigations=off tsc=reliable quiet",
			"-drive", "file="+root+",format=raw,if=none,id=root,snapshot=on", "-device", "nvme,drive=root,serial=root",
			"-drive", "file="+data+",format=raw,if=none,id=data", "-device", "nvme,drive=data,serial=data",
			"-device", "virtio-rng-pci", "-serial", "file:"+console, "-serial", "stdio")
		cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(data))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		watchdog := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		have := map[string]uint64{}
		ready, failed, here := false, "", 0
		var cut *time.Timer
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				break // the power is off; half a line was not told
			}
			_, word, _ := strings.Cut(strings.TrimSpace(line), "@ ")
			f := strings.Fields(word)
			switch {
			case len(f) == 0:
			case f[0] == "have":
				for i := 1; i+1 < len(f); i += 2 {
					have[f[i]], _ = strconv.ParseUint(f[i+1], 10, 64)
				}
			case f[0] == "ready":
				ready = true
				for name, gen := range acked {
					if have[name] < gen {
						t.Errorf("after cut %d: %s is at generation %d, %d was acknowledged", n, name, have[name], gen)
					}
				}
				if n == *cuts {
					_ = cmd.Process.Kill()
					break
				}
				// At a moment that nobody chose.
				cut = time.AfterFunc(time.Duration(rng.IntN(3000))*time.Millisecond, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
			case f[0] == "ack" && len(f) == 3:
				gen, err := strconv.ParseUint(f[2], 10, 64)
				if err != nil {
					t.Fatalf("%q", line)
				}
				acked[f[1]] = max(acked[f[1]], gen)
				here++
			case f[0] == "failed":
				failed = word
				_ = cmd.Process.Kill()
			}
		}
		watchdog.Stop()
		if cut != nil {
			cut.Stop()
		}
		_ = cmd.Wait()
		total += here
		if failed != "" || !ready {
			text, _ := os.ReadFile(console)
			t.Fatalf("after cut %d the root does not work: %s\n%s", n, failed, tail(text, 30))
		}
	}
	t.Logf("%d cuts, %d acknowledged writes, %d applications", *cuts, total, len(acked))
	if total < *cuts {
		t.Errorf("only %d writes in %d lives: nothing was proven", total, *cuts)
	}
}
