//go:build linux

package worker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/spec"
)

// serverPatience is how long the server of a network file system may take to answer before an instance is tried again.
const serverPatience = 10 * time.Second

// makeNetworkVolume finds a network file system mounted for an instance. Whether it is mounted is seen without asking its server, which may
// hang: whoever asks it then waits apart, so that neither the agent nor other instances do.
func (pl places) makeNetworkVolume(ctx context.Context, a *spec.Assignment, v *spec.Volume) error {
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	if err := onFileSystem(string(mounts), v.Host); err != nil {
		return err
	}
	if err := within(ctx, serverPatience, v.Host, func() error {
		_, err := os.Stat(v.Host.Path)
		return err
	}); err != nil || !bounded(a) {
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

// within waits for what may hang in the kernel, but not for longer than the patience or the context. What is asked must change nothing, for
// it may be answered long after that.
func within(ctx context.Context, patience time.Duration, volume *spec.HostVolume, ask func() error) error {
	answer := make(chan error, 1) // so that who is late finds room, and ends
	go func() { answer <- ask() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return &noAnswer{*volume, patience}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// onFileSystem looks in mountinfo whether a path is on the network file system that a volume asks for. The last of several mounts at one
// place is the one that is seen.
func onFileSystem(mountinfo string, volume *spec.HostVolume) error {
	point, kind := "", ""
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
		return nil
	}
	return &notMounted{*volume, kind}
}
