package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
)

// workspace is a directory for the processes of a benchmark, with what they log.
type workspace struct {
	dir string
	log *os.File
}

func (w *workspace) open() (err error) {
	if w.dir, err = os.MkdirTemp("", "skerry-bench-"); err != nil {
		return err
	}
	w.log, err = os.Create(filepath.Join(w.dir, "log"))
	return err
}

// tail gives the end of the log, for an error.
func (w *workspace) tail() error {
	if w.log == nil {
		return nil
	}
	data, err := os.ReadFile(w.log.Name())
	if err != nil || len(data) == 0 {
		return err
	}
	return fmt.Errorf("log: %s", data[max(0, len(data)-2000):])
}

// pushed builds an image for this machine and pushes it to the registry at an address, as a client that is logged in there.
func (w *workspace) pushed(ctx context.Context, build artifact.BuildOptions, tag, address string, client *api.Client) error {
	images, err := artifact.Open(filepath.Join(w.dir, "images"), artifact.Options{})
	if err != nil {
		return err
	}
	defer images.Close()
	build.Tag, build.Platform = "skerry.local/"+tag, artifact.HostPlatform()
	if _, err := images.Build(ctx, build); err != nil {
		return err
	}
	_, err = images.Push(ctx, build.Tag, build.Tag, &artifact.Source{BaseURL: "https://" + address, Transport: client.Transport()}, nil)
	return err
}

// await asks again and again whether something is so, for at most a time. pause is between an answer, which took a time, and the next
// question.
func await(ctx context.Context, limit time.Duration, pause func(took time.Duration) time.Duration, what string,
	ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		begin := time.Now()
		done, err := ok()
		if done {
			return nil
		}
		if err != nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, errors.Join(ctx.Err(), last))
		case <-time.After(pause(time.Since(begin))):
		}
	}
}
