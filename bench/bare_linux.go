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
	"time"

	"skerry.dev/skerry/internal/files"
)

// bare runs the workload by an OCI runtime alone, from its own default bundle.
type bare struct {
	dir, runtime string
	n            int
}

func newBare(runtime, program string) (*bare, error) {
	dir, err := os.MkdirTemp("", "skerry-bench-")
	if err != nil {
		return nil, err
	}
	b := &bare{dir: dir, runtime: runtime}
	root := filepath.Join(dir, "rootfs")
	data, err := os.ReadFile(program)
	if err == nil {
		err = os.Mkdir(root, 0o755)
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
	b.n++
	id := fmt.Sprintf("skerry-bare-%d-%d", os.Getpid(), b.n)
	cmd := exec.CommandContext(ctx, b.runtime, "run", "--bundle", b.dir, id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	var msg bytes.Buffer
	cmd.Stderr = &msg
	begin := monotonicNow()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	buf := make([]byte, 64)
	n, err := out.Read(buf)
	exec.Command(b.runtime, "kill", id, "KILL").Run()
	cmd.Wait()
	exec.Command(b.runtime, "delete", "-f", id).Run()
	if err != nil {
		return 0, fmt.Errorf("bare %s: %w: %s", b.runtime, err, msg.String())
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(buf[:n])), 10, 64)
	return time.Duration(ns) - begin, err
}

func (b *bare) close() { os.RemoveAll(b.dir) }
