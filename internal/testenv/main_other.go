//go:build !linux

package testenv

// Options say what a package's tests need and what they may leave.
type Options struct {
	NetNS  bool
	Cgroup string
	Ignore []string
}

// Main runs a package's tests. What they leave behind is looked for on Linux alone.
func Main(m Tests, _ Options) int { return m.Run() }
