//go:build linux

package worker

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/cdi"
	"skerry.dev/skerry/internal/devices"
)

// locate tells of each device where it is: its nodes with their numbers, or its host. An instance that was given it there has another one,
// or none, once it is elsewhere, although its name is the same.
func (a *attachables) locate(r *cdi.Registry, found map[string]devices.Device, names []string) map[string][]string {
	where := map[string][]string{}
	for _, name := range names {
		var nodes []string
		if d, ok := found[name]; ok {
			nodes = d.Nodes
			if len(nodes) == 0 {
				where[name] = []string{d.Host()}
				continue
			}
		} else if strings.HasPrefix(name, "/") {
			nodes = []string{a.host(name)}
		} else {
			edits, _ := r.Device(name)
			for _, n := range edits.DeviceNodes {
				nodes = append(nodes, n.Host())
			}
		}
		for _, n := range nodes {
			where[name] = append(where[name], numberedNode(n))
		}
		slices.Sort(where[name])
	}
	return where
}

// numberedNode is where a device node really is, with its number; of anything else, such as a directory of nodes, only its path counts.
func numberedNode(node string) string {
	at := nodeAt(node)
	if st, err := os.Stat(at); err == nil && at != "" {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			return fmt.Sprintf("%s %d:%d", at, unix.Major(uint64(sys.Rdev)), unix.Minor(uint64(sys.Rdev)))
		}
	}
	return node
}
