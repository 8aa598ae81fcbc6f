//go:build linux

package oci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// runc 1.1 executes a program in a container by entering its namespaces, that of its users first. From there it may not enter a network
// that was made outside, which belongs to the host's users. So it starts in that network, with a copy of its state that names none.

// inNetwork gives what runc is told to execute something in a container beside the command, and the network to start it in. dir is made for
// the copy where one is needed.
func (d *Driver) inNetwork(t *monitor.Task, dir string) (global []string, network string, err error) {
	rec := t.Record()
	global = d.global(rec.Runtime)
	if outsideOf(t).Users == nil || filepath.Base(rec.Runtime) != "runc" {
		return global, "", nil
	}
	if network, err = withoutNetwork(d.root(rec.Runtime), dir, rec.Handle.ID); network != "" {
		global = append(global, "--root", dir) // the last one counts
	}
	return global, network, err
}

// withoutNetwork makes such a copy of runc's state of a container below dir, and gives the network that the container was put in; empty:
// it made its own, and nothing was copied.
func withoutNetwork(root, dir string, id runtime.TaskID) (network string, err error) {
	data, err := os.ReadFile(filepath.Join(root, string(id), "state.json"))
	if err != nil {
		return "", fmt.Errorf("the state of runc: %w", err)
	}
	var state map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&state); err != nil {
		return "", fmt.Errorf("the state of runc: %w", err)
	}
	config, ok := state["config"].(map[string]any)
	if !ok {
		return "", fmt.Errorf("the state of runc has no config")
	}
	spaces, _ := config["namespaces"].([]any)
	config["namespaces"] = slices.DeleteFunc(spaces, func(s any) bool {
		space, _ := s.(map[string]any)
		path, _ := space["path"].(string)
		if space["type"] != "NEWNET" || path == "" {
			return false
		}
		network = path
		return true
	})
	if network == "" {
		return "", nil
	}
	if data, err = json.Marshal(state); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, string(id)), 0o700); err != nil {
		return "", err
	}
	return network, os.WriteFile(filepath.Join(dir, string(id), "state.json"), data, 0o600)
}

// within runs f, and what it starts, in a network; empty: where this process is.
func within(network string, f func() (int, error)) (code int, err error) {
	if network == "" {
		return f()
	}
	thread.Run(func() {
		if err = enter(network); err == nil {
			code, err = f()
		}
	})
	return code, err
}
