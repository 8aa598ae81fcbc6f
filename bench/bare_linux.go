package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry.dev/skerry/internal/files"
)

// bare runs the workload by an OCI runtime alone, from its own default bundle.
type bare struct {
	dir, runtime string
	n            atomic.Int64 // of containers that were started
}

func newBare(runtime, program string) (*bare, error) {
	dir, err := os.MkdirTemp("", "skerry-bench-")
	if err != nil {
		return nil, err
	}
	b := &bare{dir: dir, runtime: runtime}
	root := filepath.Join(dir, "rootfs")
	data, err := os.ReadFile(program)
	for _, d := range []string{root, filepath.Join(root, "proc"), filepath.Join(root, "sys"), filepath.Join(root, "dev")} {
		if err == nil { // the runtime would make them, but fails where two at once do
			err = os.Mkdir(d, 0o755)
		}
	}
	if err == nil {
		err = files.Program(filepath.Join(root, "program"), bytes.NewReader(data), 0o755)
	}
	if err == nil {
		cmd := exec.Command(runtime, "spec")
		cmd.Dir = dir
		err = cmd.Run()
	}
	var spec map[string]any
	if err == nil {
		data, err = os.ReadFile(filepath.Join(dir, "config.json"))
	}
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	if err == nil {
		process := spec["process"].(map[string]any)
		process["args"], process["terminal"] = []string{"/program"}, false
		data, err = json.Marshal(spec)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bare bundle: %w", err), os.RemoveAll(dir))
	}
	return b, nil
}

// run gives the time from the command to the workload's first line.
func (b *bare) run(ctx context.Context) (time.Duration, error) {
	begin := monotonicNow()
	began, end, err := b.start(ctx)
	if err != nil {
		return 0, err
	}
	end()
	return began - begin, nil
}

// start runs a container until its first line, which has the moment at which it was written; end takes the container away.
func (b *bare) start(ctx context.Context) (began time.Duration, end func(), err error) {
	id := fmt.Sprintf("skerry-bare-%d-%d", os.Getpid(), b.n.Add(1))
	cmd := exec.CommandContext(ctx, b.runtime, "run", "--bundle", b.dir, id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	var msg bytes.Buffer
	cmd.Stderr = &msg
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	end = func() {
		exec.Command(b.runtime, "kill", id, "KILL").Run()
		cmd.Wait()
		exec.Command(b.runtime, "delete", "-f", id).Run()
	}
	line := make([]byte, 64)
	length, err := out.Read(line)
	if err != nil {
		end()
		return 0, nil, fmt.Errorf("bare %s: %w: %s", b.runtime, err, msg.String())
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(line[:length])), 10, 64)
	if err != nil {
		end()
		return 0, nil, fmt.Errorf("bare %s: %w", b.runtime, err)
	}
	return time.Duration(ns), end, nil
}

// many gives the time that count containers take to their first lines, two of them started at a time; they run beside each other.
func (b *bare) many(ctx context.Context, count int) (time.Duration, error) {
	var mu sync.Mutex
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	var starts errgroup.Group
	starts.SetLimit(2)
	begin := monotonicNow()
	for range count {
		starts.Go(func() error {
			_, end, err := b.start(ctx)
			if err == nil {
				mu.Lock()
				ends = append(ends, end)
				mu.Unlock()
			}
			return err
		})
	}
	err := starts.Wait()
	return monotonicNow() - begin, err
}

func (b *bare) close() { os.RemoveAll(b.dir) }
