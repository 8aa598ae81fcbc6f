package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/ctl"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/runtime"
)

// machineChecks tells whether this machine can be a worker, and how what runs here fares.
func machineChecks(ctx context.Context, data string) []ctl.Check {
	if data == "" {
		data = role.DefaultData()
	}
	d := &doctor{ctx: ctx, data: data}
	d.kernel()
	d.rights()
	d.cgroups()
	d.overlay()
	d.programs()
	d.forwarding()
	d.neighbours()
	d.clock()
	d.disk()
	d.roles()
	return d.out
}

// doctor collects findings.
type doctor struct {
	ctx  context.Context
	data string
	out  []ctl.Check
}

func (d *doctor) add(name, state, text, cure string) {
	d.out = append(d.out, ctl.Check{Name: name, State: state, Text: text, Cure: cure})
}

func (d *doctor) kernel() {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		d.add("kernel", ctl.CheckProblem, err.Error(), "")
		return
	}
	release := unix.ByteSliceToString(u.Release[:])
	parts := strings.SplitN(release, ".", 3)
	major, _ := strconv.Atoi(parts[0])
	minor := 0
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(strings.TrimRight(parts[1], "-+abcdefghijklmnopqrstuvwxyz"))
	}
	if major < 5 || major == 5 && minor < 10 {
		d.add("kernel", ctl.CheckProblem, "Linux "+release+" is too old", "use Linux 5.10 or newer, such as Debian 12's")
		return
	}
	d.add("kernel", ctl.CheckOK, "Linux "+release+" "+unix.ByteSliceToString(u.Machine[:]), "")
}

func (d *doctor) rights() {
	if os.Geteuid() != 0 {
		d.add("rights", ctl.CheckWarning, "not root: a worker and some checks require it", "sudo skerry doctor")
		return
	}
	d.add("rights", ctl.CheckOK, "root", "")
}

func (d *doctor) cgroups() {
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil {
		d.add("cgroups", ctl.CheckProblem, "/sys/fs/cgroup does not exist: "+err.Error(), "mount cgroup2 at /sys/fs/cgroup, or boot with systemd")
		return
	}
	if st.Type == unix.SYSFS_MAGIC { // its empty directory: nothing is mounted there
		e := skerry.AsError(runtime.NoCgroups())
		d.add("cgroups", ctl.CheckProblem, e.Message, e.Hint)
		return
	}
	need := []string{"cpu", "memory", "pids"}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		data, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		have := strings.Fields(string(data))
		for _, c := range need {
			if !contains(have, c) {
				d.add("cgroups", ctl.CheckProblem, "cgroup v2 without the controller "+c,
					"boot with cgroup_enable="+c+" (on a Raspberry Pi in cmdline.txt)")
				return
			}
		}
		d.add("cgroups", ctl.CheckOK, "version 2: "+strings.Join(have, " "), "")
		return
	}
	for _, c := range need {
		if _, err := os.Stat("/sys/fs/cgroup/" + c); err != nil {
			d.add("cgroups", ctl.CheckProblem, "cgroup v1 without the controller "+c, "boot with systemd.unified_cgroup_hierarchy=1, or mount it")
			return
		}
	}
	d.add("cgroups", ctl.CheckOK, "version 1 or hybrid", "")
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (d *doctor) overlay() {
	data, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		d.add("overlayfs", ctl.CheckSkipped, err.Error(), "")
		return
	}
	if !bytes.Contains(data, []byte("\toverlay\n")) {
		d.add("overlayfs", ctl.CheckProblem, "the kernel does not support the overlay file system",
			"modprobe overlay; echo overlay > /etc/modules-load.d/overlay.conf")
		return
	}
	d.add("overlayfs", ctl.CheckOK, "supported by the kernel", "")
}

func (d *doctor) programs() {
	found := ""
	for _, p := range []string{"crun", "runc"} {
		if path, err := exec.LookPath(p); err == nil {
			found = path
			break
		}
	}
	if found == "" {
		d.add("oci runtime", ctl.CheckProblem, "neither crun nor runc is installed", "apt install crun")
	} else {
		d.add("oci runtime", ctl.CheckOK, found, "")
	}
	if path, err := exec.LookPath("conmon"); err != nil {
		d.add("conmon", ctl.CheckProblem, "conmon is not installed; it supervises containers", "apt install conmon")
	} else {
		d.add("conmon", ctl.CheckOK, path, "")
	}
	if os.Geteuid() != 0 {
		d.add("runtimes", ctl.CheckSkipped, "the self-tests need root", "sudo skerry worker check")
		return
	}
	var st role.Status
	if role.CallLocal(d.ctx, filepath.Join(d.data, "worker"), "GET", "/status", nil, &st) != nil {
		dir, err := os.MkdirTemp("", "skerry-doctor-")
		if err != nil {
			d.add("runtimes", ctl.CheckSkipped, err.Error(), "")
			return
		}
		defer os.RemoveAll(dir)
		ctx, cancel := context.WithTimeout(d.ctx, time.Minute)
		defer cancel()
		st.Runtimes, err = node.CheckMachine(ctx, node.WorkerConfig{Common: node.Common{Dir: dir},
			CgroupParent: fmt.Sprintf("skerry-doctor-%d", os.Getpid())})
		if err != nil {
			cure := ""
			if e, ok := errors.AsType[*skerry.Error](err); ok {
				cure = e.Hint
			}
			d.add("runtimes", ctl.CheckProblem, err.Error(), cure)
			return
		}
	}
	for _, r := range st.Runtimes {
		switch {
		case r.NoUserNamespaces():
			d.add("runtime "+r.Name, ctl.CheckWarning, "passes its self-test, but without user namespaces (root in a container is root on the host):  "+r.Cause, r.Cure)
		case r.SharedUsers():
			d.add("runtime "+r.Name, ctl.CheckOK, "passes its self-test; the containers of an organisation have the same users:  "+r.Cause,
				"for users of each instance's own: Linux 5.19 or newer, and a data directory on ext4, xfs or btrfs")
		case r.Passed:
			d.add("runtime "+r.Name, ctl.CheckOK, "passes its self-test", "")
		case r.Absent:
			d.add("runtime "+r.Name, ctl.CheckSkipped, r.Cause, r.Cure)
		default:
			d.add("runtime "+r.Name, ctl.CheckProblem, r.Cause, r.Cure)
		}
	}
}

