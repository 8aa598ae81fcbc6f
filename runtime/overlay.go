package runtime

import (
	"slices"
	"strings"
)

// Overlay is an overlay of directories, the topmost first, as the root of a task. Their paths may have any characters: like the kernel, an
// option has a backslash before those that would divide it.
func Overlay(dirs ...string) Mount {
	escaped := make([]string, len(dirs))
	for i, d := range dirs {
		escaped[i] = EscapeOverlay(d)
	}
	return Mount{Type: "overlay", Source: "overlay", Options: []string{lowerOption + strings.Join(escaped, ":")}}
}

const lowerOption = "lowerdir="

// EscapeOverlay protects the characters of a path that divide options of overlayfs, or directories in one of them.
func EscapeOverlay(path string) string {
	return strings.NewReplacer(`\`, `\\`, ",", `\,`, ":", `\:`).Replace(path)
}

// OverlayDirs takes the directories out of the options of an overlay, the topmost first.
func OverlayDirs(options []string) (dirs, rest []string, err error) {
	for _, o := range options {
		list, ok := strings.CutPrefix(o, lowerOption)
		if !ok {
			rest = append(rest, o)
			continue
		}
		var dir strings.Builder
		for i := 0; i < len(list); i++ {
			switch c := list[i]; {
			case c == ':':
				dirs = append(dirs, dir.String())
				dir.Reset()
			case c == '\\' && i+1 < len(list):
				i++
				dir.WriteByte(list[i])
			default:
				dir.WriteByte(c)
			}
		}
		dirs = append(dirs, dir.String())
	}
	if len(dirs) == 0 || slices.Contains(dirs, "") {
		return nil, nil, &InvalidSpec{Field: "rootfs[0].options", Reason: "an overlay needs lowerdir=DIR[:DIR...], the topmost layer first"}
	}
	return dirs, rest, nil
}
