package spec

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// HostPath is a directory of a site's workers that organisations may mount, with what is below it. In JSON it is the path alone,
// or an object with path and writable.
type HostPath struct {
	Path string `json:"path" cbor:"1,keyasint"`
	// Writable lets organisations write there that are not at LevelPrivileged; without it they read.
	Writable bool `json:"writable,omitempty" cbor:"2,keyasint,omitempty"`
}

// UnmarshalJSON accepts a text, too, and leaves it to whoever mounts it to look at the path.
func (h *HostPath) UnmarshalJSON(data []byte) error {
	type plain HostPath
	if json.Unmarshal(data, &h.Path) == nil {
		h.Writable = false
		return nil
	}
	return json.Unmarshal(data, (*plain)(h))
}

// UnmarshalStrict refuses paths that are not absolute.
func (h *HostPath) UnmarshalStrict(data []byte) error {
	type plain HostPath
	var p plain
	if json.Unmarshal(data, &p.Path) != nil {
		if problems := DecodeStrict(data, &p); len(problems) > 0 {
			return fmt.Errorf("a host path is a text, or {path: ..., writable: true}: %s", problems[0].Message)
		}
	}
	if !path.IsAbs(p.Path) {
		return fmt.Errorf("host path %q is not absolute; begin it with /", p.Path)
	}
	*h = HostPath(p)
	return nil
}

// MarshalJSON gives the text where that says everything.
func (h HostPath) MarshalJSON() ([]byte, error) {
	if !h.Writable {
		return json.Marshal(h.Path)
	}
	type plain HostPath
	return json.Marshal(plain(h))
}

// Covers reports whether a path is the directory or below it, as written. Where links lead is for the worker to look.
func (h HostPath) Covers(file string) bool {
	file, dir := path.Clean(file), path.Clean(h.Path)
	return file == dir || strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/")
}

// HostPathsFor gives the directories of a list that cover a path, the outermost first. The last one says whether it may be written to.
func HostPathsFor(list []HostPath, file string) (out []HostPath) {
	for _, h := range list {
		if h.Covers(file) {
			h.Path = path.Clean(h.Path)
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b HostPath) int {
		if n := len(a.Path) - len(b.Path); n != 0 || a.Writable == b.Writable {
			return n
		}
		if a.Writable {
			return 1
		}
		return -1
	})
	return out
}
