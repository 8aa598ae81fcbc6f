//go:build linux

package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// Compiling the filter takes libseccomp 10 to 20 ms, twice as long as all the rest of a start. Crun leaves the compiled
// program in its state directory and accepts one in an annotation, so each filter is compiled once per machine.
const compiledAnnotation = "run.oci.seccomp_bpf_data"

// filterKey names a compiled filter: what it was compiled from, and by whom.
type filterKey string

// addSeccomp puts the filter into the configuration. The key is where to keep what crun compiles from it; it is empty
// when there is nothing to be kept. The profile stays in the configuration for a crun that ignores the annotation.
func (d *Driver) addSeccomp(config *specs.Spec, spec runtime.Spec, root, program string) (filterKey, error) {
	if err := filter(config, spec, root); err != nil || config.Linux.Seccomp == nil {
		return "", err
	}
	if !isCrun(program) {
		return "", nil
	}
	text, err := json.Marshal(config.Linux.Seccomp)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(program)
	if err != nil {
		return "", nil
	}
	h := sha256.New()
	h.Write(text)
	h.Write([]byte(program + st.ModTime().String()))
	key := filterKey(hex.EncodeToString(h.Sum(nil)))
	if compiled := d.compiled(key); compiled != "" {
		config.Annotations = map[string]string{compiledAnnotation: compiled}
		return "", nil
	}
	return key, nil
}

// filter puts the filter of system calls that a task is to have into the configuration. The profile names the machine's architecture
// first, and then those whose system calls its kernel also takes. Calls of an architecture that is left out end the task. The others are
// left out unless the image at root has their loader: runc compiles a filter for each of them at each start, and they are one
// more interface of the kernel to attack.
func filter(c *specs.Spec, spec runtime.Spec, root string) (err error) {
	if spec.Privileged || spec.Seccomp == runtime.SeccompUnconfined {
		return nil
	}
	if c.Linux.Seccomp, err = seccomp.GetDefaultProfile(c); err != nil {
		return err
	}
	if n := len(c.Linux.Seccomp.Architectures); n > 1 && !hasForeign(root) {
		c.Linux.Seccomp.Architectures = c.Linux.Seccomp.Architectures[:1]
	}
	return nil
}

// hasForeign reports whether a root has a loader of 32-bit programs.
func hasForeign(dir string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	for _, in := range []string{"lib", "usr/lib"} {
		for _, loader := range foreignLoaders() {
			if _, err := root.Lstat(in + "/" + loader); err == nil {
				return true
			}
		}
	}
	return false
}

// foreignLoaders are those of 32-bit programs on amd64 and arm64, of glibc and of musl.
func foreignLoaders() []string {
	return []string{"ld-linux.so.2", "ld-musl-i386.so.1", "ld-linux-armhf.so.3", "ld-linux.so.3", "ld-musl-armhf.so.1", "ld-musl-arm.so.1"}
}

// compiled gives a filter in base64, "" when there is none yet.
func (d *Driver) compiled(key filterKey) string {
	d.mu.Lock()
	text := d.filters[key]
	d.mu.Unlock()
	if text != "" {
		return text
	}
	data, err := os.ReadFile(d.filterFile(key))
	if err != nil || !plausible(data) {
		return ""
	}
	text = base64.StdEncoding.EncodeToString(data)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filters[key] = text
	return text
}

// keepFilter keeps what crun compiled for a task that has just started. A failure costs time later, no more.
func (d *Driver) keepFilter(key filterKey, t *monitor.Task, root string) {
	if key == "" {
		return
	}
	data, err := os.ReadFile(filepath.Join(root, string(t.Record().Handle.ID), "seccomp.bpf"))
	if err != nil || !plausible(data) {
		return
	}
	file := d.filterFile(key)
	tmp := file + ".tmp." + string(t.Record().Handle.ID)
	if os.MkdirAll(filepath.Dir(file), 0o700) != nil || os.WriteFile(tmp, data, 0o600) != nil {
		return
	}
	_ = os.Rename(tmp, file)
}

func (d *Driver) filterFile(key filterKey) string {
	return filepath.Join(d.Options.Dir, "seccomp", string(key))
}

// plausible says whether data can be a whole classic BPF program: the instructions are 8 bytes each, and the last one
// returns. A file cut short by a power failure is compiled again, not trusted.
func plausible(data []byte) bool {
	n := len(data)
	return n >= 64 && n%8 == 0 && n/8 <= 4096 && !bytes.Equal(data[n-8:], make([]byte, 8)) && data[n-8]&0x07 == 0x06
}
