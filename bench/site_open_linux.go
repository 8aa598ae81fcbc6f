package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"skerry.dev/skerry/api"
	clustercore "skerry.dev/skerry/cluster/core"
)

// Site is a small Skerry for other benchmarks: a root and a cluster in one process, as `skerry up` has them, and one
// worker, each in a network namespace of its own.
type Site struct {
	Root *api.Client
	s    *site
}

// OpenSite starts one with a skerry program, and waits until the worker is connected.
func OpenSite(ctx context.Context, program string) (*Site, error) {
	s, err := newSite(ctx, program, 1, clustercore.Fast.Name)
	if err != nil {
		return nil, err
	}
	return &Site{Root: s.root, s: s}, nil
}

// Image puts an image of a folder, or of a static program, into the built-in registry, as skerry.local/TAG.
func (s *Site) Image(ctx context.Context, source, tag string) error {
	return s.s.image(ctx, source, tag)
}

// WorkerSpace is a path of the network namespace of the worker, for this process and as long as the site is open.
func (s *Site) WorkerSpace() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.s.workers[0].ns.file.Fd())
}

// Close ends it and leaves nothing behind.
func (s *Site) Close() error {
	err := s.s.close()
	if err != nil {
		err = errors.Join(err, s.s.tail())
	}
	return err
}
