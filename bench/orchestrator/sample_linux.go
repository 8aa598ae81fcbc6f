package orchestrator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry/bench"
)

// tick is what /proc counts processor time in: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// incarnation is a process and not another that got its number later.
type incarnation struct {
	Process
	began uint64 // in ticks since boot
}

// counters are the processor times of processes at one moment.
type counters map[incarnation]time.Duration

// count reads the counters of processes; one that has ended meanwhile is left out.
func count(list []Process) (counters, error) {
	all := counters{}
	for _, p := range list {
		began, used, err := readStat(p.PID)
		var threads time.Duration
		if err == nil {
			threads, err = bench.CPUTime(p.PID)
		}
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", p.PID, err)
		}
		// The sum over threads is exact but loses those that end; that of the process keeps them, to a tick.
		all[incarnation{p, began}] = max(used, threads)
	}
	return all, nil
}

// weigh gives the memory of processes by kind, in bytes, and how many there are.
func weigh(list []Process) (map[Kind]Use, error) {
	all := map[Kind]Use{}
	for _, p := range list {
		v, err := bench.PSS(p.PID)
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", p.PID, err)
		}
		u := all[p.Kind]
		u.PSS, u.Processes = u.PSS+v, u.Processes+1
		all[p.Kind] = u
	}
	return all, nil
}

func ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// spent gives the seconds of processor time between two moments, by kind. What began in between counts from 0; what
// ended in between does not count.
func spent(before, after counters) map[Kind]float64 {
	all := map[Kind]float64{}
	for p, v := range after {
		all[p.Kind] += max(0, v-before[p]).Seconds()
	}
	return all
}

func readStat(pid int) (began uint64, used time.Duration, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	return parseStat(string(data))
}

// parseStat reads when a process began and what it has used, its ended threads too, from its stat file (proc_pid_stat(5)).
func parseStat(text string) (began uint64, used time.Duration, err error) {
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // its name may have blanks and brackets
	if len(f) < 20 {
		return 0, 0, errors.New("unreadable stat")
	}
	user, err1 := strconv.ParseUint(f[11], 10, 48)
	system, err2 := strconv.ParseUint(f[12], 10, 48)
	began, err3 := strconv.ParseUint(f[19], 10, 64)
	return began, time.Duration(user+system) * tick, errors.Join(err1, err2, err3)
}
