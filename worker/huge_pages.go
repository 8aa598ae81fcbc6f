//go:build linux

package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// hugePages is what the machine has set aside in huge pages, whoever uses them.
func hugePages(sys string) spec.HugePages {
	of := func(size skerry.Bytes) skerry.Bytes {
		data, err := os.ReadFile(filepath.Join(sys, fmt.Sprintf("hugepages-%dkB", size/skerry.KiB), "nr_hugepages"))
		var n int64
		if _, e := fmt.Sscan(strings.TrimSpace(string(data)), &n); err != nil || e != nil || n < 0 {
			return 0
		}
		return skerry.Bytes(n) * size
	}
	return spec.HugePages{Size2Mi: of(2 * skerry.MiB), Size1Gi: of(skerry.GiB)}
}
