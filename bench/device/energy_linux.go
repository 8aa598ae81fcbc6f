package device

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// meter tells the joules that the machine has used since some moment.
type meter struct {
	name  string
	read  func(context.Context) (float64, error)
	close func()
}

// meterEvery is how often a sensor of power is read; those of boards are averages over a few ms.
const meterEvery = 20 * time.Millisecond

// meterLimit bounds a command that asks a meter.
const meterLimit = 10 * time.Second

// openMeter finds what measures energy: a command or a file that the user names, the counters of the processor (RAPL),
// or sensors of the board below sys, which is /sys. An error says why there is none.
func openMeter(sys, command, file string) (*meter, error) {
	stay := func() {}
	switch {
	case command != "" && file != "":
		return nil, errors.New("there are two meters, a command and a file")
	case command != "":
		return &meter{"command " + command, func(ctx context.Context) (float64, error) {
			ctx, cancel := context.WithTimeout(ctx, meterLimit)
			defer cancel()
			out, err := exec.CommandContext(ctx, "/bin/sh", "-c", command).Output()
			if err != nil {
				return 0, fmt.Errorf("meter: %w", err)
			}
			return number(strings.TrimSpace(string(out)))
		}, stay}, nil
	case file != "":
		return &meter{"file " + file, func(context.Context) (float64, error) {
			f, err := os.Open(file)
			if err != nil {
				return 0, err
			}
			defer f.Close()
			return parseMeter(f, time.Now())
		}, stay}, nil
	}
	// Packages only: what is below them is counted in them.
	for _, pattern := range []string{"class/powercap/intel-rapl:[0-9]*", "class/hwmon/hwmon*/energy*_input"} {
		counters := newCounters(filepath.Join(sys, pattern))
		if len(counters.files) > 0 {
			return &meter{pattern, counters.read, stay}, nil
		}
	}
	if sensors, _ := filepath.Glob(filepath.Join(sys, "class/hwmon/hwmon*/power*_input")); len(sensors) > 0 {
		return integrate(sensors), nil
	}
	return nil, errors.New("the machine has no counter of energy (RAPL) and no sensor of power (hwmon); name a meter with --meter or --meter-csv")
}

// counters count microjoules, and begin again at 0 after most.
type counters struct {
	files []string
	most  []float64
	last  []float64
	sum   float64
}

func newCounters(pattern string) *counters {
	c := &counters{}
	found, _ := filepath.Glob(pattern)
	for _, f := range found {
		most := 0.0
		if st, err := os.Stat(f); err == nil && st.IsDir() {
			if strings.Count(filepath.Base(f), ":") > 1 {
				continue // a part of a package
			}
			most, _ = readNumber(filepath.Join(f, "max_energy_range_uj"))
			f = filepath.Join(f, "energy_uj")
		}
		if v, err := readNumber(f); err == nil {
			c.files, c.most, c.last = append(c.files, f), append(c.most, most), append(c.last, v)
		}
	}
	return c
}

func (c *counters) read(context.Context) (float64, error) {
	for i, f := range c.files {
		v, err := readNumber(f)
		if err != nil {
			return 0, err
		}
		if v < c.last[i] {
			c.sum += c.most[i]
		}
		c.sum += v - c.last[i]
		c.last[i] = v
	}
	return c.sum / 1e6, nil
}

// integrate sums up the power of sensors, in microwatts, until it is closed.
func integrate(sensors []string) *meter {
	var mu sync.Mutex
	var joules float64
	var failed error
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		last, tick := time.Now(), time.NewTicker(meterEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			watts := 0.0
			var err error
			for _, f := range sensors {
				v, e := readNumber(f)
				watts, err = watts+v/1e6, errors.Join(err, e)
			}
			now := time.Now()
			mu.Lock()
			joules, failed = joules+watts*now.Sub(last).Seconds(), errors.Join(failed, err)
			mu.Unlock()
			if last = now; err != nil {
				return
			}
		}
	}()
	return &meter{fmt.Sprintf("%d sensors of power", len(sensors)), func(context.Context) (float64, error) {
		mu.Lock()
		defer mu.Unlock()
		return joules, failed
	}, func() { close(done); <-ended }}
}

func readNumber(file string) (float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return float64(v), err
}

// using runs fn and tells what the machine used meanwhile.
func (m *measuring) using(ctx context.Context, fn func() error) (u Used, err error) {
	look := func() (Used, float64, error) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			return Used{}, 0, err
		}
		u, err := parseUsed(string(text))
		joules := 0.0
		if m.meter != nil && err == nil {
			joules, err = m.meter.read(ctx)
		}
		return u, joules, err
	}
	before, energy, err := look()
	if err != nil {
		return u, err
	}
	if err := fn(); err != nil {
		return u, err
	}
	after, now, err := look()
	if err != nil {
		return u, err
	}
	u = after.since(before)
	if u.Joules = math.NaN(); m.meter != nil {
		u.Joules = max(0, now-energy)
	}
	return u, nil
}
