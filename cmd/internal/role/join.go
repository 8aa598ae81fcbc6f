package role

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/wire"
)

// JoinFlags are those of roles that have a parent.
type JoinFlags struct {
	Name, Token string
	TokenFile   string // in place of Token
	Parents     []string
	Port        string // of a parent that is given without one
	wait        time.Duration
}

// Add declares them, for a parent of a name that listens on a port.
func (f *JoinFlags) Add(fs *pflag.FlagSet, parentFlag, parent, port string) {
	f.Port = port
	fs.StringVar(&f.Name, "name", "", "name within the site, a DNS label (default the name it joined with, or the host name)")
	fs.StringVar(&f.Token, "join", "",
		"join token, or @FILE that contains it; needed only the first time. Other users of the machine can see arguments; --join-file and SKERRY_JOIN hide the token")
	fs.StringVar(&f.TokenFile, "join-file", "", "file with the join token")
	fs.StringSliceVar(&f.Parents, parentFlag, nil, "address of the "+parent+", HOST or HOST:PORT (port "+port+" by default); may be repeated")
	fs.DurationVar(&f.wait, "join-wait", time.Minute, "how long to wait for an unreachable parent when joining")
}

// Text gives the join token.
func (f *JoinFlags) Text() (string, error) {
	if f.TokenFile == "" {
		return tokenText(f.Token)
	}
	if f.Token != "" {
		return "", skerry.Errorf(skerry.CodeInvalid, "--join and --join-file exclude each other").WithHint("give one of them")
	}
	return tokenText("@" + f.TokenFile)
}

// tokenText gives what --join says, or what the file holds that it names.
func tokenText(s string) (string, error) {
	file, ok := strings.CutPrefix(s, "@")
	if !ok {
		return s, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", skerry.Errorf(skerry.CodeInvalid, "--join: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// HostPorts gives addresses without a port that one.
func HostPorts(list []string, port string) (out []string) {
	for _, p := range list {
		if _, _, err := net.SplitHostPort(p); err != nil {
			p = net.JoinHostPort(strings.Trim(p, "[]"), port)
		}
		out = append(out, p)
	}
	return out
}

// Join gives what a role joins with, or the identity that its data directory has already.
func (f *JoinFlags) Join(data, parentFlag string) (node.Join, error) {
	j := node.Join{Name: f.Name, Token: f.Token, Wait: f.wait, Parent: HostPorts(f.Parents, f.Port)}
	var err error
	if j.Token, err = f.Text(); err != nil {
		return j, err
	}
	if m, err := auth.OpenMember(filepath.Join(data, "identity")); err == nil {
		if j.Name != "" && j.Name != m.Name() {
			return j, skerry.Errorf(skerry.CodeConflict, "this data directory belongs to %s %q, not to %q", m.Tier(), m.Name(), j.Name).
				WithHint("omit --name, or use another --data directory")
		}
		j.Name = m.Name()
	}
	if j.Name == "" {
		name, err := HostName()
		if err != nil {
			return j, err
		}
		j.Name = name
	}
	if len(j.Parent) == 0 {
		return j, skerry.Errorf(skerry.CodeInvalid, "--%s is missing", parentFlag).
			WithHint("give the address of the parent, such as --%s 192.0.2.1:%s", parentFlag, f.Port)
	}
	return j, nil
}

// HostName makes a valid name of the machine's.
func HostName() (string, error) {
	h, _ := os.Hostname()
	h, _, _ = strings.Cut(strings.ToLower(h), ".")
	if err := skerry.CheckName(h); err != nil {
		return "", skerry.Errorf(skerry.CodeInvalid, "the host name %q is not a valid name", h).WithHint("give one with --name")
	}
	return h, nil
}

// JoinError gives a refusal the form that users get.
func JoinError(err error) error {
	var r *wire.Refuse
	if errors.As(err, &r) {
		return skerry.Errorf(skerry.CodeForbidden, "the parent refuses the connection: %s", r.Reason).WithHint("%s", r.Hint)
	}
	return err
}
