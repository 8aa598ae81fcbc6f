// Package cdi reads descriptions of devices by the Container Device Interface (github.com/cncf-tags/container-device-interface,
// SPEC.md) and tells what of a container changes for a device. It reads files and nothing else. The worker imports it.
package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry/spec"
)

// Dirs are where descriptions are by the specification; what is in a later one wins.
func Dirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// maxFile bounds a file, in bytes; those of machines with many devices have some tens of thousands.
const maxFile = 4 << 20

// Spec is one file.
type Spec struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"` // vendor.com/class
	Devices []Device `json:"devices"`
	Edits   Edits    `json:"containerEdits"` // for all of them
	// Annotations are of all of them, too.
	Annotations map[string]string `json:"annotations"`
}

// Device is one device.
type Device struct {
	Name        string            `json:"name"`
	Edits       Edits             `json:"containerEdits"`
	Annotations map[string]string `json:"annotations"`
}

// Edits are what of a container changes.
type Edits struct {
	Env         []string     `json:"env"`
	DeviceNodes []DeviceNode `json:"deviceNodes"`
	Mounts      []Mount      `json:"mounts"`
	Hooks       []Hook       `json:"hooks"`
	GIDs        []uint32     `json:"additionalGids"`
	// What this version refuses: it is named, because what is left out silently would be missed later.
	IntelRDT   json.RawMessage `json:"intelRdt"`
	NetDevices json.RawMessage `json:"netDevices"`
}

// DeviceNode is a device node of the host.
type DeviceNode struct {
	Path        string `json:"path"`
	HostPath    string `json:"hostPath"` // empty: Path
	Permissions string `json:"permissions"`
}

// Mount is a bind mount.
type Mount struct {
	HostPath      string   `json:"hostPath"`
	ContainerPath string   `json:"containerPath"`
	Options       []string `json:"options"`
}

