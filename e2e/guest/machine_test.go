//go:build linux && amd64

package guest

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a command in the guest may take; an emulated processor on a busy host is slow.
const patience = 5 * time.Minute

// machine is a running guest, which has no network but what the emulator answers itself, unless its hardware says so, or a container.
type machine struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	answers   chan string
	console   string
	contained bool
	dead      error // why nothing more can be asked
}

// hardware is what the emulator makes.
type hardware struct {
	machine, threads, cpus string
	cpu, memory            string
	cmdline                string // more for the kernel
	outside                bool   // it reaches the host's loopback, at 10.0.2.2
	flash                  string // the size of a third disk, on which a write takes 20 ms
}

// plain is enough for Skerry and what it runs in containers. One thread has to do for two processors: with one for each, QEMU 7.2 may lose
// a store into code that it is just translating for the other. Linux patches itself in that way, such as when a cgroup is the first to get
// a limit of the processor. About once in ninety boots one processor then took the breakpoint of a patch for ever, with interrupts off and
// the lock of its run queue held, and the other waited for that lock: nothing more came from the guest. A guest that only sets and removes
// such a limit stood still after 78 and after 245 times; with one thread it had not after five thousand. The kernel measures the rate of
// its clock by an HPET: by an older timer, on a busy host, it was found to be a fourteenth of what it is.
var plain = hardware{machine: "q35,pit=off", threads: "single", cpus: "2", cpu: "Nehalem", memory: "1024"}

func emulator(hw hardware, args ...string) *exec.Cmd {
	return exec.Command("qemu-system-x86_64", append([]string{"-M", hw.machine, "-accel", "tcg,thread=" + hw.threads, "-cpu", hw.cpu, "-smp", hw.cpus,
		"-m", hw.memory, "-nodefaults", "-display", "none"}, args...)...)
}

// boot starts a guest from an image, which stays as it is, with a second disk that holds a directory.
func boot(t *testing.T, hw hardware, image, payload string) *machine {
	t.Helper()
	dir := t.TempDir()
	disk := filepath.Join(dir, "payload.ext4")
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-d", payload, disk, "384M").CombinedOutput(); err != nil {
		t.Fatalf("make the disk of what is tested: %v\n%s", err, out)
	}
	m := &machine{console: filepath.Join(dir, "console"), answers: make(chan string)}
	if *speed {
		hw.threads = "multi" // it is the sum of what two processors can do
	}
	restrict, more := "on", []string(nil)
	if hw.outside {
		restrict = "off"
	}
	if hw.flash != "" {
		flash := filepath.Join(dir, "flash.ext4")
		if out, err := exec.Command("mkfs.ext4", "-q", "-F", flash, hw.flash).CombinedOutput(); err != nil {
			t.Fatalf("make a small disk: %v\n%s", err, out)
		}
		more = []string{"-drive", "file=" + flash + ",format=raw,if=none,id=flash,throttling.iops-write=50",
			"-device", "nvme,drive=flash,serial=flash"}
	}
	m.cmd = emulator(hw, append([]string{"-snapshot", "-kernel", kernelOf(t, image),
		"-append", "console=ttyS0 root=/dev/nvme0n1 rw rootfstype=ext4 panic=0 mitigations=off tsc=reliable quiet " + hw.cmdline,
		"-drive", "file=" + filepath.Join(image, "root.ext4") + ",format=raw,if=none,id=root", "-device", "nvme,drive=root,serial=root",
		"-drive", "file=" + disk + ",format=raw,if=none,id=payload", "-device", "nvme,drive=payload,serial=payload",
		"-netdev", "user,id=net,restrict=" + restrict, "-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci",
		"-serial", "file:" + m.console, "-serial", "stdio"}, more...)...)
	m.cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	m.cmd.Stderr = &said
	var err error
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go m.listen(out)
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(m.console)
			t.Logf("the guest's console:\n%s\n%s", tail(text, 40), said.String())
		}
		_ = m.cmd.Process.Kill()
		for range m.answers { // until the reader has seen the end
		}
		_ = m.cmd.Wait()
	})
	if answer, err := m.next(t.Context()); err != nil || answer != "ready" {
		t.Fatalf("the guest did not come up: %q, %v", answer, err)
	}
	return m
}

// listen passes answers on until the guest ends; what the line carries besides is noise.
func (m *machine) listen(out io.Reader) {
	defer close(m.answers)
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if _, answer, ok := strings.Cut(strings.TrimSpace(line), "@ "); ok {
			m.answers <- answer
		}
	}
}

// mountPayload is the beginning of a script that has /payload mounted, as it always is in a container.
func (m *machine) mountPayload() string {
	if m.contained {
		return ""
	}
	return "mkdir -p /payload && mount -o ro /dev/nvme1n1 /payload && "
}

