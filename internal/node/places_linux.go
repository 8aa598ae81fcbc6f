package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/worker"
)

// place is where a worker keeps what is on the machine beside its data directory.
type place struct {
	RunDir       string `json:"runDir"`
	CgroupParent string `json:"cgroupParent"`
}

// placesFile holds every place that a worker ever used. Who cleans up need not know what the worker was started with.
const placesFile = "places.json"

// places reads where the worker was. A file that cannot be read counts as none: it costs an empty cgroup, not a container.
func (c *WorkerConfig) places() []place {
	var list []place
	if data, err := os.ReadFile(filepath.Join(c.Dir, placesFile)); err == nil {
		_ = json.Unmarshal(data, &list)
	}
	return slices.DeleteFunc(list, func(p place) bool { return !filepath.IsAbs(p.RunDir) || p.CgroupParent == "" })
}

// CgroupParent gives the group below which the instances of a worker run, by its data directory; empty: it has run none yet.
func CgroupParent(dir string) string {
	c := WorkerConfig{Common: Common{Dir: dir}}
	list := c.places()
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1].CgroupParent
}

// rememberPlace notes where the worker is, before it puts anything there.
func (c *WorkerConfig) rememberPlace() error {
	here := place{c.RunDir, c.CgroupParent}
	list := c.places()
	if slices.Contains(list, here) {
		return nil
	}
	data, err := json.Marshal(append(list, here))
	if err != nil {
		return err
	}
	if err := files.Replace(filepath.Join(c.Dir, placesFile), data, 0o600); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}

// cleanPlaces cleans up every place of the worker: those remembered, and the one that it is told of or would use now.
func (c *WorkerConfig) cleanPlaces(ctx context.Context) error {
	told := place{c.RunDir, c.CgroupParent}
	c.fillMachine()
	var errs []error
	list := c.places()
	if here := (place{c.RunDir, c.CgroupParent}); told != (place{}) || len(list) == 0 {
		list = append(slices.DeleteFunc(list, func(p place) bool { return p == here }), here)
	}
	for _, p := range list {
		at := *c
		at.RunDir, at.CgroupParent = p.RunDir, p.CgroupParent
		errs = append(errs, at.cleanPlace(ctx))
	}
	err := errors.Join(errs...)
	if err == nil {
		if err = os.Remove(filepath.Join(c.Dir, placesFile)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

func (c *WorkerConfig) cleanPlace(ctx context.Context) (err error) {
	w := &Worker{dir: c.Dir, runDir: c.RunDir}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := cleanOverlay(ctx, c, c.Join.Name); err != nil {
		return err
	}
	if w.Drivers, err = c.drivers(); err != nil {
		return err
	}
	if w.Network, err = c.network(c.Join.Name); err != nil {
		return err
	}
	if err := w.CleanUp(ctx); err != nil {
		return err
	}
	if err := worker.TidyUsers(userRegistry); err != nil {
		return err
	}
	if filepath.Dir(c.RunDir) == runDir {
		_ = os.Remove(runDir) // unless another worker is there, too
	}
	return nil
}
