//go:build linux

// Powercut is the first process of a guest whose power is cut: it starts all three roles on the guest's second disk, writes as
// users of the root and of the site do, has an instance run, and tells on the second serial line what was acknowledged.
//
//	> @ beat SECONDS              each second: the machine lives, whatever its roles do
//	> @ started                   the roles' process is there: what hangs before is the machine, or its kernel
//	> @ have WHERE/NAME GEN ...   at the start: every application that the stores of root and cluster have, with its generation
//	> @ ready
//	> @ runs                      there is a process of the instance, and the root knows of it
//	> @ ack WHERE/NAME GEN        for ever: one of a few applications was applied
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

const (
	writer = 2 // at a time, at each tier
	names  = 12
)

// tiers that users write to.
var tiers = []struct{ name, data, server string }{{"root", "/data/root", "https://127.0.0.1:7480"}, {"cluster", "/data/cluster", "https://127.0.0.1:7481"}}

func main() {
	if os.Getpid() != 1 { // the program of the instance
		for {
			time.Sleep(time.Hour)
		}
	}
	err := unix.Mount("dev", "/dev", "devtmpfs", 0, "")
	var out *os.File
	if err == nil {
		out, err = os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	}
	if err == nil {
		go beat(out)
		err = run(out)
		fmt.Fprintln(out, "@ failed", err)
	}
	fmt.Println("powercut:", err)
	time.Sleep(time.Second) // until that is on the line
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// beat tells a guest that stands still from roles that do: it needs nothing but a processor, its clock and the line.
func beat(out *os.File) {
	for began := time.Now(); ; time.Sleep(time.Second) {
		fmt.Fprintf(out, "@ beat %d\n", int(time.Since(began).Seconds()))
	}
}

func mount() error {
	for _, m := range []struct{ what, where, kind string }{{"proc", "/proc", "proc"}, {"sys", "/sys", "sysfs"}, {"cgroup", "/sys/fs/cgroup", "cgroup2"}, {"tmp", "/tmp", "tmpfs"}, {"run", "/run", "tmpfs"}, {"/dev/nvme1n1", "/data", "ext4"}} {
		if err := unix.Mount(m.what, m.where, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

func run(out *os.File) error {
	if err := mount(); err != nil {
		return err
	}
	for _, kv := range []string{"HOME=/tmp", "PATH=/bin"} {
		k, v, _ := strings.Cut(kv, "=")
		os.Setenv(k, v)
	}
	cmd := exec.Command("/skerry", "up", "--data", "/data", "--name", "w1", "--root-link", "127.0.0.1:7443", "--api", "127.0.0.1:7480", "--cluster-link", "127.0.0.1:7444",
		"--cluster-api", "127.0.0.1:7481", "--http", "", "--no-network", "--add-context", "")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Fprintln(out, "@ started")
	// Should they hang, the console tells where: their own stacks, then the kernel's for what no signal reaches.
	stacks := time.AfterFunc(4*time.Minute, func() { // a busy host may need three
		_ = cmd.Process.Signal(unix.SIGQUIT)
		time.Sleep(10 * time.Second)
		for _, key := range []string{"9", "m", "l", "w"} { // everything is shown; memory, processors, and who waits
			_ = os.WriteFile("/proc/sysrq-trigger", []byte(key), 0)
		}
	})
	defer stacks.Stop()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx := context.Background()
	acks := make(chan string, 2*writer)
	have := "@ have"
	var start []func()
	for _, tier := range tiers {
		var c *api.Client
		for c == nil {
			select {
			case err := <-ended:
				return fmt.Errorf("the roles ended: %w", err)
			case <-time.After(50 * time.Millisecond):
			}
			c = login(ctx, tier.data, tier.server)
		}
		list, err := c.Apps(ctx, "default")
		if err != nil {
			return err
		}
		for _, a := range list {
			have += fmt.Sprintf(" %s/%s %d", tier.name, a.Key.Name, a.Gen)
		}
		if tier.name == "root" {
			if _, err := c.Apply(ctx, []byte(manifest("stay", 0, 1)), api.ApplyOptions{}); err != nil {
				return err
			}
			start = append(start, func() {
				go func() {
					awaitRunning(ctx, c)
					stacks.Stop()
					acks <- "@ runs"
				}()
			})
		}
		for w := range writer {
			start = append(start, func() {
				go func() {
					for i := w; ; i += writer {
						name := fmt.Sprintf("%s%d", tier.name, i%names)
						res, err := c.Apply(ctx, []byte(manifest(name, 1000, time.Now().UnixNano())), api.ApplyOptions{Register: true})
						if err != nil {
							acks <- fmt.Sprintf("@ failed %s: %v", name, err)
							return
						}
						acks <- fmt.Sprintf("@ ack %s/%s %d", tier.name, name, res.Gen)
					}
				}()
			})
		}
	}
	for _, f := range start {
		f()
	}
	fmt.Fprintf(out, "%s\n@ ready\n", have)
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the roles ended: %w", err)
		case a := <-acks:
			if _, err := fmt.Fprintln(out, a); err != nil {
				return err
			}
		}
	}
}

// manifest is an application of one service that stays. One that asks for more processors than there are is placed nowhere: it costs the
// stores what another does, and the guest's two emulated processors nothing.
func manifest(name string, processors int, n int64) string {
	return fmt.Sprintf(`{apiVersion: skerry/v1, kind: Application, metadata: {name: %s}, spec: {services: [{name: web, runtime: native,
  command: [/sbin/init], env: {N: "%d"}, resources: {cpu: %d}, terminationGrace: 0s}]}}`, name, n, processors)
}

// awaitRunning returns when the instance runs: there is a process, and the root knows of it. Who started the guest has patience only for so long.
func awaitRunning(ctx context.Context, c *api.Client) {
	for ; ; time.Sleep(100 * time.Millisecond) {
		list, err := c.Instances(ctx, api.InstanceFilter{Namespace: "default", App: "stay"})
		if err == nil && len(list) == 1 && processes() == 1 && list[0].State == skerry.Running && skerry.HasCondition(list[0].Conditions, skerry.Reachable) {
			return
		}
	}
}

// processes counts those of instances.
func processes() (n int) {
	list, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range list {
		if to, err := os.Readlink(exe); err == nil && to == "/sbin/init" && exe != "/proc/1/exe" {
			n++
		}
	}
	return n
}

// login gives the first admin's client, or nil while the role does not answer.
func login(ctx context.Context, data, server string) *api.Client {
	password, err := os.ReadFile(filepath.Join(data, "admin-password"))
	if err != nil {
		return nil
	}
	pin, err := api.FetchPin(ctx, server)
	if err != nil {
		return nil
	}
	c, err := api.NewClient(api.ClientOptions{Server: server, Pin: pin})
	if err != nil {
		return nil
	}
	if _, err := c.Login(ctx, "admin", strings.TrimSpace(string(password))); err != nil {
		c.Close()
		return nil
	}
	return c
}
