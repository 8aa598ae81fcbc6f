//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
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

func (o *Options) layoutDir() string { return filepath.Join(o.dir(), "v"+strconv.Itoa(layout)) }
func (o *Options) linkDir() string   { return filepath.Join(o.layoutDir(), "links") }

// open loads the programs, with the tables of an earlier process if there are some.
func (o *Options) open() (*ebpf.Collection, error) {
	if err := ensureFS(o.BPFFS); err != nil {
		return nil, err
	}
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

// dropOlder removes what agents with another layout left, once this one's programs have taken over.
func (o *Options) dropOlder() error {
	entries, err := os.ReadDir(o.dir())
	for _, e := range entries {
		if e.Name() != filepath.Base(o.layoutDir()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(o.dir(), e.Name())))
		}
	}
	return err
}
