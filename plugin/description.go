package plugin

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Limits of descriptions.
const (
	DefaultTimeout = 200 * time.Millisecond
	MaxTimeout     = time.Second
	DefaultMemory  = 64 * skerry.MiB
	MinMemory      = 1 * skerry.MiB
	MaxMemory      = 1 * skerry.GiB
	MaxPlugins     = 32 // of a site
	maxDescription = 64 << 10
	maxEnv         = 64
)

// Kinds of plugins.
const (
	KindWasm = "wasm" // a WebAssembly module (WASI preview 1), run in this process
	KindExec = "exec" // a program that answers JSON lines, in a process of its own
)

// Description is the content of NAME.yaml or NAME.json in the directory of plugins.
type Description struct {
	Kind string `json:"kind"`
	// File is the module or the executable; a relative path begins at the directory of plugins.
	File string `json:"file,omitempty"`
	// Command is a program with its arguments, in place of File: a name is looked up in Path; a path, and arguments that name
	// files of the directory of plugins, are watched for changes.
	Command []string `json:"command,omitempty"`
	// Env is what the plugin finds in its environment.
	Env map[string]string `json:"env,omitempty"`
	// All shows the plugin every service of the site, else those alone that name it as placement.policy.
	All bool `json:"all,omitempty"`
	// OnFailure is skip (the default) or reject: what happens to an instance when the plugin does not answer.
	OnFailure string `json:"onFailure,omitempty"`
	// Timeout bounds one answer. The default is DefaultTimeout, the most MaxTimeout.
	Timeout spec.Duration `json:"timeout,omitempty"`
	// Memory bounds the plugin. The default is DefaultMemory.
	Memory skerry.Bytes `json:"memory,omitempty"`
}

// Reject reports whether instances are refused that the plugin does not judge.
func (d *Description) Reject() bool { return d.OnFailure == "reject" }

// Path is where programs of plugins are looked up: not in the operator's PATH, which nobody else may be able to read.
const Path = "/usr/local/bin:/usr/bin:/bin"

// ParseDescription reads a description strictly, and fills in defaults. Every problem found is named.
func ParseDescription(data []byte) (*Description, error) {
	if len(data) > maxDescription {
		return nil, skerry.Errorf(skerry.CodeTooLarge, "the description has %d bytes; at most %d are accepted", len(data), maxDescription)
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the description is not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var d Description
	problems := spec.DecodeStrict(text, &d)
	add := func(path, hint, format string, args ...any) {
		problems = append(problems, skerry.Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if len(problems) == 0 {
		d.check(add)
	}
	if len(problems) > 0 {
		return nil, &skerry.Error{Code: skerry.CodeInvalid, Message: "the description is not valid", Problems: problems}
	}
	if d.OnFailure == "" {
		d.OnFailure = "skip"
	}
	if d.Timeout == 0 {
		d.Timeout = spec.Duration(DefaultTimeout)
	}
	if d.Memory == 0 {
		d.Memory = DefaultMemory
	}
	return &d, nil
}

func (d *Description) check(add func(path, hint, format string, args ...any)) {
	switch d.Kind {
	case KindWasm:
		if d.File == "" {
			add("file", "name the module, for example greenest.wasm", "a module is missing")
		}
		if len(d.Command) > 0 {
			add("command", "use file", "a WebAssembly module has no command")
		}
	case KindExec:
		switch {
		case d.File == "" && len(d.Command) == 0:
			add("file", "name the executable, or give a command", "a program is missing")
		case d.File != "" && len(d.Command) > 0:
			add("command", "leave one of them away", "there is a file and a command")
		case len(d.Command) > 0 && d.Command[0] == "":
			add("command[0]", "", "the program is missing")
		}
	default:
		add("kind", "use wasm or exec", "%q is no kind of plugin", d.Kind)
	}
	for i, s := range append([]string{d.File}, d.Command...) {
		if strings.ContainsRune(s, 0) {
			add([]string{"file", "command"}[min(i, 1)], "", "holds a zero byte")
		}
	}
	if len(d.Env) > maxEnv {
		add("env", "", "has %d entries; at most %d are accepted", len(d.Env), maxEnv)
	}
	for _, k := range slices.Sorted(maps.Keys(d.Env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(d.Env[k], 0) {
			add("env", "", "%q is no variable", k)
		}
	}
	if d.OnFailure != "" && d.OnFailure != "skip" && d.OnFailure != "reject" {
		add("onFailure", "use skip or reject", "%q is not known", d.OnFailure)
	}
	if t := time.Duration(d.Timeout); t < 0 || t > MaxTimeout {
		add("timeout", "", "must be more than 0 and at most %s, not %s", MaxTimeout, t)
	}
	if d.Memory != 0 && (d.Memory < MinMemory || d.Memory > MaxMemory) {
		add("memory", "", "must be from %s to %s, not %s", MinMemory, MaxMemory, d.Memory)
	}
}

// path gives a file of the description as it is found from anywhere.
func path(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// argv gives the program and its arguments. Those that name a file of the directory stay as they are: the program runs in it.
func (d *Description) argv(dir string) ([]string, error) {
	args := d.Command
	if d.File != "" {
		args = []string{path(dir, d.File)}
	} else if strings.Contains(args[0], "/") {
		args = append([]string{path(dir, args[0])}, args[1:]...)
	} else {
		for _, p := range filepath.SplitList(Path) {
			if at := filepath.Join(p, args[0]); executable(at) == nil {
				return append([]string{at}, args[1:]...), nil
			}
		}
		return nil, fmt.Errorf("there is no program %s in %s", args[0], Path)
	}
	return args, executable(args[0])
}

func executable(at string) error {
	i, err := os.Stat(at)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s does not exist", at)
	case err != nil:
		return err
	case i.IsDir():
		return fmt.Errorf("%s is a directory", at)
	case i.Mode()&0o111 == 0 && filepath.Separator == '/':
		return fmt.Errorf("%s is not executable; chmod +x it", at)
	}
	return nil
}

// files are those whose change makes a new version of the plugin.
func (d *Description) files(dir string) []string {
	if d.File != "" {
		return []string{path(dir, d.File)}
	}
	var out []string
	for _, a := range d.Command {
		if at := path(dir, a); a != "" && (strings.Contains(a, "/") || filepath.Dir(at) == filepath.Clean(dir)) {
			if i, err := os.Stat(at); err == nil && i.Mode().IsRegular() {
				out = append(out, at)
			}
		}
	}
	return out
}
