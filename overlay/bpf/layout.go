//go:build linux

package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// layout is the number of what lies in the tables; it grows whenever c/maps.h changes in a way that an older program or
// agent would misread. Another layout starts with empty tables.
const layout = 2

// bpffsMagic is the file system of pins.
const bpffsMagic = 0xcafe4a11

// ensureFS mounts the bpf file system if it is not there.
func ensureFS(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && uint32(st.Type) == bpffsMagic {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount the bpf file system at %s: %w", dir, err)
	}
	return nil
}

// compiled has the kernel compile programs where its default is to interpret them, as on riscv64: interpreted, ours
// would be slow, and are refused. What somebody set in place of that default cannot be told from it; Debian's kernels
// for amd64 and arm64 cannot even be told to interpret.
func (o *Options) compiled() {
	const name = "core/bpf_jit_enable"
	if data, err := os.ReadFile("/proc/sys/net/" + name); err != nil || string(data) != "0\n" {
		return // it compiles, or this is not the namespace that has a say in it
	}
	if err := kernel.SysctlIfAny(name, "1"); err != nil {
		o.Log.Warn("the kernel does not compile the overlay's programs", "reason", err, "hint", "run sysctl net.core.bpf_jit_enable=1")
		return
	}
	o.Log.Info("the kernel was told to compile BPF programs, as the overlay needs it", "sysctl", "net.core.bpf_jit_enable=1")
}

func (o *Options) layoutDir() string {
	return filepath.Join(o.dir(), "v"+strconv.Itoa(cmp.Or(o.layout, layout)))
}
func (o *Options) linkDir() string { return filepath.Join(o.layoutDir(), "links") }

// open loads the programs, with the tables of an earlier process if there are some.
func (o *Options) open() (*ebpf.Collection, error) {
	if err := ensureFS(o.BPFFS); err != nil {
		return nil, err
	}
	o.compiled()
	if err := os.MkdirAll(o.linkDir(), 0o700); err != nil {
		return nil, err
	}
	spec, err := loadProg()
	if err != nil {
		return nil, err
	}
	spec.Maps["tcp"].MaxEntries = uint32(2 * o.Flows)
	spec.Maps["other"].MaxEntries = uint32(2 * o.OtherFlows)
	pinned := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range pinned {
			m.Close()
		}
	}()
	for name, ms := range spec.Maps {
		m, err := ebpf.LoadPinnedMap(filepath.Join(o.layoutDir(), name), nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("table %s of an earlier agent: %w", name, err)
		}
		ms.MaxEntries = m.MaxEntries()
		pinned[name] = m
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: pinned})
	if err != nil {
		return nil, fmt.Errorf("load the overlay's programs: %w", err)
	}
	for name, m := range coll.Maps {
		if pinned[name] != nil {
			continue
		}
		if err := m.Pin(filepath.Join(o.layoutDir(), name)); err != nil {
			coll.Close()
			return nil, fmt.Errorf("pin table %s: %w", name, err)
		}
	}
	return coll, nil
}

// adopt takes up the pins of an agent of this namespace that did not tell namespaces apart.
func (d *Device) adopt() error {
	old, dir := filepath.Join(d.opts.BPFFS, "skerry", d.opts.pins()), d.opts.dir()
	if _, err := os.Stat(dir); old == dir || err == nil {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(old, filepath.Base(d.opts.layoutDir()), "config"), nil)
	if err != nil {
		return nil // there are none
	}
	defer m.Close()
	var c configValue
	if m.Lookup(uint32(0), &c) != nil || c.Agent == 0 {
		return nil
	}
	l, err := d.nl.LinkByIndex(int(c.Agent))
	if err != nil || l.Attrs().Name != d.opts.agentTap() {
		return nil // they are of the worker of this name on the machine itself
	}
	return os.Rename(old, dir)
}

// buryDead removes what workers of this name left in namespaces that are no more: nobody else would, because cookies do not come
// again. A namespace is gone when the devices of all programs are.
func (d *Device) buryDead() {
	list, _ := filepath.Glob(filepath.Join(d.opts.BPFFS, "skerry", d.opts.pins()+"-*"))
	for _, dir := range list {
		pins, _ := filepath.Glob(filepath.Join(dir, "v*", "links", "*"))
		if dir == d.opts.dir() || len(pins) == 0 || slices.ContainsFunc(pins, alive) {
			continue
		}
		if err := removePins(dir); err != nil {
			d.opts.Log.Warn("tables of a namespace that is gone", "err", err)
		}
	}
}

// alive reports whether a pinned program is at a device.
func alive(pin string) bool {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer l.Close()
	info, err := l.Info()
	return err != nil || info.TCX() == nil || info.TCX().Ifindex != 0
}

// older lists the directories of agents with another layout.
func (o *Options) older() (list []string, err error) {
	entries, err := os.ReadDir(o.dir())
	for _, e := range entries {
		if e.Name() != filepath.Base(o.layoutDir()) {
			list = append(list, filepath.Join(o.dir(), e.Name()))
		}
	}
	return list, err
}

// takeOver hangs the programs to their devices, and removes what agents with another layout left. Their programs are replaced one by one:
// where two were attached for a while, a connection that began then would break off with the older one, which alone knows it.
func (d *Device) takeOver(hooks map[hook]bool, there map[int]bool) error {
	older, err := d.opts.older()
	if d.opts.KeepOlder && len(older) > 0 {
		return err
	}
	for _, dir := range older {
		if e := d.take(filepath.Join(dir, "links"), hooks); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	err = errors.Join(err, d.attach(hooks, there))
	for _, dir := range older {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
