package device

import (
	"slices"
	"strings"

	"skerry.dev/skerry/bench/report"
)

// other is a runtime of the documents that no driver of this machine stands for.
type other struct {
	name, text, program string
	word                string // in the names and shims of what stands for it
}

// Programs that run machines, and the names of the drivers that are opened where they are installed.
const (
	firecracker     = "firecracker"
	cloudHypervisor = "cloud-hypervisor"
)

// others are those that the documents measured or name.
func others() []other {
	return []other{
		{"kata", "Kata Containers, by a containerd", "containerd-shim-kata-v2", "kata"},
		{firecracker, "containers in machines of Firecracker", firecracker, firecracker},
		{cloudHypervisor, "containers in machines of Cloud Hypervisor", cloudHypervisor, cloudHypervisor},
	}
}

// notRun gives a row, with the reason, for each of them that nothing stands for, by the words for what was opened: names of runtimes, and
// the shims of classes. look finds a program, or gives "".
func notRun(opened []string, look func(program string) string) (out []report.Place) {
	for _, o := range others() {
		if slices.ContainsFunc(opened, func(s string) bool { return strings.Contains(s, o.word) }) {
			continue
		}
		why := o.program + " is not installed"
		switch path := look(o.program); {
		case path != "" && o.name == "kata":
			why = path + " is there, and no class names it; add --containerd-class kata=io.containerd.kata.v2,isolation=hardware"
		case path != "":
			why = path + " is there, and no driver of this program calls it"
		}
		out = append(out, report.Place{Name: o.name, Text: o.text, Skip: why})
	}
	return out
}
