package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/lab/wan"
	"skerry.dev/skerry/spec"
)

// change runs f on the state of the network and brings the network in line with it.
func (l *Lab) change(ctx context.Context, f func(*ways) error) error {
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	w, err := l.ways()
	if err != nil {
		return err
	}
	if err := f(&w); err != nil {
		return err
	}
	return l.apply(ctx, &w)
}

// Partition cuts the ways between two sides: hosts, or SITE/* for a cluster with its workers. One way cuts only what goes
// from a to b.
func (l *Lab) Partition(ctx context.Context, a, b string, oneWay bool) error {
	list, err := l.Topology.waysBetween(a, b, oneWay)
	if err != nil {
		return err
	}
	return l.change(ctx, func(w *ways) error { w.cut(list); return nil })
}

// Heal gives back ways that Partition cut.
func (l *Lab) Heal(ctx context.Context, a, b string, oneWay bool) error {
	list, err := l.Topology.waysBetween(a, b, oneWay)
	if err != nil {
		return err
	}
	return l.change(ctx, func(w *ways) error { w.heal(list); return nil })
}

// LinkChange changes qualities of a link; nil leaves one as it is.
type LinkChange struct {
	Delay, Jitter            *time.Duration
	Loss, Duplicate, Reorder *Share
	Rate                     *Rate
}

// SetLink changes a host's cable, or with two sides the way between them, while the lab runs.
func (l *Lab) SetLink(ctx context.Context, sides []string, c LinkChange) error {
	of := Link{Between: sides}
	if len(sides) == 1 {
		of = Link{Host: sides[0]}
	}
	return l.change(ctx, func(w *ways) error {
		x := w.last(of)
		set := func(to *spec.Duration, v *time.Duration) {
			if v != nil {
				*to = spec.Duration(*v)
			}
		}
		set(&x.Delay, c.Delay)
		set(&x.Jitter, c.Jitter)
		for to, v := range map[*Share]*Share{&x.Loss: c.Loss, &x.Duplicate: c.Duplicate, &x.Reorder: c.Reorder} {
			if v != nil {
				*to = *v
			}
		}
		if c.Rate != nil {
			x.Rate = *c.Rate
		}
		var problem error
		l.Topology.checkLink(x, "link", func(_, hint, format string, args ...any) {
			problem = errors.Join(problem, skerry.Errorf(skerry.CodeInvalid, format, args...).WithHint("%s", hint))
		})
		if problem != nil {
			return problem
		}
		w.set(x)
		return nil
	})
}

// SetCPU gives a host with all that runs in it so much of the machine's processors and no more, as a hypervisor does
// that sold them twice: what the host says that it has stays what it was. 0: all that its limits allow. It holds until
// the host is switched off. Version 1 of cgroups refuses a group below it that may use more, so that such an instance
// does not start, and takes no limit below one that a group has there.
func (l *Lab) SetCPU(host string, cpu skerry.MilliCPU) error {
	h, err := l.host(host)
	if err != nil {
		return err
	}
	if cpu != 0 && (cpu < 10 || cpu > 1e6) {
		return skerry.Errorf(skerry.CodeInvalid, "%s of a processor is not 0.01 to 1000", cpu)
	}
	return limitCPU(l.cgroupOf(host), cmp.Or(cpu, h.Limits.CPU))
}

// SetNAT exchanges a NAT for one of another kind, or of the same. The new one knows nothing of connections that went
// through the old one.
func (l *Lab) SetNAT(ctx context.Context, router string, kind NAT) error {
	h, err := l.host(router)
	if err == nil && h.Role != RoleNAT {
		err = skerry.Errorf(skerry.CodeInvalid, "%s is not a NAT", router)
	}
	if err == nil {
		err = kind.check()
	}
	if err != nil {
		return err
	}
	return l.change(ctx, func(w *ways) error {
		w.NATs[router] = kind
		return l.route(h, kind)
	})
}

// Kill sends a signal to the agent of a host, and to nothing else: what it runs runs on.
func (l *Lab) Kill(host string, sig syscall.Signal) error {
	if _, err := l.host(host); err != nil {
		return err
	}
	p := l.agent(host)
	if p == nil {
		return skerry.Errorf(skerry.CodeConflict, "%s runs no role", host)
	}
	err := p.signal(unix.Signal(sig))
	if errors.Is(err, os.ErrProcessDone) {
		return skerry.Errorf(skerry.CodeConflict, "the role of %s is not running", host).WithHint("`skerry lab start %s %s` starts it again", l.Topology.Name, host)
	}
	if err == nil && sig == syscall.SIGKILL {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = p.wait(ctx)
	}
	return err
}

