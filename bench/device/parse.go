package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// number reads a figure, which must be one that can be measured.
func number(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, fmt.Errorf("%q is not a figure", text)
	}
	return v, nil
}

// field reads "NAME VALUE" as our kernels print it.
func field(name string) func([]byte) (float64, error) {
	return func(out []byte) (float64, error) {
		for line := range strings.Lines(string(out)) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == name {
				return number(v)
			}
		}
		return 0, fmt.Errorf("there is no %q in the output", name)
	}
}

func match(pattern string) func([]byte) (float64, error) {
	re := regexp.MustCompile(pattern)
	return func(out []byte) (float64, error) {
		m := re.FindSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("the output does not have %s", pattern)
		}
		return number(string(m[1]))
	}
}

func sysbenchEvents(out []byte) (float64, error) {
	return match(`(?m)^\s*events per second:\s+([0-9.]+)\s*$`)(out)
}

// sysbenchLatency reads the mean time of an event, in ms.
func sysbenchLatency(out []byte) (float64, error) {
	return match(`(?m)^\s*avg:\s+([0-9.]+)\s*$`)(out)
}

// x265Frames reads frames per second.
func x265Frames(out []byte) (float64, error) {
	return match(`(?m)^encoded [1-9][0-9]* frames in [0-9.]+s \(([0-9.]+) fps\)`)(out)
}

// povrayTrace reads how long the picture took, in seconds; the time to read the scene is another line.
func povrayTrace(out []byte) (float64, error) {
	return match(`(?m)^\s*Trace Time:.*\(([0-9.]+) seconds\)\s*$`)(out)
}

// bonnie reads a figure of bonnie++'s line of comma-separated values: writing, rewriting and reading blocks in MB/s
// (10^6; it tells KiB), and seeks in a second.
func bonnie(figure int) func([]byte) (float64, error) {
	return func(out []byte) (float64, error) {
		for line := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(line), ",")
			if len(f) < 40 || !strings.HasPrefix(f[0], "1.9") {
				continue
			}
			text := f[11+2*figure+map[bool]int{true: 2}[figure >= 2]] // what it does a byte at a time stands between
			if strings.HasPrefix(text, "+") {
				return 0, errors.New("bonnie++ found that it was over too soon to be measured")
			}
			v, err := number(text)
			if figure < 3 {
				v *= 1024. / 1e6
			}
			return v, err
		}
		return 0, errors.New("there is no line of bonnie++ in the output")
	}
}

func sysbenchMemory(out []byte) (float64, error) {
	return match(`(?m)^\s*[0-9.]+ MiB transferred \(([0-9.]+) MiB/sec\)\s*$`)(out)
}

// opensslRSA reads signatures (column 0) or verifications (1) per second.
func opensslRSA(column int) func([]byte) (float64, error) {
	return match(`(?m)^rsa +4096 bits +[0-9.]+s +[0-9.]+s +` + []string{`([0-9.]+) +[0-9.]+`, `[0-9.]+ +([0-9.]+)`}[column] + `\s*$`)
}

// ddSpeed reads MB/s (10^6 bytes) from the bytes and the seconds, which have more digits than the speed that dd tells.
func ddSpeed(out []byte) (float64, error) {
	bytes, err1 := match(`(?m)^(\d+) bytes .*copied, `)(out)
	seconds, err2 := match(`(?m)^\d+ bytes .*copied, ([0-9.e-]+) s, `)(out)
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	if seconds == 0 || bytes == 0 {
		return 0, errors.New("dd moved nothing, or took no time")
	}
	return bytes / seconds / 1e6, nil
}

// opensslBytes reads the last column of openssl speed, in thousands of bytes per second, as MB/s.
func opensslBytes(out []byte) (float64, error) {
	v, err := match(`(?m)^\S+(?: \S+)*\s+([0-9.]+)k\s*$`)(out)
	return v / 1000, err
}

// sevenZip reads a rating of 7z b: of compressing, or of decompressing.
func sevenZip(way string) func([]byte) (float64, error) {
	return func(out []byte) (float64, error) {
		for line := range strings.Lines(string(out)) {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), "Avr:")
			if !ok {
				continue
			}
			left, right, ok := strings.Cut(rest, "|")
			if way == "decompress" {
				left = right
			}
			if f := strings.Fields(left); ok && len(f) == 4 { // speed, usage, rating per usage, rating
				return number(f[3])
			}
		}
		return 0, fmt.Errorf("there is no average in the output")
	}
}

// stressNG reads operations per second of real time.
func stressNG(name string) func([]byte) (float64, error) {
	return func(out []byte) (float64, error) {
		for line := range strings.Lines(string(out)) {
			_, rest, ok := strings.Cut(line, "] ")
			if f := strings.Fields(rest); ok && len(f) == 7 && f[0] == name {
				return number(f[5])
			}
		}
		return 0, fmt.Errorf("there is no line of %s in the output", name)
	}
}

// fioBandwidth reads MB/s (10^6 bytes) of the one job.
func fioBandwidth(out []byte) (float64, error) {
	if i := strings.IndexByte(string(out), '{'); i > 0 {
		out = out[i:] // fio warns in front of it
	}
	type side struct {
		Bytes int64   `json:"io_bytes"`
		BW    float64 `json:"bw_bytes"`
	}
	var r struct {
		Jobs []struct {
			Error int  `json:"error"`
			R     side `json:"read"`
			W     side `json:"write"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, fmt.Errorf("the output of fio: %w", err)
	}
	if len(r.Jobs) != 1 || r.Jobs[0].Error != 0 || r.Jobs[0].R.Bytes+r.Jobs[0].W.Bytes == 0 {
		return 0, fmt.Errorf("fio moved nothing, or failed")
	}
	v := (r.Jobs[0].R.BW + r.Jobs[0].W.BW) / 1e6
	if math.IsNaN(v) || v < 0 {
		return 0, fmt.Errorf("%g MB/s is not a figure", v)
	}
	return v, nil
}

// straceCalls reads the names of strace -c -U name,calls, sorted.
func straceCalls(out []byte) (calls []string, err error) {
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 2 || f[0] == "total" {
			continue
		}
		if n, err := strconv.ParseUint(f[1], 10, 63); err == nil && n > 0 {
			calls = append(calls, f[0])
		}
	}
	if len(calls) == 0 {
		return nil, errors.New("strace saw no system call")
	}
	slices.Sort(calls)
	return slices.Compact(calls), nil
}
