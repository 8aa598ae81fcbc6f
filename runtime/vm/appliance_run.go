//go:build linux

package vm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// appliance is a machine whose system is the image's own: a unikernel, or what is on a disk.
type appliance struct {
	// Args are the words of a unikernel's command line, in which $(NAME) stands for a variable of Env, or of the network.
	Args []string `json:",omitempty"`
	Env  []string `json:",omitempty"`
	// DNS are the servers that the system is to ask.
	DNS []string `json:",omitempty"`

	// Disk is the image's, in a format and of a size that were looked at; Overlay is a qcow2 above it. Relaxed says that a flush of
	// the machine's need not reach stable storage. Seed is what its system is told.
	Disk    string `json:",omitempty"`
	Format  string `json:",omitempty"`
	Size    int64  `json:",omitempty"`
	Overlay string `json:",omitempty"`
	Relaxed bool   `json:",omitempty"`
	Seed    *seed  `json:",omitempty"`
}

// plug is the signal to vm-run that ends an appliance at once.
const plug = syscall.SIGQUIT

// runAppliance makes a machine that is known by its console and its end alone, and stays until it has ended.
func (v *vm) runAppliance(signals <-chan os.Signal) (int, error) {
	copied := make(chan struct{})
	monitor, ended, err := v.startAppliance(copied)
	if err != nil {
		return 1, err
	}
	if err := monitor.begin(); err != nil {
		select {
		case end := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](end); ok && exit.Exited() { // its own refusal
				return 1, errors.New(strings.TrimPrefix(v.lastWords(), "; the last it wrote:\n"))
			}
			return v.status(end, "")
		case <-time.After(time.Second):
		}
		return 1, fmt.Errorf("speak with the machine: %w%s", err, v.lastWords())
	}
	if err := v.tellReady(); err != nil {
		return 1, err // who waited is gone
	}
	reason := make(chan string, 1)
	go func() {
		last := ""
		for {
			a, err := monitor.next()
			if err != nil {
				reason <- last
				return
			}
			if a.Event == "SHUTDOWN" {
				last = a.Data.Reason
			}
		}
	}()
	for {
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGTERM, syscall.SIGINT:
				_ = monitor.say("system_powerdown")
			case plug:
				return 128 + int(syscall.SIGKILL), nil // whoever started this process ends the machine
			}
		case err := <-ended:
			why := <-reason
			<-copied
			return v.status(err, why)
		}
	}
}

// status makes an exit status of how a machine ended, and why as QEMU has it.
func (v *vm) status(err error, why string) (int, error) {
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil && why == "guest-reset":
		return 1, errors.New("the machine reset itself, as one does that fails without a word")
	case err == nil:
		return 0, nil
	case failed && exit.Exited() && exit.ExitCode()&1 == 1 && v.parts().exit != "":
		return exit.ExitCode() >> 1, nil // what isa-debug-exit makes of what is written to it
	case failed && exit.Exited():
		return exit.ExitCode(), nil // as riscv64's test device has it
	case failed && exit.Sys().(syscall.WaitStatus).Signaled():
		return 128 + int(exit.Sys().(syscall.WaitStatus).Signal()), fmt.Errorf("the machine ended by itself (%w)%s", err, v.lastWords())
	}
	return 1, fmt.Errorf("the machine ended by itself (%w)%s", err, v.lastWords())
}

func (v *vm) parts() parts {
	if v.setup.Kernel == "" {
		return computer(runtime.GOARCH)
	}
	return bareBoard(runtime.GOARCH)
}

func (v *vm) startAppliance(copied chan<- struct{}) (*qmp, <-chan error, error) {
	setup := v.setup
	fail := func(err error) (*qmp, <-chan error, error) { return nil, nil, err }
	m := &machine{Accel: setup.Accel, Parts: v.parts(), RAM: setup.RAM, CPUs: setup.CPUs, Reboots: setup.Kernel == ""}
	var files opened
	defer files.close()
	if err := v.isolate(); err != nil {
		return fail(err)
	}
	var err error
	if setup.NetNS != "" {
		if m.NIC, _, err = joinNetwork(); err != nil {
			return fail(fmt.Errorf("network: %w", err))
		}
		if m.NIC != nil {
			files = append(files, m.NIC.Tap)
		}
	}
	if setup.Kernel != "" {
		if m.Kernel, err = files.open(setup.Kernel, os.O_RDONLY); err != nil {
			return fail(err)
		}
		if m.Cmdline, err = setup.Appliance.commandLine(m.NIC); err != nil {
			return fail(err)
		}
	}
	if setup.Appliance.Disk != "" {
		if err := v.disks(m, &files); err != nil {
			return fail(err)
		}
	}
	v.console = &tail{}
	console, theirs, err := files.pair()
	if err != nil {
		return fail(err)
	}
	m.Console = theirs
	control, theirs, err := files.pair()
	if err != nil {
		return fail(err)
	}
	m.Monitor = theirs
	ended, err := v.spawn(qemu(setup.QEMU), m)
	if err != nil {
		return fail(err)
	}
	go func() {
		_, _ = io.Copy(os.Stdout, console)
		close(copied)
	}()
	return newQMP(control), ended, nil
}

// longestCommandLine is what all know of that take one.
const longestCommandLine = 2048

// commandLine joins the words of a command line, with what their variables stand for.
func (a *appliance) commandLine(n *nic) (string, error) {
	vars := map[string]string{}
	for _, e := range a.Env {
		name, value, _ := strings.Cut(e, "=")
		vars[name] = value
	}
	if n != nil {
		n.variables(vars)
	}
	if len(a.DNS) > 0 {
		vars["NET_DNS"] = a.DNS[0]
	}
	words := make([]string, len(a.Args))
	for i, w := range a.Args {
		text, err := expand(w, vars)
		if err != nil {
			return "", fmt.Errorf("args[%d]: %w", i+1, err)
		}
		if text == "" || strings.ContainsAny(text, " \t") {
			text = `"` + text + `"`
		}
		words[i] = text
	}
	line := strings.Join(words, " ")
	if len(line) > longestCommandLine {
		return "", fmt.Errorf("args: the command line has %d bytes; a kernel takes %d", len(line), longestCommandLine)
	}
	return line, nil
}

// variables are what a command line can tell of the network.
func (n *nic) variables(vars map[string]string) {
	vars["NET_MAC"], vars["NET_MTU"] = n.MAC.String(), fmt.Sprint(n.MTU)
	for _, p := range n.Addresses {
		name := "NET_IPV6"
		if p.Addr().Is4() {
			name = "NET_IPV4"
		}
		if _, ok := vars[name]; !ok {
			vars[name], vars[name+"_CIDR"] = p.Addr().String(), p.String()
		}
	}
	for _, r := range n.Routes {
		switch {
		case r.Via == "":
		case r.To == "0.0.0.0/0":
			vars["NET_IPV4_GATEWAY"] = r.Via
		case r.To == "::/0":
			vars["NET_IPV6_GATEWAY"] = r.Via
		}
	}
}

// expand puts the values of variables in place of $(NAME); $$ is a dollar.
func expand(s string, vars map[string]string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
		case strings.HasPrefix(after, "("):
			name, rest, closed := strings.Cut(after[1:], ")")
			value, ok := vars[name]
			if !closed || !ok {
				return "", fmt.Errorf("$(%s) is no variable of the container, nor of its network", name)
			}
			b.WriteString(value)
			s = rest
		default:
			b.WriteByte('$')
			s = after
		}
	}
}
