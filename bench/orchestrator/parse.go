package orchestrator

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind tells what a process of an orchestrator is for.
type Kind string

// The kinds. A process that is both counts as Control.
const (
	Control Kind = "control"
	Worker  Kind = "worker"
)

// Process is one of an orchestrator's own processes, on this machine.
type Process struct {
	Kind Kind
	PID  int
}

const (
	maxOutput    = 1 << 20 // bytes that an adapter may print
	maxProcesses = 10_000
	maxPID       = 1 << 22 // of Linux
	maxVersion   = 100     // characters
	maxReason    = 300     // characters
)

// ParseProcesses reads what `ADAPTER processes` printed: a kind, a blank and a number in each line, nothing else, no process twice.
func ParseProcesses(out string) ([]Process, error) {
	if out == "" {
		return nil, nil
	}
	body, whole := strings.CutSuffix(out, "\n")
	if !whole {
		return nil, fmt.Errorf("its last line has no end")
	}
	var list []Process
	seen := map[int]bool{}
	for i, line := range strings.Split(body, "\n") {
		kind, number, _ := strings.Cut(line, " ")
		if kind != string(Control) && kind != string(Worker) {
			return nil, fmt.Errorf("line %d: %.40q does not begin with control or worker", i+1, line)
		}
		pid, err := strconv.Atoi(number)
		if err != nil || pid < 1 || pid > maxPID || strconv.Itoa(pid) != number {
			return nil, fmt.Errorf("line %d: %.40q is no process", i+1, number)
		}
		if seen[pid] {
			return nil, fmt.Errorf("line %d: process %d is there twice", i+1, pid)
		}
		if seen[pid] = true; len(seen) > maxProcesses {
			return nil, fmt.Errorf("more than %d processes", maxProcesses)
		}
		list = append(list, Process{Kind(kind), pid})
	}
	return list, nil
}

// ParseVersion reads what `ADAPTER version` printed: one line of 1 to 100 characters that can be seen.
func ParseVersion(out string) (string, error) {
	text, whole := strings.CutSuffix(out, "\n")
	if !whole {
		return "", fmt.Errorf("its last line has no end")
	}
	if n := utf8.RuneCountInString(text); n < 1 || n > maxVersion || text != strings.TrimSpace(text) {
		return "", fmt.Errorf("it is not one line of 1 to %d characters", maxVersion)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", fmt.Errorf("it has characters that cannot be printed")
	}
	return text, nil
}

// reason is the last line of what an adapter said on its standard error, made fit for a table; "" if it said nothing.
func reason(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(lines[len(lines)-1], "?"))
	text = strings.TrimSpace(text)
	if runes := []rune(text); len(runes) > maxReason {
		text = string(runes[:maxReason]) + "..."
	}
	return text
}

// nameOf is what an adapter is called in a report: its file's name without the extension.
func nameOf(file string) string {
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}
