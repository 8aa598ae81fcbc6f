//go:build linux && amd64

package guest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/wire"
)

// board is a machine with 128 MiB of memory whose worker has a disk of 64 MiB, on which nothing is written faster than in 20 ms.
var board = hardware{machine: plain.machine, threads: plain.threads, cpus: "1", cpu: plain.cpu, memory: "128", outside: true, flash: "64M"}

// TestSmallBoard has the agent alone run five containers on a board, through an update, a crash of the agent and a reboot. Root and
// cluster are on the host.
func TestSmallBoard(t *testing.T) {
	testenv.Long(t, "cmd/skerry-worker, worker TestDiskIsWatchedForContainers")
	s := newHostSite(t)
	dir := t.TempDir()
	testenv.Build(t, filepath.Join(dir, "skerry-worker"), "skerry.dev/skerry/cmd/skerry-worker")
	b := &smallBoard{machine: boot(t, board, image(t), dir), site: s}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"joins", b.joins}, {"five containers", b.five}, {"update", b.update}, {"agent is killed", b.killed},
		{"at rest", b.rests}, {"reboot", b.reboots}, {"deleted", b.deleted},
	} {
		if !t.Run(step.name, step.run) {
			if b.dead == nil {
				b.run(t, "free -k; df -k /var/lib/skerry; dmesg | tail -5; systemctl --failed --no-pager; "+
					"journalctl -b --no-pager -u worker -n 40 | cut -c1-300")
			}
			return
		}
	}
}

// hostSite is a root and a cluster, as processes of the host.
type hostSite struct {
	dir, program string
	link         string // the cluster's port for workers
}

func newHostSite(t *testing.T) *hostSite {
	t.Helper()
	s := &hostSite{dir: t.TempDir(), program: testenv.Program(t)}
	rootLink, rootAPI, link, clusterAPI := testenv.FreeAddr(t), testenv.FreeAddr(t), testenv.FreeAddr(t), testenv.FreeAddr(t)
	_, s.link, _ = net.SplitHostPort(link)
	s.start(t, "root", "--data", s.data("root"), "--link", rootLink, "--api", rootAPI)
	s.start(t, "cluster", "--name", "shore", "--data", s.data("cluster"), "--root", rootLink, "--join", s.token(t, "root", "cluster"),
		"--link", link, "--api", clusterAPI, "--relay", "", "--lost-after", "1m")
	s.must(t, "login", "--trust", "-u", "admin", "--password-file", filepath.Join(s.data("root"), "admin-password"), rootAPI)
	return s
}

func (s *hostSite) data(role string) string { return filepath.Join(s.dir, role) }

// start starts a role, which ends with the test.
func (s *hostSite) start(t *testing.T, args ...string) {
	t.Helper()
	log, err := os.Create(s.data(args[0] + ".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(s.program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", args[0], tail(text, 20))
		}
		log.Close()
	})
}

// token waits until a role gives one.
func (s *hostSite) token(t *testing.T, of, role string) string {
	t.Helper()
	var out string
	s.await(t, "a token of the "+of, func() (err error) {
		out, err = s.run("token", "create", "--role", role, "--data", s.data(of))
		return err
	})
	return out
}

func (s *hostSite) run(args ...string) (string, error) {
	cmd := exec.Command(s.program, args...)
	cmd.Env = append(os.Environ(), "SKERRY_CONFIG="+s.data("config"))
	out, err := cmd.Output()
	if e, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%w: %s", err, e.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

func (s *hostSite) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.run(args...)
	if err != nil {
		t.Fatalf("skerry %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// await waits until something succeeds.
func (s *hostSite) await(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Second) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s: %v", what, err)
		}
	}
}

// ready waits until the application has five ready instances of its present version, and no others.
func (s *hostSite) ready(t *testing.T) {
	t.Helper()
	s.await(t, "five ready instances", func() error {
		out, err := s.run("get", "instances", "-o", "json")
		var list struct{ Items []wire.Instance }
		if err == nil {
			err = json.Unmarshal([]byte(out), &list)
		}
		said, ready := "", 0
		for _, i := range list.Items {
			if skerry.HasCondition(i.Conditions, skerry.Ready) && skerry.HasCondition(i.Conditions, skerry.UpToDate) {
				ready++
			}
			said += fmt.Sprintf("%s %s %s %s %+v\n", i.ID, i.State, i.Phase, i.Reason, i.Conditions)
		}
		if err == nil && (ready != 5 || len(list.Items) != 5) {
			err = fmt.Errorf("there are\n%s", said)
		}
		return err
	})
	s.must(t, "wait", "small", "--for", "ready", "--timeout", "5m")
}

// smallBoard is a board that belongs to a site.
type smallBoard struct {
	*machine
	site *hostSite
}