func (d *doctor) forwarding() {
	if _, err := exec.LookPath("nft"); err != nil {
		d.add("nftables", ctl.CheckWarning, "the program nft is not installed; Skerry does not need it, but you cannot inspect rules without it", "apt install nftables")
	} else {
		d.add("nftables", ctl.CheckOK, "installed", "")
	}
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err == nil && strings.TrimSpace(string(data)) == "0" {
		d.add("forwarding", ctl.CheckOK, "currently off; a worker turns it on", "")
	} else if err == nil {
		d.add("forwarding", ctl.CheckOK, "on", "")
	}
}

// perInstance is how many entries of the kernel's table of neighbours an instance takes: it knows its bridge, and the bridge knows it.
const perInstance = 2

// neighbours looks at the table that all network namespaces share. Where it is full, instances do not answer.
func (d *doctor) neighbours() {
	limit, err := os.ReadFile("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
	most, bad := strconv.Atoi(strings.TrimSpace(string(limit)))
	stats, err2 := os.ReadFile("/proc/net/stat/arp_cache")
	if err := errors.Join(err, bad, err2); err != nil {
		d.add("neighbours", ctl.CheckSkipped, err.Error(), "") // another network namespace than the first
		return
	}
	cure := fmt.Sprintf("sysctl net.ipv4.neigh.default.gc_thresh3=%d; the same in /etc/sysctl.d", 8*most)
	switch used, full := neighbourTable(string(stats)); {
	case full > 0:
		d.add("neighbours", ctl.CheckWarning, fmt.Sprintf("the kernel's table of %d has overflowed %d times since boot; instances may have been unreachable then", most, full), cure)
	case used > most*3/4:
		d.add("neighbours", ctl.CheckWarning, fmt.Sprintf("the kernel's table of %d holds %d", most, used), cure)
	default:
		d.add("neighbours", ctl.CheckOK, fmt.Sprintf("%d of %d used, enough for %d more instances", used, most, (most-used)/perInstance), "")
	}
}

// neighbourTable reads /proc/net/stat/arp_cache: how many entries there are, and how often there was no room for one.
// It has a line of names, and one of hexadecimal numbers for each processor.
func neighbourTable(stats string) (used, full int) {
	lines := strings.Split(strings.TrimSpace(stats), "\n")
	names := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		for i, f := range strings.Fields(line) {
			n, err := strconv.ParseUint(f, 16, 32)
			switch {
			case err != nil || i >= len(names):
			case names[i] == "entries": // of the whole table, in each line
				used = int(n)
			case names[i] == "table_fulls":
				full += int(n)
			}
		}
	}
	return used, full
}

func (d *doctor) clock() {
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	switch {
	case time.Now().Year() < 2025:
		d.add("clock", ctl.CheckProblem, "the clock says "+time.Now().Format(time.DateTime),
			"set the clock; certificates are not valid at that time")
	case err != nil:
		d.add("clock", ctl.CheckSkipped, err.Error(), "")
	case state == unix.TIME_ERROR || tx.Status&unix.STA_UNSYNC != 0:
		d.add("clock", ctl.CheckWarning, "not synchronised with a time server", "apt install systemd-timesyncd (or chrony)")
	default:
		d.add("clock", ctl.CheckOK, "synchronised", "")
	}
}

func (d *doctor) disk() {
	dir := d.data
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			break
		}
		dir = filepath.Dir(dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		d.add("disk", ctl.CheckSkipped, err.Error(), "")
		return
	}
	free := skerry.Bytes(st.Bavail) * skerry.Bytes(st.Bsize)
	text := fmt.Sprintf("%d MiB free at %s", free/skerry.MiB, dir)
	if free < 256*skerry.MiB {
		d.add("disk", ctl.CheckProblem, text, "free some space; below 64 MiB a worker gets no new instances")
		return
	}
	d.add("disk", ctl.CheckOK, text, "")
}

// roles looks at what runs here, and at the ports of what does not.
func (d *doctor) roles() {
	for _, r := range []struct{ role, dir, port string }{
		{"root", filepath.Join(d.data, "root"), "7443"}, {"cluster", filepath.Join(d.data, "cluster"), "7444"},
		{"worker", filepath.Join(d.data, "worker"), ""},
	} {
		var st role.Status
		if role.CallLocal(d.ctx, r.dir, "GET", "/status", nil, &st) == nil {
			switch {
			case !st.Ready:
				d.add(r.role, ctl.CheckProblem, "running, but not ready: "+st.Why, "see its log")
			case st.Parent != nil && !st.Parent.Connected:
				d.add(r.role, ctl.CheckProblem, "running, but not connected to its parent: "+st.Parent.Why, "check the address and the network to it")
			default:
				d.add(r.role, ctl.CheckOK, r.role+" "+st.Name+" runs", "")
			}
			continue
		}
		if r.port == "" {
			continue
		}
		ln, err := net.Listen("tcp", ":"+r.port)
		if err != nil {
			d.add(r.role, ctl.CheckWarning, "not running, and its port is in use: "+err.Error(), "`ss -tlnp sport = :"+r.port+"` shows by whom")
			continue
		}
		ln.Close()
	}
}
