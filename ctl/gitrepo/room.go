package gitrepo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skerry.dev/skerry"
)

const (
	// MaxCopy bounds what the copy takes of the disk. A server can send without end, and each time something else.
	MaxCopy = 8 << 30
	// lookEvery is how often it is looked at while git fetches.
	lookEvery = 500 * time.Millisecond
)

// fetch has git fetch references, as long as there is room for what comes.
func (r *Repository) fetch(ctx context.Context, args ...string) error {
	if err := r.makeRoom(ctx); err != nil {
		return err
	}
	fetching, stop := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.watch(fetching, stop)
	}()
	flags := []string{"fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--force", "--", r.opt.URL}
	_, err := r.git(fetching, nil, append(flags, args...)...)
	stop(nil)
	<-done
	if over, ok := errors.AsType[*skerry.Error](context.Cause(fetching)); ok && ctx.Err() == nil {
		r.sweep(0)
		return over
	}
	return err
}

// watch ends a fetch for which there is no more room.
func (r *Repository) watch(fetching context.Context, stop context.CancelCauseFunc) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-fetching.Done():
			return
		case <-look.C:
		}
		if n, _ := r.takes(); n > r.most {
			stop(r.tooLarge(n))
		}
	}
}

func (r *Repository) tooLarge(n int64) *skerry.Error {
	return skerry.Errorf(skerry.CodeTooLarge, "the copy of the repository takes %s or more; at most %s are allowed", skerry.Bytes(n),
		skerry.Bytes(r.most)).WithHint("keep manifests in a repository of their own; if it is smaller by now, delete %s", r.opt.Dir)
}

// makeRoom removes what fetches left that were ended and, if there is too much, what no reference leads to any more.
func (r *Repository) makeRoom(ctx context.Context) error {
	r.sweep(patience + time.Minute) // another process may be at it
	n, err := r.takes()
	if err != nil || n <= r.most/2 {
		return err
	}
	if _, err := r.git(ctx, nil, "gc", "--quiet", "--prune=now"); err != nil {
		return err
	}
	if n, err = r.takes(); err == nil && n > r.most {
		return r.tooLarge(n)
	}
	return err
}

// takes is how many bytes the objects of the copy have.
func (r *Repository) takes() (sum int64, err error) {
	err = r.objects(func(_ string, info fs.FileInfo) { sum += info.Size() })
	return sum, err
}

// sweep removes files that git had not finished, if they are that old.
func (r *Repository) sweep(age time.Duration) {
	_ = r.objects(func(path string, info fs.FileInfo) {
		if strings.HasPrefix(info.Name(), "tmp_") && time.Since(info.ModTime()) >= age {
			_ = os.Remove(path)
		}
	})
}

// objects shows each file of the copy's objects. What goes meanwhile is passed over.
func (r *Repository) objects(show func(path string, info fs.FileInfo)) error {
	return filepath.WalkDir(filepath.Join(r.opt.Dir, "objects"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				show(path, info)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
