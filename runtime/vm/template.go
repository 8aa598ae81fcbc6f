//go:build linux

package vm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

// A template is a guest of Firecracker's that has booted and has not been told anything of a task, as files. Machines of the same shape
// begin with it in place of booting. It is a directory "templates/HOST-SHAPE" of the state directory, which has:
const (
	templateMemory  = "memory"  // the guest's, mapped by every machine that began with it; holes are zeroes
	templateState   = "state"   // its processors and devices
	templateOutcome = "outcome" // while it is being made: empty when it is complete, or why there is none
)

// template is what a machine has to do with one.
type template struct {
	Dir string
	New bool // it is not there: the machine is to leave one
	NIC bool // it has a network card
}

// templateSpace is the most that templates take of the disk; templateLeft is what must be left of that beside one that is made.
const (
	templateSpace = 2 * skerry.GiB
	templateLeft  = skerry.GiB
)

// refusal is how long machines of a shape boot whose template failed. What was at fault may have been the host's: it stood still, or its
// disk was full.
const refusal = time.Hour

// templates are those of a driver.
type templates struct {
	dir   string
	log   *slog.Logger
	space skerry.Bytes // the most that they take of the disk
	swaps func() bool  // whether a template has the whole memory

	mu    sync.Mutex           // protects what follows
	busy  map[string]bool      // shapes of which one is being made
	unfit map[string]time.Time // shapes of which none is made or used until then, for it failed
}

func newTemplates(dir string, log *slog.Logger) *templates {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &templates{dir: dir, log: log, space: templateSpace, swaps: swaps, busy: map[string]bool{}, unfit: map[string]time.Time{}}
	left, _ := filepath.Glob(filepath.Join(dir, making+"*")) // by a crash
	for _, l := range left {
		_ = os.RemoveAll(l)
	}
	return t
}

// shape names what machines have in common that can begin with one template: the host and what is booted, and the machine's parts.
func (c *choice) shape(s *setup, nic bool) (host, shape string) {
	var program unix.Stat_t
	_ = unix.Stat(c.firecracker.Path, &program)
	name := func(parts ...any) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%#v", parts)) // not %q, for which all large numbers are one
		return hex.EncodeToString(sum[:])[:16]
	}
	return name("1", processorModel(), c.firecracker.Version, program.Size, program.Mtim, c.kernel.Digest, filepath.Base(s.Initrd),
		firecrackerLine, commandLine), name(s.RAM, s.CPUs, s.Guest.Scratch, nic)
}

// processorModel is what a template relies on of the processor and of the host's kernel.
func processorModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	first, _, _ := strings.Cut(string(info), "\n\n")
	kernel, _ := os.ReadFile("/proc/version")
	out := []string{string(kernel)}
	for line := range strings.Lines(first) {
		key, _, _ := strings.Cut(line, "\t")
		if slices.Contains([]string{"vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"}, key) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// find gives the template that a machine is to begin with, or that it is to leave, if it may; nil: it just boots.
func (t *templates) find(with *choice, machine *setup, nic, leave bool) *template {
	if with.firecracker == nil || !with.firecracker.clones() {
		return nil
	}
	host, shape := with.shape(machine, nic)
	dir := filepath.Join(t.dir, host+"-"+shape)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.unfit[filepath.Base(dir)]) {
		return nil
	}
	if os.Chtimes(dir, now, now) == nil { // the time of its last use
		return &template{Dir: dir, NIC: nic}
	}
	if t.busy[filepath.Base(dir)] || !leave || machine.RAM > int64(t.space) && t.swaps() {
		return nil
	}
	work := filepath.Join(t.dir, making+filepath.Base(dir))
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil
	}
	t.cutLocked(host, "")
	var disk unix.Statfs_t
	if err := unix.Statfs(work, &disk); err != nil || int64(disk.Bavail)*int64(disk.Bsize) < machine.RAM+int64(templateLeft) {
		_ = os.Remove(work)
		return nil
	}
	t.busy[filepath.Base(dir)] = true
	return &template{Dir: work, New: true, NIC: nic}
}

// done takes what a machine that has been started has left. What one has left that did not start is no template.
func (t *templates) done(used *template, started error) {
	if used == nil || !used.New {
		return
	}
	name := used.name()
	outcome, err := os.ReadFile(filepath.Join(used.Dir, templateOutcome))
	var memory unix.Stat_t
	if err == nil && len(outcome) == 0 && unix.Stat(filepath.Join(used.Dir, templateMemory), &memory) == nil &&
		memory.Blocks*512 > int64(t.space) {
		outcome = fmt.Appendf(nil, "it takes %s of the disk, and all may take %s", skerry.Bytes(memory.Blocks*512), t.space)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, name)
	if started == nil && err == nil && len(outcome) == 0 {
		if err = os.Remove(filepath.Join(used.Dir, templateOutcome)); err == nil {
			err = os.Rename(used.Dir, filepath.Join(t.dir, name))
		}
		if err == nil {
			host, _, _ := strings.Cut(name, "-")
			t.cutLocked(host, name)
			return
		}
		outcome = []byte(err.Error())
	}
	_ = os.RemoveAll(used.Dir)
	if started == nil && len(outcome) > 0 {
		t.refuseLocked(name, errors.New(clean(string(outcome))))
	}
}

// name is the directory's of a template, also of one that is being made.
func (u *template) name() string { return strings.TrimPrefix(filepath.Base(u.Dir), making) }

// drop gives a template up with which a machine did not start that has booted since.
func (t *templates) drop(used *template, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !used.New {
		_ = os.RemoveAll(used.Dir)
	}
	t.refuseLocked(used.name(), why)
}

func (t *templates) refuseLocked(name string, why error) {
	now := time.Now()
	maps.DeleteFunc(t.unfit, func(_ string, until time.Time) bool { return !now.Before(until) })
	if _, ok := t.unfit[name]; !ok {
		t.unfit[name] = now.Add(refusal)
		t.log.Warn("machines of this shape boot, for they cannot begin with a template", "template", name, "for", refusal, "err", why)
	}
}

// cutLocked removes templates of what is not this host any more, and the longest unused beyond the bound but keep. Machines that began with
// one have its memory open.
func (t *templates) cutLocked(host, keep string) {
	type entry struct {
		dir  string
		used time.Time
		size int64
	}
	var all []entry
	total := int64(0)
	entries, _ := os.ReadDir(t.dir)
	for _, e := range entries {
		dir := filepath.Join(t.dir, e.Name())
		if strings.HasPrefix(e.Name(), making) {
			continue
		}
		var memory unix.Stat_t
		st, err := e.Info()
		if err != nil || unix.Stat(filepath.Join(dir, templateMemory), &memory) != nil || !strings.HasPrefix(e.Name(), host+"-") {
			_ = os.RemoveAll(dir)
			continue
		}
		all = append(all, entry{dir, st.ModTime(), memory.Blocks * 512})
		total += memory.Blocks * 512
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.dir, b.dir)) })
	for _, e := range all {
		if total > int64(t.space) && filepath.Base(e.dir) != keep {
			_ = os.RemoveAll(e.dir)
			total -= e.size
		}
	}
}
