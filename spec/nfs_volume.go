package spec

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// NFSVolume is a directory that an NFS server exports. The worker mounts it once for all instances that have the same one.
type NFSVolume struct {
	Server   string   `json:"server" doc:"Name or address of the server, as the worker resolves it."`
	Path     string   `json:"path" doc:"Absolute path that the server exports, or below one."`
	Version  string   `json:"version,omitempty" doc:"Version of the protocol. Default: the highest one of version 4 that the server speaks." enum:"3,4.0,4.1,4.2"`
	Options  []string `json:"options,omitempty" doc:"Options of nfs(5): hard, soft, noatime, nolock, noac, and timeo=, retrans=, rsize=, wsize=, nconnect=, actimeo= with a number. Default: soft, timeo=100, retrans=3: requests fail when a server has not answered for 40 seconds or so. With hard they wait for the server."`
	ReadOnly bool     `json:"readOnly,omitempty" doc:"Refuse writes, whatever mounts say."`
}

// nfsOptions is a table: the options of nfs(5) that manifests may name, with the range of their numbers; nil: it has none.
var nfsOptions = map[string][]int{
	"hard": nil, "soft": nil, "noatime": nil, "nolock": nil, "noac": nil, "timeo": {1, 6000}, "retrans": {0, 100},
	"rsize": {4096, 1 << 20}, "wsize": {4096, 1 << 20}, "nconnect": {1, 16}, "actimeo": {0, 3600},
}

// nfsServer is the form of names and addresses. Nothing of a server's name may look like another option or a path.
var nfsServer = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z._-]{0,251}[0-9A-Za-z])?$|^[0-9a-fA-F:]{2,45}$`)
})

// nfsPath reports whether a text can be the path of an export: absolute, without parts that lead elsewhere.
func nfsPath(p string) bool {
	odd := func(r rune) bool { return r <= ' ' || r == 127 }
	return len(p) <= 1024 && strings.HasPrefix(p, "/") && path.Clean(p) == p && strings.IndexFunc(p, odd) < 0
}

// NFSOption reports whether manifests may name an option of nfs(5).
func NFSOption(option string) error {
	name, value, has := strings.Cut(option, "=")
	limits, known := nfsOptions[name]
	if !known {
		return fmt.Errorf("%.100q is none of the options %s", option, strings.Join(slices.Sorted(maps.Keys(nfsOptions)), ", "))
	}
	if limits == nil {
		if has {
			return fmt.Errorf("option %s has no value", name)
		}
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < limits[0] || n > limits[1] || strconv.Itoa(n) != value {
		return fmt.Errorf("%s is a number from %d to %d", name, limits[0], limits[1])
	}
	return nil
}

func checkNFS(check *checker, path string, volume *NFSVolume) {
	if !nfsServer().MatchString(volume.Server) {
		check.add(path+".server", "write the name or the address alone", "%.100q is not a server", volume.Server)
	}
	if !nfsPath(volume.Path) {
		hint := "write it as /srv/media, without spaces, .. or a / at its end"
		check.add(path+".path", hint, "%.100q is not the path of an export", volume.Path)
	}
	check.oneOf(path+".version", volume.Version, "3", "4.0", "4.1", "4.2")
	seen := map[string]bool{}
	for i, option := range volume.Options {
		at := fmt.Sprintf("%s.options[%d]", path, i)
		if err := NFSOption(option); err != nil {
			check.add(at, "", "%v", err)
		}
		name, _, _ := strings.Cut(option, "=")
		if seen[name] || name == "hard" && seen["soft"] || name == "soft" && seen["hard"] {
			check.add(at, "say one of them", "%s contradicts, or repeats, another option", name)
		}
		seen[name] = true
	}
	if volume.Version == "3" && !seen["nolock"] {
		check.add(path+".options", "add nolock, or use version 4", "locks of version 3 need a daemon of the worker's machine")
	}
	if volume.Version != "3" && seen["nolock"] {
		check.add(path+".options", "leave nolock out", "version 4 has locks of its own")
	}
}

// NFSGrant is what an operator lets be mounted of a server: everything that it exports, or what is at a path and below.
type NFSGrant struct {
	Server string
	Path   string // "/" is everything
}

// ParseNFSGrant reads SERVER or SERVER:/PATH. An address of IPv6 is in brackets.
func ParseNFSGrant(text string) (g NFSGrant, err error) {
	g.Server, g.Path = text, "/"
	if at := strings.Index(text, ":/"); at >= 0 {
		g.Server, g.Path = text[:at], text[at+1:]
	}
	if inner, ok := strings.CutPrefix(g.Server, "["); ok {
		g.Server, ok = strings.CutSuffix(inner, "]")
		if !ok || !strings.Contains(g.Server, ":") {
			return NFSGrant{}, fmt.Errorf("%.100q is not a server; write SERVER, SERVER:/PATH or [ADDRESS]:/PATH", text)
		}
	} else if strings.Contains(g.Server, ":") {
		return NFSGrant{}, fmt.Errorf("%.100q is not a server; write SERVER, SERVER:/PATH or [ADDRESS]:/PATH", text)
	}
	if !nfsServer().MatchString(g.Server) || !nfsPath(g.Path) {
		return NFSGrant{}, fmt.Errorf("%.100q is not what a server exports; write SERVER, SERVER:/PATH or [ADDRESS]:/PATH", text)
	}
	return g, nil
}

// Covers reports whether a volume is within the grant. Names of servers are compared as they are written. Of version 3, what is below the
// path of a grant is not: the server alone resolves it, and follows links that whoever writes to the export has made there.
func (g NFSGrant) Covers(v *NFSVolume) bool {
	below := v.Version != "3" && strings.HasPrefix(v.Path, g.Path+"/")
	return strings.EqualFold(g.Server, v.Server) && (g.Path == "/" || v.Path == g.Path || below)
}

// MarshalText gives what ParseNFSGrant reads.
func (g NFSGrant) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText is ParseNFSGrant.
func (g *NFSGrant) UnmarshalText(text []byte) (err error) {
	*g, err = ParseNFSGrant(string(text))
	return err
}

func (g NFSGrant) String() string {
	if g.Path == "/" {
		return inBrackets(g.Server)
	}
	return inBrackets(g.Server) + ":" + g.Path
}

// inBrackets writes an address of IPv6 so that a colon may follow.
func inBrackets(server string) string {
	if strings.Contains(server, ":") {
		return "[" + server + "]"
	}
	return server
}

// Source is how mount(8) names the export.
func (v *NFSVolume) Source() string { return inBrackets(v.Server) + ":" + v.Path }

// Outside reports whether what is in the volume is not the instance's: a path of the host, or of a server.
func (v *Volume) Outside() bool { return v.Host != nil || v.NFS != nil }

// Check gives the first problem of a volume whose manifest a peer has read.
func (v *NFSVolume) Check() error {
	c := &checker{}
	checkNFS(c, "nfs", v)
	return c.problem()
}
