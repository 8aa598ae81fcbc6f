package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/containerd"
	"skerry.dev/skerry/spec"
)

// ContainerdClass is a class of a containerd's shims, which services name by runtimeClass.
type ContainerdClass struct {
	Name, Shim, Binary string
	Isolation          spec.Isolation // that it is to have; its self-test looks
	Snapshotter        string         // of the daemon's, for root file systems; empty: they are mounted here
}

// maxContainerdClasses bounds the classes of a worker: each has a self-test.
const maxContainerdClasses = 16

// ParseContainerdClasses reads classes as NAME=SHIM[,isolation=ISOLATION][,binary=PROGRAM][,snapshotter=NAME].
func ParseContainerdClasses(list []string) (out []ContainerdClass, err error) {
	bad := func(s, hint, format string, args ...any) error {
		return skerry.Errorf(skerry.CodeInvalid, "--containerd-class %s: %s", s, fmt.Sprintf(format, args...)).WithHint("%s", hint)
	}
	for _, s := range list {
		first, rest, more := strings.Cut(s, ",")
		c := ContainerdClass{Isolation: spec.IsolationShared}
		c.Name, c.Shim, _ = strings.Cut(first, "=")
		if err := skerry.CheckName(c.Name); err != nil {
			return nil, bad(s, "write NAME=SHIM, as in kata=io.containerd.kata.v2,isolation=hardware", "%s", err)
		}
		if c.Shim == "" {
			return nil, bad(s, "write it after the name, as in kata=io.containerd.kata.v2", "it names no shim")
		}
		if slices.ContainsFunc(out, func(o ContainerdClass) bool { return o.Name == c.Name }) {
			return nil, bad(s, "give one of them another name", "a class %s is there already", c.Name)
		}
		for o := range strings.SplitSeq(rest, ",") {
			switch key, value, _ := strings.Cut(o, "="); {
			case !more:
			case key == "isolation" && slices.Contains(spec.Isolations(), value):
				c.Isolation = spec.Isolation(value)
			case key == "isolation":
				return nil, bad(s, "use "+strings.Join(spec.Isolations(), ", "), "isolation %q is none", value)
			case key == "binary" && value != "":
				c.Binary = value
			case key == "snapshotter" && value != "":
				c.Snapshotter = value
			default:
				return nil, bad(s, "use isolation, binary and snapshotter", "option %q is not known, or has no value", o)
			}
		}
		out = append(out, c)
	}
	if len(out) > maxContainerdClasses {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--containerd-class: %d classes; at most %d are allowed", len(out), maxContainerdClasses)
	}
	return out, nil
}

// containerdDrivers adds the drivers of containerd: that of its default shim, those of its classes, and those of
// classes that are not declared any more and have left their directory, for containers of theirs may still run.
func (c *WorkerConfig) containerdDrivers(out []runtime.Driver, keeper []string) ([]runtime.Driver, error) {
	o := containerd.Options{CgroupParent: c.CgroupParent, Socket: c.Containerd.Socket, Keeper: keeper, Log: c.Log}
	add := func(o containerd.Options, name string) error {
		o.Dir = filepath.Join(c.Dir, strings.ReplaceAll(name, "/", "."))
		d, err := containerd.New(o)
		if err == nil {
			out = append(out, d)
		}
		return err
	}
	plain := o
	plain.Shim, plain.Binary = c.Containerd.Shim, c.Containerd.Binary
	if err := add(plain, spec.RuntimeContainerd); err != nil {
		return out, err
	}
	declared := map[string]bool{}
	for _, class := range c.Containerd.Classes {
		x := o
		x.Class, x.Isolation, x.Shim, x.Binary, x.Snapshotter = class.Name, class.Isolation, class.Shim, class.Binary, class.Snapshotter
		name := spec.ClassRuntime(class.Isolation, class.Name)
		declared[name] = true
		if err := add(x, name); err != nil {
			return out, err
		}
	}
	for _, isolation := range spec.Isolations() {
		left, _ := filepath.Glob(filepath.Join(c.Dir, spec.RuntimeContainerd+"."+isolation+".*"))
		for _, dir := range left {
			class := filepath.Base(dir)[len(spec.RuntimeContainerd+"."+isolation+"."):]
			name := spec.ClassRuntime(spec.Isolation(isolation), class)
			if st, err := os.Stat(dir); err != nil || !st.IsDir() || declared[name] || skerry.CheckName(class) != nil {
				continue
			}
			x := o
			x.Class, x.Isolation, x.Undeclared = class, spec.Isolation(isolation), true
			if err := add(x, name); err != nil {
				return out, err
			}
			d := out[len(out)-1]
			if tasks, err := d.List(context.Background()); err == nil && len(tasks) == 0 {
				out = out[:len(out)-1]
				if err := errors.Join(d.Close(), os.RemoveAll(dir)); err != nil {
					return out, err
				}
			}
		}
	}
	return out, nil
}
