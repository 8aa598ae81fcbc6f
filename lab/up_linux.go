package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

// maxSocketPath is the longest path of a role's socket; the kernel takes 107 bytes.
const maxSocketPath = 100

// Up makes a lab and starts every role in it, parents first. It returns when all are connected. What it made before an
// error it takes down again.
func Up(ctx context.Context, t Topology, opt Options) (*Lab, error) {
	if err := opt.fill(); err != nil {
		return nil, err
	}
	if problems := t.complete(); len(problems) > 0 {
		return nil, &skerry.Error{Code: skerry.CodeInvalid, Message: "the topology is not valid", Problems: problems}
	}
	if os.Geteuid() != 0 {
		return nil, skerry.Errorf(skerry.CodeForbidden, "a lab makes network namespaces, mounts and cgroups, and needs root").WithHint("run it with sudo")
	}
	l := &Lab{Topology: t, Data: filepath.Join(opt.Data, t.Name), Binary: opt.Binary, Helper: opt.Helper, Boot: bootID(),
		dir: filepath.Join(opt.Dir, t.Name), log: opt.Log}
	for _, h := range t.Hosts {
		if n := len(filepath.Join(l.hostDir(h.Name), "control.sock")); n > maxSocketPath {
			return nil, skerry.Errorf(skerry.CodeInvalid, "the data directory of %s would have a path of %d bytes, too long for its socket",
				h.Name, n).WithHint("choose shorter names, or another --data directory")
		}
	}
	if err := os.MkdirAll(opt.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := os.Mkdir(l.dir, 0o700); errors.Is(err, os.ErrExist) {
		return nil, skerry.Errorf(skerry.CodeConflict, "there is a lab %q already", t.Name).WithHint("`skerry lab down %s` ends it, also if it is not whole", t.Name)
	} else if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := l.up(ctx); err != nil {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if e := Down(down, t.Name, opt); e != nil {
			err = errors.Join(err, fmt.Errorf("and it could not be taken down: %w", e))
		}
		return nil, fmt.Errorf("lab %s: %w", t.Name, err)
	}
	return l, nil
}

func (l *Lab) up(ctx context.Context) error {
	self, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	// What is written down first lets Down find everything that comes later.
	if err := writeJSON(l.path("up.json"), self); err != nil {
		return err
	}
	if err := writeJSON(l.path("lab.json"), l); err != nil {
		return err
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, d := range []string{"agents", "admission", "tokens", "cables", "run", "sys"} {
		if err := os.Mkdir(l.path(d), 0o700); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(l.Data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(l.path("hosts"), []byte(l.hostsFile()), 0o644); err != nil {
		return err
	}
	if err := l.prepareSpaces(); err != nil {
		return err
	}
	if err := l.wanSpace(); err != nil {
		return err
	}
	w := &ways{Links: l.Topology.Links, NATs: map[string]NAT{}}
	for _, h := range l.Topology.outwardFirst() {
		if err := l.makeHost(h); err != nil {
			return err
		}
		if h.Role == RoleNAT {
			w.NATs[h.Name] = h.NAT
			if err := l.route(h, h.NAT); err != nil {
				return err
			}
		}
	}
	if err := l.apply(ctx, w); err != nil {
		return err
	}
	l.log("%d hosts have an address", len(l.Topology.Hosts))
	for _, r := range []Role{RoleRoot, RoleCluster, RoleWorker} {
		if err := l.startTier(ctx, r); err != nil {
			return err
		}
	}
	return os.Remove(l.path("up.json"))
}

// startTier starts all hosts of a role at the same time and waits for them.
func (l *Lab) startTier(ctx context.Context, r Role) error {
	var wg sync.WaitGroup
	names := l.Topology.withRole(r)
	errs := make([]error, len(names))
	for i, name := range names {
		wg.Go(func() {
			h := l.Topology.Host(name)
			if errs[i] = l.startRole(ctx, h); errs[i] == nil {
				errs[i] = l.awaitRole(ctx, h)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(names) > 0 {
		l.log("%s: %s", r, strings.Join(names, ", "))
	}
	return nil
}

// hostsFile makes the hosts' names known to each other.
func (l *Lab) hostsFile() string {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost\n")
	for _, h := range l.Topology.Hosts {
		fmt.Fprintf(&b, "%s\t%s\n", h.Address, h.Name)
	}
	return b.String()
}

// Down ends a lab and removes everything of it: processes, namespaces, mounts, cgroups, files. It works on a lab that is
// not whole, and does nothing where there is none. After two minutes it gives up, and says what does not go.
func Down(ctx context.Context, name string, opt Options) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := opt.fill(); err != nil {
		return err
	}
	if err := skerry.CheckName(name); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "lab: %w", err)
	}
	l, err := Open(name, opt)
	if err != nil {
		// Not even its description is there, or it is damaged; its name says where everything is.
		l = &Lab{Topology: Topology{Name: name}, Data: filepath.Join(opt.Data, name), dir: filepath.Join(opt.Dir, name), log: opt.Log,
			Boot: bootID()}
	}
	var maker process
	if readJSON(l.path("up.json"), &maker) == nil && maker.PID != os.Getpid() && l.Boot == bootID() {
		if err := maker.signal(unix.SIGKILL); err == nil {
			if err := maker.wait(ctx); err != nil {
				return err
			}
		}
	}
	b := belongs{cgroup: l.cgroupOf("")}
	kept, _ := filepath.Glob(l.path("ns", "*.net"))
	for _, file := range kept {
		b.spaces = append(b.spaces, l.spaces(strings.TrimSuffix(filepath.Base(file), ".net"))...)
	}
	if err := b.end(ctx); err != nil {
		return fmt.Errorf("lab %s: %w", name, err)
	}
	if err := unmountAll(l.dir); err != nil {
		return fmt.Errorf("lab %s: %w", name, err)
	}
	if err := removeCgroup(ctx, l.cgroupOf("")); err != nil {
		return fmt.Errorf("lab %s: %w", name, err)
	}
	for _, dir := range []string{l.Data, l.dir} { // the description last
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("lab %s: %w", name, err)
		}
		if parent := filepath.Dir(dir); parent == DefaultDir || parent == DefaultData {
			_ = os.Remove(parent) // it stays while there are others
		}
	}
	return nil
}
