//go:build linux

package monitor

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process names a process for good: a number is used again, a number with its start time is not, within one boot.
type Process struct {
	PID   int    `json:"pid,omitempty"`
	Ticks uint64 `json:"ticks,omitempty"` // start time, field 22 of /proc/PID/stat
}

// Identify looks a process up. A process that is gone, or a zombie, gives the zero value.
func Identify(pid int) Process {
	ticks, state := parseStat(readString(fmt.Sprintf("/proc/%d/stat", pid)))
	if pid <= 0 || state == 0 || state == 'Z' || state == 'X' {
		return Process{}
	}
	return Process{pid, ticks}
}

// Alive says whether the process still runs.
func (p Process) Alive() bool { return p.PID > 0 && Identify(p.PID) == p }

// parseStat gives the start time and the state of a line of /proc/PID/stat; state 0 means it makes no sense.
func parseStat(s string) (ticks uint64, state byte) {
	i := strings.LastIndexByte(s, ')') // the name before it may contain anything
	if i < 0 {
		return 0, 0
	}
	f := strings.Fields(s[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return 0, 0
	}
	ticks, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0, 0
	}
	return ticks, f[0][0]
}

// open gives a descriptor of exactly this process, or -1 when it is gone.
func (p Process) open() int {
	if p.PID <= 0 {
		return -1
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return -1
	}
	// The number may have been given to another process before it was opened.
	if !p.Alive() {
		unix.Close(fd)
		return -1
	}
	return fd
}

// Signal sends a signal; a process that is gone is no error.
func (p Process) Signal(sig unix.Signal) error {
	fd := p.open()
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// WaitGone returns when the process has ended; it need not be a child. A child, which is what an orphan becomes when
// the agent is a subreaper, is reaped.
func (p Process) WaitGone(ctx context.Context) error {
	fd := p.open()
	if fd >= 0 {
		f := os.NewFile(uintptr(fd), "pidfd")
		defer f.Close()
		stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		conn, err := f.SyscallConn()
		if err != nil {
			return err
		}
		err = conn.Read(func(fd uintptr) bool {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0
		})
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("wait for process %d: %w", p.PID, err)
		}
	}
	if p.PID > 0 {
		_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
	}
	return nil
}

func readString(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

func readInt(path string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSpace(readString(path)))
	return n, err == nil
}
