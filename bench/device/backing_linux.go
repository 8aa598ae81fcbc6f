package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// backings looks once in each place what holds its files, while a program runs there: at the processes of the host that
// run it. What cannot be seen from there is said.
func (m *measuring) backings(ctx context.Context) error {
	t := m.tools[toolKernels]
	if t.missing != nil || !slices.ContainsFunc(m.cases, func(c Case) bool { return c.Group == "disk" }) {
		return nil
	}
	for _, p := range m.places {
		name := p.told().Name
		head := "Files of " + name + ": "
		if slices.ContainsFunc(m.r.Notes, func(s string) bool { return strings.HasPrefix(s, head) }) {
			continue
		}
		m.o.Say("what holds the files of %s", name)
		files, err := m.backing(ctx, p, t)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			files = []string{"not seen: " + why(err)}
		}
		m.r.Note("%s%s", head, strings.Join(files, "; "))
	}
	return nil
}

func (m *measuring) backing(ctx context.Context, p place, t *tool) (out []string, err error) {
	running, release, err := heldOn(ctx, p, job{tool: t, name: toolKernels, args: []string{"everything", dirHere}, mount: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	var disks, mounts []string
	for _, pid := range running {
		proc := fmt.Sprintf("/proc/%d/", pid)
		cmdline, err1 := os.ReadFile(proc + "cmdline")
		mountinfo, err2 := os.ReadFile(proc + "mountinfo")
		if errors.Join(err1, err2) != nil {
			continue // it has ended
		}
		disks = append(disks, diskBackings(string(cmdline))...)
		own, dir := "root: ", "/data"
		if q, ok := p.(*process); ok {
			own, dir = "files: ", q.dir
		} else if q, ok := p.(*driven); ok && q.hosts {
			own, dir = "files: ", q.host
		} else if s := mountBacking(string(mountinfo), "/"); s != "" {
			mounts = append(mounts, own+s)
			own = "mounted: "
		}
		if s := mountBacking(string(mountinfo), dir); s != "" {
			mounts = append(mounts, own+s)
		}
	}
	if len(disks) > 0 {
		// The machine's process is not in its guest: of its own mounts, the one that its disk is on tells what is below.
		mounts = []string{"of the host, below: " + mountBacking(mountsOf("/proc/self/mountinfo"), filepath.Join(m.dir, "drivers"))}
	}
	out = append(disks, mounts...)
	slices.Sort(out)
	if out = slices.Compact(out); len(out) == 0 {
		return nil, errors.New("its processes ended")
	}
	return out, nil
}

func mountsOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(text)
}
