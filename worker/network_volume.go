//go:build linux

package worker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/internal/nfsmount"
	"skerry.dev/skerry/spec"
)

// serverPatience is how long the server of a network file system may take to answer before an instance is tried again.
const serverPatience = 10 * time.Second

// makeNetworkVolume finds a network file system mounted for an instance. Whether it is mounted is seen without asking its server, which may
// hang: whoever asks it then waits apart, so that neither the agent nor other instances do.
func (pl places) makeNetworkVolume(ctx context.Context, table *nfsmount.Table, a *spec.Assignment, v *spec.Volume) error {
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	point, err := onFileSystem(string(mounts), v.Host)
	if err != nil {
		return err
	}
	_, err = within(ctx, table, point, serverPatience, &noAnswer{*v.Host, serverPatience},
		func() (os.FileInfo, error) { return os.Stat(v.Host.Path) }, func(os.FileInfo) {})
	if err != nil || !bounded(a) {
		return err
	}
	return pl.mountHostPath(a, v)
}

// notMounted says that a network file system is not where a volume expects it. Its operator may mount it later.
type notMounted struct {
	volume spec.HostVolume
	have   string // what is mounted there, or above
}

func (e *notMounted) Error() string {
	return fmt.Sprintf("%s is not on %s, but on %s of the worker's own: the operator of this worker mounts it there", e.volume.Path,
		e.volume.FileSystem, e.have)
}

// noAnswer says that the server of a network file system hangs.
type noAnswer struct {
	volume spec.HostVolume
	after  time.Duration
}

func (e *noAnswer) Error() string {
	return fmt.Sprintf("the server of %s at %s has not answered for %s", e.volume.FileSystem, e.volume.Path, e.after)
}

// within waits for what may hang in the kernel, as one of the few that a server has at a time, but not for longer than the patience, after
// which it returns late, or the context. What is asked must change nothing, for it may be answered long after that: then it is dropped.
func within[T any](ctx context.Context, table *nfsmount.Table, server string, patience time.Duration, late error,
	ask func() (T, error), drop func(T)) (out T, err error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer)
	release, err := table.Asking(bounded, server)
	if err == nil {
		go func() {
			defer release() // when the server is back, or the mount gives it up
			value, err := ask()
			select {
			case answers <- answer{value, err}:
			case <-bounded.Done():
				if err == nil {
					drop(value)
				}
			}
		}()
		select {
		case a := <-answers:
			return a.value, a.err
		case <-bounded.Done():
		}
	}
	if ctx.Err() != nil {
		late = ctx.Err()
	}
	return out, late
}

// onFileSystem looks in mountinfo whether a path is on the network file system that a volume asks for, and gives where that is mounted. The
// last of several mounts at one place is the one that is seen.
func onFileSystem(mountinfo string, volume *spec.HostVolume) (point string, err error) {
	kind := ""
	written := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, types := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(types) == 0 {
			continue
		}
		at := strings.TrimSuffix(written.Replace(fields[4]), "/")
		if (volume.Path == at || strings.HasPrefix(volume.Path, at+"/")) && len(at) >= len(point) {
			point, kind = at, types[0]
		}
	}
	if slices.Contains(spec.NetworkFileSystems()[volume.FileSystem], kind) {
		return point, nil
	}
	return "", &notMounted{*volume, kind}
}
