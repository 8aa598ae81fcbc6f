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
	cores   float64 // how many processors it kept busy on average, without what daemons of the tests did
}

// leastSeconds is what a process must take to be worth a line in timings.txt.
const leastSeconds = 3

// readTimings reads lines of "package test seconds"; the test is "-" where a process runs the whole package.
func readTimings(file string) (map[testID]float64, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[testID]float64{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		var id testID
		var t float64
		if _, err := fmt.Sscanf(s.Text(), "%s %s %g", &id.pkg, &id.test, &t); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, s.Text(), err)
		}
		out[id] = t
	}
	return out, nil
}

// writeTimings keeps what is known of packages that did not run.
func writeTimings(file string, known, measured map[testID]float64) error {
	ran := map[string]bool{}
	for id := range measured {
		ran[id.pkg] = true
	}
	all := map[testID]float64{}
	for id, t := range known {
		if !ran[id.pkg] {
			all[id] = t
		}
	}
	for id, t := range measured {
		if t >= leastSeconds {
			all[id] = t
		}
	}
	var text strings.Builder
	text.WriteString("# What processes of tests took, in seconds: \"make timings\" writes it, scripts/suite begins with the longest.\n")
	ids := make([]testID, 0, len(all))
	for id := range all {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b testID) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test)) })
	for _, id := range ids {
		fmt.Fprintf(&text, "%s %s %.0f\n", id.pkg, id.test, all[id])
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
