package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
)

// Default directories. What ends with the machine's uptime is below the first, what the hosts keep below the second.
const (
	DefaultDir  = "/run/skerry-lab"
	DefaultData = "/var/lib/skerry-lab"
)

// Options say where a lab lives and what its hosts run. The zero value is usable by the command skerry.
type Options struct {
	Dir    string   // default DefaultDir
	Data   string   // default DefaultData
	Binary string   // the program skerry; default this program
	Helper []string // command that runs WanMain; default Binary lab wan
	Log    func(format string, args ...any)
}

func (o *Options) fill() error {
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Data == "" {
		o.Data = DefaultData
	}
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		o.Binary = self
	}
	if o.Helper == nil {
		o.Helper = []string{o.Binary, "lab", "wan"}
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return nil
}

// Lab is a lab on this machine. Its methods work on what is kept on disk, so that several processes may use a lab.
type Lab struct {
	Topology Topology `json:"topology"`
	Data     string   `json:"data"` // directory of all hosts' data
	Binary   string   `json:"binary"`
	Helper   []string `json:"helper"`
	Boot     string   `json:"boot"` // of the machine: processes of an earlier one are gone

	dir string
	log func(format string, args ...any)
}

// process is a process that cannot be mistaken for a later one with the same number.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in ticks since the machine's start
}

func (l *Lab) path(elem ...string) string { return filepath.Join(append([]string{l.dir}, elem...)...) }

// hostDir is the data directory of a host's role, logFile its output.
func (l *Lab) hostDir(host string) string { return filepath.Join(l.Data, host) }
func (l *Lab) logFile(host string) string { return filepath.Join(l.Data, host+".log") }

// cgroupOf is the cgroup of a host below each hierarchy; of the whole lab with an empty name.
func (l *Lab) cgroupOf(host string) string {
	return filepath.Join("/skerry-lab", l.Topology.Name, host)
}

// bootID names this run of the machine.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// Open finds a lab by name.
func Open(name string, o Options) (*Lab, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if err := skerry.CheckName(name); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "lab: %w", err)
	}
	l := &Lab{dir: filepath.Join(o.Dir, name), log: o.Log}
	if err := readJSON(l.path("lab.json"), l); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, skerry.Errorf(skerry.CodeNotFound, "there is no lab %q", name).WithHint("`skerry lab list` shows what is there")
		}
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	return l, nil
}

// List names the labs on this machine, whole or not.
func List(o Options) ([]string, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	var out []string
	entries, err := os.ReadDir(o.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// lock keeps other commands from changing the lab at the same time. It waits for ten seconds.
func (l *Lab) lock() (unlock func(), err error) {
	f, err := os.OpenFile(l.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || time.Now().After(deadline) {
			f.Close()
			return nil, skerry.Errorf(skerry.CodeConflict, "another command is changing lab %s",
				l.Topology.Name).WithHint("try again when it has ended")
		}
	}
}

func readJSON(file string, v any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s is damaged: %w", file, err)
	}
	return nil
}

// writeJSON replaces a file as a whole.
func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return files.Swap(file, b, 0o600)
}

func (l *Lab) ways() (w ways, err error) {
	err = readJSON(l.path("net.json"), &w)
	return w, err
}

// agent is the process of a host's role, or nil when none has been started.
func (l *Lab) agent(host string) *process {
	var p process
	if l.Boot != bootID() || readJSON(l.path("agents", host+".json"), &p) != nil {
		return nil
	}
	return &p
}

// host finds a host by name.
func (l *Lab) host(name string) (*Host, error) {
	h := l.Topology.Host(name)
	if h == nil {
		return nil, l.Topology.noHost(name)
	}
	return h, nil
}
