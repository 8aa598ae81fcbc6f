package device

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// diskBackings tells the cache modes of the disks and shared directories that a machine's process was given, from its
// command line as /proc has it: those of QEMU (-blockdev, cache.direct and cache.no-flush; see qemu-img(1), -t) and of
// virtiofsd.
func diskBackings(cmdline string) (out []string) {
	args := strings.Split(strings.TrimRight(cmdline, "\x00"), "\x00")
	program := path.Base(args[0])
	for i, a := range args[1:] {
		if v, ok := strings.CutPrefix(a, "cache="); ok && program == "virtiofsd" {
			out = append(out, "shared directory: virtiofs, cache="+v)
		}
		if a != "-blockdev" || i+2 >= len(args) || !strings.HasPrefix(program, "qemu-system-") {
			continue
		}
		var d struct {
			Driver, Name string
			ReadOnly     bool `json:"read-only"`
			Cache        struct {
				Direct  bool
				NoFlush bool `json:"no-flush"`
			}
		}
		if json.Unmarshal([]byte(args[i+2]), &d) != nil || d.Driver == "" || d.ReadOnly {
			continue
		}
		mode := map[[2]bool]string{{false, false}: "writeback", {true, false}: "none", {false, true}: "unsafe",
			{true, true}: "none, flushes ignored"}[[2]bool{d.Cache.Direct, d.Cache.NoFlush}]
		out = append(out, "disk: QEMU, "+d.Driver+", cache="+mode)
	}
	return out
}

// mountBacking tells which file system holds a directory, and how it is mounted, from a process's mountinfo
// (proc_pid_mountinfo(5)); "" where it cannot be told. Options that name directories are left out.
func mountBacking(mountinfo, dir string) string {
	best, text := "", ""
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		at := l[4]
		if within := at == "/" || dir == at || strings.HasPrefix(dir, at+"/"); !within || len(at) < len(best) {
			continue
		}
		var options []string
		for _, o := range append(strings.Split(l[5], ","), strings.Split(r[2], ",")...) {
			name, value, _ := strings.Cut(o, "=")
			if !strings.Contains(value, "/") && name != "rw" && !slices.Contains(options, o) {
				options = append(options, o)
			}
		}
		best, text = at, r[0]+" ("+strings.Join(append([]string{"rw"}, options...), ",")+")"
		if slices.Contains(strings.Split(l[5], ","), "ro") {
			text = r[0] + " (" + strings.Join(options, ",") + ")"
		}
	}
	return text
}
