//go:build linux

package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// contactEvery is how often the moment of the last contact is written down, while something runs that depends on it.
const contactEvery = time.Second

// contactFile remembers, across a restart of the agent, when the cluster was heard last. It lies in memory (the run
// directory ends with the machine's uptime), and counts by a clock that nobody can set.
type contactFile struct {
	path string
	boot string
}

func newContactFile(dir string) (*contactFile, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("this boot's id: %w", err)
	}
	return &contactFile{filepath.Join(dir, "contact"), strings.TrimSpace(string(boot))}, nil
}

// uptime is the time since the machine was switched on, sleep included.
func uptime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano()), err
}

// write keeps that the cluster was heard so long ago.
func (f *contactFile) write(ago time.Duration) error {
	up, err := uptime()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	tmp := f.path + ".new"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%s %d\n", f.boot, up-ago), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, f.path)
}

// read gives how long ago the cluster was heard by an earlier life of the agent; ok is false where that is not known, or was
// before the machine started.
func (f *contactFile) read() (ago time.Duration, ok bool) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return 0, false
	}
	var boot string
	var at int64
	if n, err := fmt.Sscanf(string(data), "%s %d", &boot, &at); n != 2 || err != nil || boot != f.boot {
		return 0, false
	}
	up, err := uptime()
	if err != nil || time.Duration(at) > up || at < 0 {
		return 0, false
	}
	return up - time.Duration(at), true
}

// keepContact writes the moment of the last contact down until ctx ends, while the core wants it.
func (s *Server) keepContact(ctx context.Context) {
	if s.contact == nil {
		return
	}
	t := time.NewTicker(contactEvery)
	defer t.Stop()
	for {
		var on bool
		select {
		case <-ctx.Done():
			return
		case on = <-s.contactWanted:
		}
		for on {
			select {
			case <-ctx.Done():
				return
			case on = <-s.contactWanted:
			case <-t.C:
				if up := s.up.Load(); up != nil {
					if ago, ok := up.Heard(); ok {
						if err := s.contact.write(ago); err != nil {
							s.opt.Log.Error("keep the moment of the last contact", "err", err)
						}
					}
				}
			}
		}
	}
}