func (m *machine) next(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case answer, ok := <-m.answers:
		if !ok {
			m.dead = errors.New("the guest has ended")
		}
		return answer, m.dead
	case <-ctx.Done():
		// A later answer would be taken for another's.
		m.dead = fmt.Errorf("the guest did not answer: %w", ctx.Err())
		return "", m.dead
	}
}

// result is how a script ended.
type result struct {
	status   int
	out, err string
}

// restart reboots the guest. The agent may end before it has answered.
func (m *machine) restart(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(m.in, base64.StdEncoding.EncodeToString([]byte("systemctl --no-block reboot"))+"\n"); err != nil {
		t.Fatal(err)
	}
	for {
		answer, err := m.next(t.Context())
		if err != nil {
			t.Fatalf("the guest did not come up again: %v", err)
		}
		if answer == "ready" {
			return
		}
	}
}

// run runs a shell script in the guest.
func (m *machine) run(t *testing.T, script string) result {
	t.Helper()
	if m.dead != nil {
		t.Fatal(m.dead)
	}
	began := time.Now()
	if _, err := io.WriteString(m.in, base64.StdEncoding.EncodeToString([]byte(script))+"\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := m.next(t.Context())
	if err != nil {
		t.Fatalf("%s\n%v", script, err)
	}
	f := strings.Fields(answer)
	if len(f) != 3 {
		t.Fatalf("the guest answered %q", answer)
	}
	r := result{}
	decode := func(s string) string {
		data, e := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "."))
		err = errors.Join(err, e)
		return string(data)
	}
	r.status, err = strconv.Atoi(f[0])
	r.out, r.err = decode(f[1]), decode(f[2])
	if err != nil {
		t.Fatalf("the guest answered %q: %v", answer, err)
	}
	t.Logf("%5.1fs $ %s\n%s", time.Since(began).Seconds(), script, cut(strings.TrimSpace(r.out+r.err)))
	return r
}

// patiently runs a script that may take longer than patience, as long as it prints something every so often.
func (m *machine) patiently(t *testing.T, silence time.Duration, script string) result {
	t.Helper()
	m.must(t, "mkdir -p /run/long && cd /run/long && rm -f status && cat >script <<'END'\n"+script+"\nEND\n"+
		"setsid sh -c 'sh script >out 2>err; echo $? >status.new; mv status.new status' >/dev/null 2>&1 </dev/null &")
	for size, grew := "", time.Now(); ; {
		r := m.run(t, "cd /run/long && for i in $(seq 60); do [ -e status ] && break; sleep 1; done; stat -c %s out err; cat status 2>/dev/null")
		sizes := strings.Fields(r.out)
		if len(sizes) == 3 {
			status, err := strconv.Atoi(sizes[2])
			if err != nil {
				t.Fatalf("the status of %s is %q", script, sizes[2])
			}
			return result{status: status, out: m.must(t, "cat /run/long/out"), err: m.must(t, "cat /run/long/err")}
		}
		if r.out != size {
			size, grew = r.out, time.Now()
		} else if time.Since(grew) > silence {
			t.Fatalf("%s stands still; the last of what it printed:\n%s", script, m.must(t, "tail -n 30 /run/long/out /run/long/err"))
		}
	}
}

// cut shortens what is only for the log.
func cut(s string) string {
	const most = 3000
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// must runs a script that has to succeed, and gives its output without the last newline.
func (m *machine) must(t *testing.T, script string) string {
	t.Helper()
	r := m.run(t, script)
	if r.status != 0 {
		t.Fatalf("%s: status %d\n%s%s", script, r.status, r.out, r.err)
	}
	return strings.TrimSpace(r.out)
}

// await runs a script until it succeeds, in the guest, and gives its output. To ask takes an emulated processor a second or two, which
// what is waited for does not get: asked every two seconds, a starting agent had two thirds of it. In a container it takes milliseconds.
func (m *machine) await(t *testing.T, script string) string {
	t.Helper()
	pause, rounds := 4.0, 40
	if m.contained {
		pause, rounds = 0.2, 800
	}
	return m.must(t, fmt.Sprintf("for i in $(seq %d); do out=$(%s) && { echo \"$out\"; exit; }; sleep %g; done; echo \"$out\"; exit 1",
		rounds, script, pause))
}

// crash is a script that kills a unit, or its main process alone by the flag, and waits until the manager has started it again.
func crash(unit, whom string) string {
	return fmt.Sprintf("n=$(systemctl show -P NRestarts %[1]s); systemctl kill -s KILL %[2]s %[1]s; "+
		"until [ $(systemctl show -P NRestarts %[1]s) -gt $n ] && systemctl -q is-active %[1]s; do sleep 2; done", unit, whom)
}