// agent starts the agent, as a unit of its own. It would offer 24 MiB and ask for 64 MiB of free disk, which are for larger machines.
func (b *smallBoard) agent(t *testing.T, more string) {
	t.Helper()
	b.must(t, "systemd-run -q --unit worker --service-type=notify -p TimeoutStartSec=5min -p KillMode=process -p Restart=on-failure "+
		"/root/skerry-worker --name board --data /var/lib/skerry/worker --cluster 10.0.2.2:"+b.site.link+
		" --min-free 4Mi --memory 56Mi "+more)
	b.await(t, "/root/skerry-worker status --data /var/lib/skerry/worker | grep '^Parent: *connected'")
}

func (b *smallBoard) joins(t *testing.T) {
	b.must(t, "mkdir -p /payload /var/lib/skerry && mount -o ro /dev/nvme1n1 /payload && cp /payload/skerry-worker /root/ && "+
		"umount /payload && "+
		"mount -o noatime /dev/nvme2n1 /var/lib/skerry && df -k /var/lib/skerry && free -k")
	b.agent(t, "--join "+b.site.token(t, "cluster", "worker"))
}

// apply has five containers of an image.
func (b *smallBoard) apply(t *testing.T, image string) {
	t.Helper()
	file := b.site.data("small.yaml")
	manifest := `apiVersion: skerry/v1
kind: Application
metadata: {name: small}
spec:
  services:
  - {name: s, runtime: oci, replicas: 5, image: "` + image + `", args: [sleep], resources: {cpu: 20m, memory: 8Mi},
    update: {maxSurge: 0, maxUnavailable: 1}}
`
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	b.site.must(t, "apply", "-f", file, "--no-wait")
	b.site.ready(t)
}

func (b *smallBoard) five(t *testing.T) {
	program := b.site.data("workload")
	testenv.Build(t, program, "skerry.dev/skerry/runtime/runtimetest/workload")
	for _, version := range []string{"1", "2"} {
		b.site.must(t, "image", "build", program, "-t", "board/workload:"+version, "--push")
		f, err := os.OpenFile(program, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("another version")
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.apply(t, "board/workload:1")
	b.well(t)
}

// well looks at what the board has left, and what it had to end.
func (b *smallBoard) well(t *testing.T) {
	t.Helper()
	out := b.must(t, `awk '/^MemAvailable/ {print $2}' /proc/meminfo; df -k --output=used /var/lib/skerry | tail -1
		for p in $(pgrep -f skerry-worker); do cat /proc/$p/smaps_rollup; done | awk '/^Pss:/ {sum += $2} END {print sum}'
		dmesg | grep -c 'Out of memory' || true`)
	t.Logf("KiB of memory available, of the disk used, of the agent and its datapath (PSS); killed for want of memory: %q",
		strings.Fields(out))
	if killed := strings.Fields(out)[3]; killed != "0" {
		t.Errorf("the kernel killed %s processes for want of memory", killed)
	}
}

func (b *smallBoard) update(t *testing.T) {
	b.apply(t, "board/workload:2")
	b.well(t)
}

func (b *smallBoard) killed(t *testing.T) {
	before := b.must(t, "pgrep -x workload | sort")
	if n := len(strings.Fields(before)); n != 5 {
		t.Fatalf("%d containers run, want 5", n)
	}
	b.must(t, crash("worker", "--kill-whom=main"))
	b.await(t, "/root/skerry-worker status --data /var/lib/skerry/worker | grep '^Instances: *5$'")
	b.site.ready(t)
	if after := b.must(t, "pgrep -x workload | sort"); after != before {
		t.Errorf("containers were %q, and are %q after the agent was killed", before, after)
	}
}

// rests tells what is written to the disk while nothing changes.
func (b *smallBoard) rests(t *testing.T) {
	const seconds = 120
	const counters = `sync; awk '$3 == "nvme2n1" {print $8, $10}' /proc/diskstats`
	out := b.must(t, fmt.Sprintf("%s; sleep %d; %[1]s", counters, seconds))
	var n []int
	for _, f := range strings.Fields(out) {
		i, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		n = append(n, i)
	}
	if len(n) != 4 {
		t.Fatalf("counters: %q", out)
	}
	t.Logf("in %d s at rest: %d writes, %d KiB", seconds, n[2]-n[0], (n[3]-n[1])/2)
}

func (b *smallBoard) reboots(t *testing.T) {
	b.restart(t)
	b.must(t, "mount -o noatime /dev/nvme2n1 /var/lib/skerry")
	b.agent(t, "")
	b.await(t, "/root/skerry-worker status --data /var/lib/skerry/worker | grep '^Instances: *5$'")
	b.site.ready(t)
	b.await(t, "test $(pgrep -x workload | wc -l) = 5")
	b.well(t)
}

func (b *smallBoard) deleted(t *testing.T) {
	b.site.must(t, "delete", "app", "small", "--wait")
	b.await(t, "! pgrep -x workload")
	b.well(t)
}
