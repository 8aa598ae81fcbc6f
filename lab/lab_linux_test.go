package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
)

// TestMain is also the lab's helper, and a stand-in for the command that makes labs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "lab" {
		cmd := Command()
		cmd.SetArgs(os.Args[2:])
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err := cmd.ExecuteContext(ctx)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testenv.Main(m, testenv.Options{Cgroup: fmt.Sprintf("skerry-lab/*-%d", os.Getpid())}))
}

// options puts a lab into a directory of the test, with a path short enough for sockets.
func options(t *testing.T) Options {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "lab")
	if err == nil {
		err = testenv.Note(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return Options{Dir: filepath.Join(dir, "r"), Data: filepath.Join(dir, "d"), Log: t.Logf}
}

// topology gives a name that no other run of the tests uses.
func topology(t *testing.T, text string) Topology {
	t.Helper()
	text = strings.Replace(text, "NAME", fmt.Sprintf("t%04x-%d", rand.N(0x10000), os.Getpid()), 1)
	return parse(t, text)
}

func bring(t *testing.T, text string, o Options) *Lab {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	top := topology(t, text)
	for i := range top.Hosts {
		if h := &top.Hosts[i]; h.Role == RoleWorker && !slices.Contains(h.Args, "--wireguard") {
			h.Args = append([]string{"--wireguard", "off"}, h.Args...) // it is the datapath that is looked at, on every kernel
		}
	}
	l, err := Up(ctx, top, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 { // the second finds nothing
			if err := Down(context.Background(), l.Topology.Name, o); err != nil {
				t.Error(err)
			}
		}
		clean(t, l.Topology.Name, o)
	})
	return l
}

