package bench

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// memory gives proportional and resident set size of a process, in bytes.
func memory(pid int) (pss, rss float64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var kb float64
		if _, err := fmt.Sscanf(sc.Text(), "Pss: %f kB", &kb); err == nil {
			pss = kb * 1024
		} else if _, err := fmt.Sscanf(sc.Text(), "Rss: %f kB", &kb); err == nil {
			rss = kb * 1024
		}
	}
	return pss, rss, nil
}

// PSS gives the proportional set size of a process, in bytes: what it shares is divided among those that share it. Processes of other users
// need root.
func PSS(pid int) (float64, error) {
	v, _, err := memory(pid)
	return v, err
}

func rss(pid int) (float64, error) {
	_, v, err := memory(pid)
	return v, err
}

// sum adds up what is measured of several processes.
func sum[T time.Duration | float64](pids []int, of func(int) (T, error)) (all T, err error) {
	for _, pid := range pids {
		v, e := of(pid)
		all, err = all+v, errors.Join(err, e)
	}
	return all, err
}

// CPUTime gives the processor time that a process has used, its threads that have ended left out.
func CPUTime(pid int) (time.Duration, error) {
	// schedstat counts nanoseconds on the processor, where stat counts ticks; it has one file for each thread.
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, t := range threads {
		data, err := os.ReadFile(dir + "/" + t.Name() + "/schedstat")
		if err != nil {
			continue // the thread has just ended
		}
		if f := strings.Fields(string(data)); len(f) > 0 {
			n, _ := strconv.ParseInt(f[0], 10, 64)
			sum += time.Duration(n)
		}
	}
	if sum > 0 {
		return sum, nil
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("process %d: unreadable stat", pid)
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond, nil
}

// written gives the bytes that a process has caused to be written to storage.
func written(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		var n float64
		if _, err := fmt.Sscanf(line, "write_bytes: %f", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("process %d: no write_bytes", pid)
}

// monotonicNow is the clock that the workload prints, the same for all processes of the machine.
func monotonicNow() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("the monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
