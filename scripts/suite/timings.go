package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// timing is what a process of tests needed.
type timing struct {
	seconds float64
	cores   float64 // how many processors it kept busy on average
}

// unknown is taken for what timings.txt does not name.
var unknown = timing{seconds: 3, cores: 1}

// leastSeconds is what a process must take to be worth a line in timings.txt.
const leastSeconds = 3

// readTimings reads lines of "package test seconds cores"; the test is "-" where a process runs the whole package.
func readTimings(file string) (map[testID]timing, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[testID]timing{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		var id testID
		var t timing
		if _, err := fmt.Sscanf(s.Text(), "%s %s %g %g", &id.pkg, &id.test, &t.seconds, &t.cores); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, s.Text(), err)
		}
		out[id] = t
	}
	return out, nil
}

// writeTimings keeps what is known of packages that did not run.
func writeTimings(file string, known, measured map[testID]timing) error {
	ran := map[string]bool{}
	for id := range measured {
		ran[id.pkg] = true
	}
	all := map[testID]timing{}
	for id, t := range known {
		if !ran[id.pkg] {
			all[id] = t
		}
	}
	for id, t := range measured {
		if t.seconds >= leastSeconds {
			all[id] = t
		}
	}
	var text strings.Builder
	text.WriteString("# What processes of tests took, in seconds and processors: \"make timings\" writes it, scripts/suite plans by it.\n")
	ids := make([]testID, 0, len(all))
	for id := range all {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b testID) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test)) })
	for _, id := range ids {
		fmt.Fprintf(&text, "%s %s %.0f %.2f\n", id.pkg, id.test, all[id].seconds, all[id].cores)
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