// clean reports what a lab has left.
func clean(t *testing.T, name string, o Options) {
	t.Helper()
	var left []string
	left = append(left, testenv.Mounts(filepath.Join(o.Dir, name))...)
	left = append(left, testenv.Cgroups("skerry-lab/"+name)...)
	for _, p := range (belongs{cgroup: "/skerry-lab/" + name}).processes() {
		left = append(left, fmt.Sprint("process ", p.PID))
	}
	for _, d := range []string{filepath.Join(o.Dir, name), filepath.Join(o.Data, name)} {
		if _, err := os.Lstat(d); err == nil {
			left = append(left, d)
		}
	}
	out, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range out {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(name)) {
			left = append(left, "process "+string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		}
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// echo answers datagrams on port 7 of a host.
func echo(t *testing.T, l *Lab, host string) {
	t.Helper()
	var c net.PacketConn
	if err := l.In(host, func() (err error) { c, err = net.ListenPacket("udp4", ":7"); return err }); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(b[:n], from)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
}

// pings sends datagrams and gives how many came back in time, and the shortest round trip.
func pings(t *testing.T, l *Lab, from, to string, n int, patience time.Duration) (back int, best time.Duration) {
	t.Helper()
	var c net.Conn
	err := l.In(from, func() (err error) {
		c, err = net.Dial("udp4", net.JoinHostPort(l.Topology.Host(to).Address, "7"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := make([]time.Time, n)
	for i := range n {
		sent[i] = time.Now()
		if _, err := c.Write([]byte{byte(i)}); err != nil {
			continue // a port that is closed shows here
		}
	}
	best = time.Hour
	seen := map[byte]bool{}
	c.SetReadDeadline(time.Now().Add(patience))
	for b := make([]byte, 10); len(seen) < n; {
		if _, err := c.Read(b); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			continue
		}
		seen[b[0]] = true
		best = min(best, time.Since(sent[b[0]]))
	}
	return len(seen), best
}

// answers sends datagrams and counts all that comes back, until there are so many.
func answers(t *testing.T, l *Lab, from, to string, send, most int) (n int) {
	t.Helper()
	var c net.Conn
	if err := l.In(from, func() (err error) {
		c, err = net.Dial("udp4", net.JoinHostPort(l.Topology.Host(to).Address, "7"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range send {
		if _, err := c.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for b := make([]byte, 10); n < most; n++ {
		if _, err := c.Read(b); err != nil {
			break
		}
	}
	return n
}

const hosts = `
name: NAME
hosts: [{name: a}, {name: b}, {name: c}]
links: [{between: [a, b], delay: 30ms, jitter: 1ms}]
`

func TestNetwork(t *testing.T) {
	l := bring(t, hosts, options(t))
	ctx := t.Context()
	echo(t, l, "b")
	echo(t, l, "c")
	if n, rtt := pings(t, l, "a", "b", 20, 10*time.Second); n != 20 || rtt < 58*time.Millisecond {
		t.Errorf("%d of 20 came back, the first after %s of 60ms less jitter", n, rtt)
	}
	if n, rtt := pings(t, l, "a", "c", 20, 10*time.Second); n != 20 || rtt > time.Second {
		t.Errorf("%d of 20 came back, the first after %s", n, rtt)
	}

	half, zero := Share(0.5), time.Duration(0)
	if err := l.SetLink(ctx, []string{"a", "b"}, LinkChange{Delay: &zero, Jitter: &zero, Loss: &half}); err != nil {
		t.Fatal(err)
	}
	if n, _ := pings(t, l, "a", "b", 200, time.Second); n == 0 || n == 200 {
		t.Errorf("%d of 200 came back in spite of a loss of a half each way", n)
	}
	st, err := l.Status(ctx)
	if err != nil || st.Packets == nil || st.Packets.Lost == 0 || !st.Whole {
		t.Errorf("%+v %v", st, err)
	}
	none, all, slow := Share(0), Share(1), Rate(100e3)
	if err := l.SetLink(ctx, []string{"a", "b"}, LinkChange{Loss: &none, Duplicate: &all, Reorder: &half}); err != nil {
		t.Fatal(err)
	}
	if n := answers(t, l, "a", "b", 20, 80); n != 80 {
		t.Errorf("%d of 80 answers came to 20 datagrams, each of which is doubled on each way", n)
	}
	if err := l.SetLink(ctx, []string{"a", "b"}, LinkChange{Duplicate: &none, Reorder: &none}); err != nil {
		t.Fatal(err)
	}

	if err := l.Partition(ctx, "a", "c", false); err != nil {
		t.Fatal(err)
	}
	if n, _ := pings(t, l, "a", "c", 5, 300*time.Millisecond); n != 0 {
		t.Errorf("%d came through a partition", n)
	}
	if n, _ := pings(t, l, "b", "c", 5, 10*time.Second); n != 5 {
		t.Errorf("%d of 5 came back beside a partition", n)
	}
	// One way is open: what a sends arrives, the answer does not.
	if err := l.Heal(ctx, "a", "c", true); err != nil {
		t.Fatal(err)
	}
	if n, _ := pings(t, l, "a", "c", 5, 300*time.Millisecond); n != 0 {
		t.Errorf("%d came back through half a partition", n)
	}
	if err := l.Heal(ctx, "a", "c", false); err != nil {
		t.Fatal(err)
	}
	if n, _ := pings(t, l, "a", "c", 5, 10*time.Second); n != 5 {
		t.Errorf("%d of 5 came back after healing", n)
	}

	if err := l.SetLink(ctx, []string{"a"}, LinkChange{Rate: &slow}); err != nil {
		t.Fatal(err)
	}
	var c net.Conn
	var ln net.Listener
	if err := l.In("c", func() (err error) { ln, err = net.Listen("tcp4", ":80"); return err }); err != nil {
		t.Fatal(err)
	}
	got := make(chan time.Duration, 1)
	begin := time.Now()
	go func() {
		in, err := ln.Accept()
		if err == nil {
			io.Copy(io.Discard, in)
			in.Close()
		}
		got <- time.Since(begin)
	}()
	if err := l.In("a", func() (err error) { c, err = net.Dial("tcp4", l.Topology.Host("c").Address+":80"); return err }); err != nil {
		t.Fatal(err)
	}
	c.Write(make([]byte, 64<<10)) // half a megabit; the bucket holds a quarter of it
	c.Close()
	if took := <-got; took < time.Second {
		t.Errorf("64 KiB took %s at 100 kbit/s", took)
	}
	ln.Close()
}

// A host that is given a tenth of a processor is held back in what it computes, and no more so when it is given all again.
func TestSetCPU(t *testing.T) {
	l := bring(t, hosts, options(t))
	if err := l.SetCPU("a", 100); err != nil {
		t.Fatal(err)
	}
	n := throttled(t, l)
	if err := l.SetCPU("a", 0); err != nil {
		t.Fatal(err)
	}
	if after := throttled(t, l); n == 0 || after > n+1 { // a period may have been under way
		t.Errorf("held back %d times, then %d", n, after)
	}
	for host, cpu := range map[string]skerry.MilliCPU{"nobody": 500, "a": -5} {
		if err := l.SetCPU(host, cpu); err == nil {
			t.Errorf("%s was given %s", host, cpu)
		}
	}
}

// A host has no more than its limits, for all that runs in it together, and what it is given for a while ends with that.
func TestLimits(t *testing.T) {
	l := bring(t, "name: NAME\nhosts: [{name: a, limits: {cpu: 100m, memory: 48Mi}}, {name: b}]\n", options(t))
	if err := errors.Join(l.SetCPU("a", 200), l.SetCPU("a", 0)); err != nil {
		t.Fatal(err)
	}
	if n := throttled(t, l); n == 0 {
		t.Error("it was never held back")
	}
	for host, want := range map[string]int{"a": 137, "b": 0} {
		// tail keeps all of a line that does not end; the shell is what the kernel leaves alone.
		cmd := exec.Command("sh", "-c", "head -c 96M /dev/zero | tail >/dev/null")
		if status, err := l.Exec(t.Context(), host, cmd); err != nil || status != want {
			t.Errorf("%s: %d, %v", host, status, err)
		}
	}
}

// throttled has host a compute, and tells how often it was held back until now.
func throttled(t *testing.T, l *Lab) (n int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	if status, err := l.Exec(t.Context(), "a", cmd); err != nil || status != 0 {
		t.Fatal(status, err)
	}
	for _, dir := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
		files, _ := filepath.Glob(filepath.Join(dir, l.cgroupOf("a"), "cpu.stat"))
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if _, after, ok := strings.Cut(string(text), "nr_throttled "); ok {
				fmt.Sscan(after, &n)
			}
		}
	}
	return n
}

func TestExec(t *testing.T) {
	l := bring(t, hosts, options(t))
	for _, c := range []struct {
		script, out string
		status      int
	}{
		{"hostname; ls /sys/class/net", "a\neth0\nlo\n", 0},
		{"exit 7", "", 7},
		{"kill -9 $$", "", 137},
		{"cat", "in", 0},
		{"test -d /sys/fs/cgroup && grep -c skerry-lab/" + l.Topology.Name + "/a/exec /proc/self/cgroup >/dev/null && grep -q 10.88.0.3 /etc/hosts && echo yes", "yes\n", 0},
	} {
		var out bytes.Buffer
		cmd := exec.Command("sh", "-c", c.script)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("in"), &out, &out
		status, err := l.Exec(t.Context(), "a", cmd)
		if err != nil || status != c.status || out.String() != c.out {
			t.Errorf("%s: %d %q %v", c.script, status, out.String(), err)
		}
	}
	if _, err := l.Exec(t.Context(), "nobody", exec.Command("true")); skerry.AsError(err).Code != skerry.CodeNotFound {
		t.Error(err)
	}
	if _, err := l.Exec(t.Context(), "a", exec.Command("/no/such/program")); err == nil {
		t.Error("a program that is not there ran")
	}
}

func TestPowerOff(t *testing.T) {
	l := bring(t, hosts, options(t))
	ctx := t.Context()
	echo(t, l, "b")
	for _, script := range []string{"sleep 1000 & sleep 1000", "trap '' TERM; unshare -nm sleep 1000"} {
		cmd := exec.Command("sh", "-c", script)
		go l.Exec(context.Background(), "a", cmd)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		st, err := l.Status(ctx)
		if err != nil || time.Now().After(deadline) {
			t.Fatal(st, err)
		}
		if st.Hosts[0].Processes >= 5 {
			break
		}
	}
	if err := l.PowerOff(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	st, err := l.Status(ctx)
	if err != nil || st.Hosts[0].On || st.Hosts[0].Processes != 0 || !st.Hosts[1].On {
		t.Errorf("%+v %v", st, err)
	}
	if _, err := l.Exec(ctx, "a", exec.Command("true")); skerry.AsError(err).Code != skerry.CodeUnavailable {
		t.Error(err)
	}
	if err := l.PowerOff(ctx, "a"); err != nil {
		t.Error("a second time:", err)
	}
	if err := l.Start(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if n, rtt := pings(t, l, "a", "b", 5, 10*time.Second); n != 5 || rtt < 50*time.Millisecond {
		t.Error(n, rtt)
	}
}

func TestUpRefusesAndCleansUp(t *testing.T) {
	o := options(t)
	l := bring(t, "name: NAME\nhosts: [{name: a}]", o)
	if _, err := Up(t.Context(), l.Topology, o); skerry.AsError(err).Code != skerry.CodeConflict {
		t.Error(err)
	}
	if names, err := List(o); err != nil || !slices.Equal(names, []string{l.Topology.Name}) {
		t.Error(names, err)
	}
	// A role that does not start takes the lab with it, and its last words are told.
	bad := o
	bad.Binary = "/bin/echo"
	top := topology(t, "name: NAME\nhosts: [{name: r, role: root}]")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Up(ctx, top, bad); err == nil || !strings.Contains(err.Error(), "root --data") {
		t.Error(err)
	}
	clean(t, top.Name, o)
	if _, err := Open(top.Name, o); skerry.AsError(err).Code != skerry.CodeNotFound {
		t.Error(err)
	}
	if err := Down(t.Context(), "../x", o); skerry.AsError(err).Code != skerry.CodeInvalid {
		t.Error(err)
	}
}

// TestDownAfterKill kills the command that makes a lab at any moment; what it made is removed by the lab's name.
func TestDownAfterKill(t *testing.T) {
	o := options(t)
	file := filepath.Join(t.TempDir(), "lab.yaml")
	for i := range 25 {
		name := fmt.Sprintf("k%d-%04x-%d", i, rand.N(0x10000), os.Getpid())
		text := strings.Replace(hosts, "NAME", name, 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe", "lab", "up", file, "--lab-dir", o.Dir, "--lab-data", o.Data)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 10 * time.Millisecond) // the moment is the point, not the time
		cmd.Process.Kill()
		cmd.Wait()
		if err := Down(t.Context(), name, o); err != nil {
			t.Fatal(err)
		}
		clean(t, name, o)
	}
}