// Hook is a program of the host that the OCI runtime runs.
type Hook struct {
	Name    string   `json:"hookName"`
	Path    string   `json:"path"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Timeout *int     `json:"timeout"`
}

// HookNames lists when hooks may run; prestart has been given up by the OCI.
func HookNames() []string {
	return []string{"createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
}

// Parse reads a file, JSON or YAML, and refuses what makes no sense in it.
func Parse(data []byte) (*Spec, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", len(data), maxFile)
	}
	s := new(Spec)
	if err := yaml.Unmarshal(data, s); err != nil {
		return nil, err
	}
	if _, _, name, ok := spec.ParseCDI(s.Kind); !ok || name != "" {
		return nil, fmt.Errorf("kind %q is not vendor/class", s.Kind)
	}
	if !strings.HasPrefix(s.Version, "0.") && !strings.HasPrefix(s.Version, "1.") && s.Version != "1" {
		return nil, fmt.Errorf("version %q is not known", s.Version)
	}
	if len(s.Devices) == 0 {
		return nil, errors.New("it describes no device")
	}
	seen := map[string]bool{}
	for i := range s.Devices {
		d := &s.Devices[i]
		if _, _, _, ok := spec.ParseCDI(s.Kind + "=" + d.Name); !ok || seen[d.Name] {
			return nil, fmt.Errorf("device %q is no name, or there twice", d.Name)
		}
		seen[d.Name] = true
		if err := d.Edits.check(); err != nil {
			return nil, fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	return s, s.Edits.check()
}

func (e *Edits) check() error {
	for _, v := range e.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || !spec.CheckEnvName(name) || strings.ContainsRune(v, 0) {
			return fmt.Errorf("env %q is not NAME=value", v)
		}
	}
	for _, n := range e.DeviceNodes {
		if !plain(n.Path) || n.HostPath != "" && !plain(n.HostPath) {
			return fmt.Errorf("device node %q (host %q) is no absolute path", n.Path, n.HostPath)
		}
		if strings.Trim(n.Permissions, "rwm") != "" {
			return fmt.Errorf("device node %s: permissions %q are not of rwm", n.Path, n.Permissions)
		}
	}
	for _, m := range e.Mounts {
		if !plain(m.HostPath) || !plain(m.ContainerPath) {
			return fmt.Errorf("mount of %q at %q: no absolute paths", m.HostPath, m.ContainerPath)
		}
	}
	for _, h := range e.Hooks {
		if !plain(h.Path) || !slices.Contains(HookNames(), h.Name) {
			return fmt.Errorf("hook %q (%q) is not known", h.Name, h.Path)
		}
	}
	for what, raw := range map[string]json.RawMessage{"intelRdt": e.IntelRDT, "netDevices": e.NetDevices} {
		if len(raw) > 0 && string(raw) != "null" {
			return fmt.Errorf("%s is not supported", what)
		}
	}
	return nil
}

// plain reports whether a path is absolute, below the root, and means what it says.
func plain(p string) bool {
	return filepath.IsAbs(p) && filepath.Clean(p) == p && p != "/" && !strings.ContainsRune(p, 0)
}

// Registry is what the files of some directories describe.
type Registry struct {
	devices map[string]described // by vendor/class=name
	// Problems tells, by file, why it does not count.
	Problems map[string]string
}

// described is what a file says of a device.
type described struct {
	edits    Edits
	own, all map[string]string // annotations of it alone, and of all of its file
}

// Load reads all files. What is wrong with one has no effect on others; a directory that is not there has none.
func Load(dirs []string) *Registry {
	r := &Registry{devices: map[string]described{}, Problems: map[string]string{}}
	for _, dir := range dirs {
		here := map[string]string{} // of this directory: which file has a device
		for _, file := range files(dir) {
			data, err := os.ReadFile(file)
			var s *Spec
			if err == nil {
				s, err = Parse(data)
			}
			if err != nil {
				r.Problems[file] = err.Error()
				continue
			}
			for _, d := range s.Devices {
				name := s.Kind + "=" + d.Name
				if other := here[name]; other != "" { // nobody can tell which one is meant
					r.Problems[file] = fmt.Sprintf("%s is in %s, too", name, other)
					delete(r.devices, name)
					continue
				}
				here[name] = file
				r.devices[name] = described{s.Edits.with(d.Edits), d.Annotations, s.Annotations}
			}
		}
	}
	return r
}

func files(dir string) (out []string) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range list {
		if st, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && st.Mode()&fs.ModeType == 0 && st.Size() <= maxFile &&
			slices.Contains([]string{".json", ".yaml"}, filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

func (e Edits) with(o Edits) Edits {
	return Edits{Env: slices.Concat(e.Env, o.Env), DeviceNodes: slices.Concat(e.DeviceNodes, o.DeviceNodes),
		Mounts: slices.Concat(e.Mounts, o.Mounts), Hooks: slices.Concat(e.Hooks, o.Hooks), GIDs: slices.Concat(e.GIDs, o.GIDs)}
}

// Names lists the devices whose nodes are all there, in order.
func (r *Registry) Names() (out []string) {
	for name, d := range r.devices {
		if !slices.ContainsFunc(d.edits.DeviceNodes, func(n DeviceNode) bool { _, err := os.Stat(n.Host()); return err != nil }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Nodes lists the nodes of the host that belong to some device.
func (r *Registry) Nodes() (out []string) {
	for _, d := range r.devices {
		for _, n := range d.edits.DeviceNodes {
			out = append(out, n.Host())
		}
	}
	return out
}

// Device gives what changes for a device.
func (r *Registry) Device(name string) (Edits, bool) {
	d, ok := r.devices[name]
	return d.edits, ok
}

// Annotations gives those of a device, and those of all devices of its file.
func (r *Registry) Annotations(name string) (own, all map[string]string) {
	return r.devices[name].own, r.devices[name].all
}

// Host is where the node is on the host.
func (n DeviceNode) Host() string {
	if n.HostPath != "" {
		return n.HostPath
	}
	return n.Path
}
