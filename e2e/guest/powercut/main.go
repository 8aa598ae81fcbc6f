//go:build linux

// Powercut is the first process of a guest whose power is cut: it starts a root on the guest's second disk, writes as a user
// does, and tells on the second serial line what was acknowledged.
//
//	> @ have NAME GEN ...   at the start: every application that the store has, with its generation
//	> @ ready
//	> @ ack NAME GEN        for ever: one of a few applications was applied
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

	"skerry.dev/skerry/api"
)

const (
	data   = "/data/root"
	server = "https://127.0.0.1:7480"
	writer = 3 // at a time
	names  = 12
)

func main() {
	err := unix.Mount("dev", "/dev", "devtmpfs", 0, "")
	var out *os.File
	if err == nil {
		out, err = os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	}
	if err == nil {
		err = run(out)
		fmt.Fprintln(out, "@ failed", err)
	}
	fmt.Println("powercut:", err)
	time.Sleep(time.Second) // until that is on the line
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func mount() error {
	for _, m := range []struct{ what, where, kind string }{{"proc", "/proc", "proc"}, {"sys", "/sys", "sysfs"}, {"tmp", "/tmp", "tmpfs"}, {"/dev/nvme1n1", "/data", "ext4"}} {
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
	for _, kv := range []string{"HOME=/tmp", "PATH=/"} {
		k, v, _ := strings.Cut(kv, "=")
		os.Setenv(k, v)
	}
	cmd := exec.Command("/skerry", "root", "--data", data, "--link", "127.0.0.1:7443", "--api", "127.0.0.1:7480")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx := context.Background()
	var c *api.Client
	for c == nil {
		select {
		case err := <-ended:
			return fmt.Errorf("the root ended: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
		c = login(ctx)
	}
	list, err := c.Apps(ctx, "default")
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, a := range list {
		fmt.Fprintf(&text, " %s %d", a.Key.Name, a.Gen)
	}
	fmt.Fprintf(out, "@ have%s\n@ ready\n", text.String())
	acks := make(chan string, writer)
	for w := range writer {
		go func() {
			for i := w; ; i += writer {
				name := fmt.Sprintf("app%d", i%names)
				manifest := fmt.Sprintf(`{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"web","runtime":"native","command":["/bin/true"],"env":{"N":"%d-%d"}}]}}`, name, i, time.Now().UnixNano())
				res, err := c.Apply(ctx, []byte(manifest), api.ApplyOptions{Register: true})
				if err != nil {
					acks <- fmt.Sprintf("@ failed %s: %v", name, err)
					return
				}
				acks <- fmt.Sprintf("@ ack %s %d", name, res.Gen)
			}
		}()
	}
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the root ended: %w", err)
		case a := <-acks:
			if _, err := fmt.Fprintln(out, a); err != nil {
				return err
			}
		}
	}
}

// login gives the first admin's client, or nil while the root does not answer.
func login(ctx context.Context) *api.Client {
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