// Start starts the role of a host again, after switching the host on if it is off. It does not wait for the role.
func (l *Lab) Start(ctx context.Context, host string) error {
	h, err := l.host(host)
	if err != nil {
		return err
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if len(l.spaces(host)) == 0 {
		if err := l.makeHost(h); err != nil {
			return err
		}
		w, err := l.ways()
		if err == nil {
			err = l.apply(ctx, &w)
		}
		if err != nil {
			return err
		}
	}
	return l.startRole(ctx, h)
}

// Await waits until the role of a host is ready and connected to its parent.
func (l *Lab) Await(ctx context.Context, host string) error {
	h, err := l.host(host)
	if err != nil {
		return err
	}
	return l.awaitRole(ctx, h)
}

// PowerOff ends everything in a host at once, as when its power fails. Its data stays; Start switches it on again.
//
// A NAT has the other ends of cables, and is not switched off: that is CodeUnsupported.
func (l *Lab) PowerOff(ctx context.Context, host string) error {
	h, err := l.host(host)
	if err != nil {
		return err
	}
	if h.Role == RoleNAT {
		return skerry.Errorf(skerry.CodeUnsupported, "%s is a NAT, and its cables would go with it", host).WithHint("`skerry lab partition` cuts it off; `skerry lab set %s --nat KIND` makes it forget everybody", host)
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	b := belongs{cgroup: l.cgroupOf(host), spaces: l.spaces(host)}
	if err := b.end(ctx); err != nil {
		return fmt.Errorf("power off %s: %w", host, err)
	}
	if err := l.dropSpaces(host); err != nil {
		return fmt.Errorf("power off %s: %w", host, err)
	}
	if err := removeCgroup(ctx, l.cgroupOf(host)); err != nil {
		return fmt.Errorf("power off %s: %w", host, err)
	}
	// The kernel takes the host's end of the cable away some time after its last process; the other end goes at once.
	for _, dir := range []string{l.path("run", host), l.path("cables", host+".json")} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return l.unplug(h)
}

// Exec runs a command in a host, with cmd's streams, and gives its exit status. A signal that ended it counts as 128 plus
// its number, as in shells. When ctx ends the command is asked to end.
func (l *Lab) Exec(ctx context.Context, host string, cmd *exec.Cmd) (status int, err error) {
	if _, err := l.host(host); err != nil && host != wanName {
		return 0, err
	}
	if cmd.Env == nil {
		cmd.Env = l.env(host)
	}
	if cmd.Dir == "" {
		// Another mount namespace is entered at its root.
		if dir, err := os.Getwd(); err == nil {
			cmd.Dir = dir
		}
	}
	err = thread.Do(func() error { return l.spawn(host, "exec", cmd, &syscall.SysProcAttr{}) })
	if errors.Is(err, errOff) {
		return 0, skerry.Errorf(skerry.CodeUnavailable, "%w", err).WithHint("`skerry lab start %s %s` switches it on", l.Topology.Name, host)
	}
	if err != nil {
		return 0, fmt.Errorf("run in %s: %w", host, err)
	}
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// LogFile is the file with the output of a host's role.
func (l *Lab) LogFile(host string) (string, error) {
	if _, err := l.host(host); err != nil && host != wanName {
		return "", err
	}
	return l.logFile(host), nil
}

// HostStatus is how a host of a lab fares.
type HostStatus struct {
	Name      string      `json:"name"`
	Role      Role        `json:"role"`
	Address   string      `json:"address"`
	On        bool        `json:"on"`
	Behind    string      `json:"behind,omitempty"` // the NAT before it
	NAT       NAT         `json:"nat,omitempty"`    // its kind, of a NAT
	Agent     int         `json:"agent,omitempty"`  // process of its role
	Running   bool        `json:"running"`          // the agent is
	Processes int         `json:"processes"`
	Status    *RoleStatus `json:"status,omitempty"`
}

// State says in a word how the host fares.
func (h *HostStatus) State() string {
	switch {
	case !h.On:
		return "off"
	case h.Role == RoleNone, h.Role == RoleNAT:
		return "on"
	case !h.Running:
		return "stopped"
	case h.Status == nil:
		return "starting"
	case !h.Status.Ready:
		return "not ready"
	case !h.Status.connected():
		return "not connected"
	}
	return "connected"
}

// Status is how a lab fares.
type Status struct {
	Name    string        `json:"name"`
	Whole   bool          `json:"whole"` // Up has ended well
	Hosts   []HostStatus  `json:"hosts"`
	Links   []Link        `json:"links,omitempty"`
	Cut     []Way         `json:"cut,omitempty"`
	Packets *wan.Counters `json:"packets,omitempty"` // that were shaped
}

// Status asks every host.
func (l *Lab) Status(ctx context.Context) (Status, error) {
	w, err := l.ways()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Status{}, err
	}
	_, missing := os.Stat(l.path("up.json"))
	st := Status{Name: l.Topology.Name, Whole: errors.Is(missing, os.ErrNotExist), Links: w.Links, Cut: w.Cut}
	for _, h := range l.Topology.Hosts {
		spaces := l.spaces(h.Name)
		hs := HostStatus{Name: h.Name, Role: h.Role, Address: h.Address, Behind: h.Behind, NAT: w.NATs[h.Name], On: len(spaces) > 0}
		if hs.On {
			hs.Processes = len(belongs{cgroup: l.cgroupOf(h.Name), spaces: spaces}.processes())
		}
		if p := l.agent(h.Name); p != nil && p.alive() {
			hs.Agent, hs.Running = p.PID, true
			ask, cancel := context.WithTimeout(ctx, 3*time.Second)
			var role RoleStatus
			if l.local(ask, h.Name, http.MethodGet, "/status", nil, &role) == nil {
				hs.Status = &role
			}
			cancel()
		}
		st.Hosts = append(st.Hosts, hs)
	}
	if p := l.agent(wanName); p != nil && p.alive() {
		if a, err := wan.Call(ctx, l.wanSocket(), wan.Request{}); err == nil {
			st.Packets = &a.Counters
		}
	}
	return st, nil
}

// Names lists the hosts with a role; all with an empty one.
func (l *Lab) Names(r Role) (out []string) {
	for _, h := range l.Topology.Hosts {
		if r == "" || h.Role == r {
			out = append(out, h.Name)
		}
	}
	return slices.Clip(out)
}
