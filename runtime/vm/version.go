//go:build linux

package vm

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// monitorVersion asks a monitor, or its jailer, for its version, such as "1.16.1".
func monitorVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	_, text, found := strings.Cut(line, " v")
	text = strings.TrimSpace(text)
	if _, ok := parseVersion(text); !found || !ok {
		return "", fmt.Errorf("%s says it is %q, which is no version", path, clean(line))
	}
	return text, nil
}

// parseVersion reads "1.16.1", "1.17.0-dev", or without the last number "53.0" and "53.0-12-g0123abc".
func parseVersion(text string) (v [3]int, ok bool) {
	text, _, _ = strings.Cut(text, "-")
	words := strings.Split(text, ".")
	if len(words) < 2 || len(words) > len(v) {
		return v, false
	}
	for i, w := range words {
		n, err := strconv.ParseUint(w, 10, 31)
		if err != nil {
			return v, false
		}
		v[i] = int(n)
	}
	return v, true
}
