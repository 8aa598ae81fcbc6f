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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

// bootPatience is how long a guest may take until its roles are started, which takes a quarter of a minute.
const bootPatience = 2 * time.Minute

var cuts = flag.Int("cuts", 20, "how often TestPowerCuts cuts the power")

// guestDisks makes a disk with a root whose first process is ours, and an empty one that lives through the cuts.
func guestDisks(t *testing.T) (root, data string) {
	t.Helper()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	for _, d := range []string{"proc", "sys", "tmp", "run", "dev", "data", "sbin", "bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Build(t, filepath.Join(tree, "sbin/init"), "skerry.dev/skerry/e2e/guest/powercut")
	// What keeps an instance apart from the agent is not linked statically.
	conmon, err := exec.LookPath("conmon")
	if err != nil {
		t.Fatal(err)
	}
	libs, err := exec.Command("ldd", conmon).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"bin/conmon": conmon, "skerry": testenv.Program(t)}
	for f := range strings.FieldsSeq(string(libs)) {
		if strings.HasPrefix(f, "/") {
			files[f] = f
		}
	}
	for to, from := range files {
		if err := os.MkdirAll(filepath.Join(tree, filepath.Dir(to)), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(tree, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
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

// TestPowerCuts cuts the power of a guest in which all three roles run while users write to root and cluster: every write that was
// acknowledged before is there when the power is back, and in the end the instance runs again. What the guest had not written to its disk is gone with its memory.
func TestPowerCuts(t *testing.T) {
	testenv.Long(t, "sim TestFreshSeeds and TestChaosComesToRest, store TestSQLiteCrash")
	kernel := filepath.Join(image(t), "vmlinuz")
	root, data := guestDisks(t)
	acked := map[string]uint64{}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	total, runs, died := 0, 0, 0
	for n := 0; n <= *cuts; n++ {
		console := filepath.Join(filepath.Dir(data), "console")
		cmd := emulator(plain, "-kernel", kernel,
			"-append", "console=ttyS0 root=/dev/nvme0n1 ro rootfstype=ext4 init=/sbin/init panic=-1 mitigations=off tsc=reliable loglevel=5",
			"-drive", "file="+root+",format=raw,if=none,id=root,snapshot=on", "-device", "nvme,drive=root,serial=root",
			"-drive", "file="+data+",format=raw,if=none,id=data", "-device", "nvme,drive=data,serial=data",
			"-device", "virtio-rng-pci", "-serial", "file:"+console, "-serial", "stdio")
		cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(data))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var ours atomic.Bool
		end := func() {
			ours.Store(true)
			_ = cmd.Process.Kill()
		}
		watchdog := time.AfterFunc(patience, end)
		// Until the roles' process is there, nothing of Skerry runs that could hang.
		var hung atomic.Bool
		boot := time.AfterFunc(bootPatience, func() {
			hung.Store(true)
			_ = cmd.Process.Kill()
		})
		have, was := map[string]uint64{}, runs
		ready, failed, here, heard := false, "", 0, time.Now()
		var cut *time.Timer
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				break // the power is off; half a line was not told
			}
			heard = time.Now()
			_, word, _ := strings.Cut(strings.TrimSpace(line), "@ ")
			f := strings.Fields(word)
			switch {
			case len(f) == 0:
			case f[0] == "started":
				boot.Stop()
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
					break
				}
				// At a moment that nobody chose.
				cut = time.AfterFunc(time.Duration(rng.IntN(5000))*time.Millisecond, end)
			case f[0] == "runs":
				if runs++; n == *cuts {
					end() // what was asked for runs, after all that
				}
			case f[0] == "ack" && len(f) == 3:
				gen, err := strconv.ParseUint(f[2], 10, 64)
				if err != nil {
					t.Fatalf("%q", line)
				}
				acked[f[1]] = max(acked[f[1]], gen)
				here++
			case f[0] == "failed":
				failed = word
				end()
			}
		}
		watchdog.Stop()
		boot.Stop()
		if cut != nil {
			cut.Stop()
		}
		err = cmd.Wait()
		total += here
		if failed == "" && err != nil && !ours.Load() && died < 3 { // a guest that powers off ends it without an error
			// The emulator itself ended, or its machine did not come so far that the roles were started: the power is cut all the same, and once more than
			// was asked for.
			died++
			text, _ := os.ReadFile(console)
			t.Logf("REPORT: in life %d the emulator ended by itself, or the machine hung before the roles were started (%t): %v\n%s\n%s", n, hung.Load(), err, said.String(), tail(text, 40))
			n--
			continue
		}
		if failed != "" || !ready || n == *cuts && runs == was {
			text, _ := os.ReadFile(console)
			t.Fatalf("after cut %d the roles do not work, and the guest's last sign of life is %s old: %s; the emulator: %v\n%s\n%s", n, time.Since(heard).Round(time.Second), failed, err, said.String(), tail(text, 1500))
		}
	}
	t.Logf("%d cuts, %d acknowledged writes, %d applications; the instance ran in %d lives", *cuts, total, len(acked), runs)
	if total < *cuts {
		t.Errorf("only %d writes in %d lives: nothing was proven", total, *cuts)
	}
}
