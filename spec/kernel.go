package spec

import (
	"maps"
	"slices"
	"strings"
)

// Ulimit is a resource limit of getrlimit(2); -1 is no limit.
type Ulimit struct {
	Soft *int64 `json:"soft,omitempty" doc:"Limit that counts. The program may raise it up to hard. Default: hard." min:"-1"`
	Hard int64  `json:"hard" doc:"Limit that the program cannot raise; -1 is none." min:"-1"`
}

// Limits gives the soft and the hard limit.
func (u Ulimit) Limits() (soft, hard uint64) {
	soft, hard = uint64(u.Hard), uint64(u.Hard) // -1 is the kernel's RLIM_INFINITY
	if u.Soft != nil {
		soft = uint64(*u.Soft)
	}
	return soft, hard
}

// UlimitNames are the resource limits that harm nobody else: what they are about is bounded by the instance's cgroup, too. Left out are
// those that give precedence over other programs (nice, rtprio), and what is counted for a user of the host (sigpending, msgqueue).
func UlimitNames() []string {
	return []string{"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"}
}

// SysctlNames are the parameters of the kernel that each network or IPC namespace has for itself, and that bound nothing which belongs
// to others. A name that ends in a dot stands for all below it.
func SysctlNames() []string {
	return []string{
		"fs.mqueue.",
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem", "kernel.shm_rmid_forced", "kernel.shmall", "kernel.shmmax",
		"kernel.shmmni",
		"net.core.somaxconn",
		"net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_max_syn_backlog",
		"net.ipv4.tcp_notsent_lowat", "net.ipv4.tcp_rmem", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_syncookies",
		"net.ipv4.tcp_tw_reuse", "net.ipv4.tcp_wmem",
	}
}

// AllowedSysctl reports whether a service may set a parameter.
func AllowedSysctl(name string) bool {
	return slices.ContainsFunc(SysctlNames(), func(allowed string) bool {
		if !strings.HasSuffix(allowed, ".") {
			return name == allowed
		}
		rest, below := strings.CutPrefix(name, allowed)
		return below && rest != "" && !strings.ContainsAny(rest, "./")
	})
}

// kernel checks the resource limits and kernel parameters of a container.
func (c *checker) kernel(p string, k *Container) {
	for _, name := range slices.Sorted(maps.Keys(k.Ulimits)) {
		at, limit := p+".ulimits."+name, k.Ulimits[name]
		if !slices.Contains(UlimitNames(), name) {
			c.add(at, "one of "+strings.Join(UlimitNames(), ", "), "a service does not set the resource limit %q", name)
		}
		if soft, hard := limit.Limits(); int64(soft) < -1 || limit.Hard < -1 || soft > hard {
			c.add(at, "", "%d and %d are no limits: soft is at most hard, and -1 is none", int64(soft), limit.Hard)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Sysctls)) {
		value := k.Sysctls[name]
		switch {
		case !AllowedSysctl(name):
			c.add(p+".sysctls", "one of "+strings.Join(SysctlNames(), ", "), "%q is a parameter of the whole machine, or not one for services", name)
		case value == "" || len(value) > 256 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }):
			c.add(p+".sysctls", "", "%q is not a value for %s", value, name)
		}
	}
}
