// Package upgrade exchanges the program of a worker's agent, and goes back by itself where the new one does not do.
//
//	stage: the new program is copied beside the data and asked for its version
//	try:   the agent ends; its process keeps the old program, starts the new one as its child and looks at it from outside
//	         as well as the old one was, for a while without a break ──► the new one takes the process over
//	         ended, silent, or not as well within the window         ──► killed; the old one goes on, and says why
//
// What runs on the machine is not touched: agents may end and start at any time. Until it has passed, the new program changes
// nothing that the old one could not go on with: the store is copied before, and the copy is put back if the old one cannot
// open what the new one left; tables of the overlay of another layout are made beside those there are.
//
// The program that the machine's owner installed stays where it is and is started first. It gives way to the one that passed
// last; installing another by hand ends that.
package upgrade

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
)

// Program is an executable that was staged.
type Program struct {
	Digest  string `json:"digest"` // sha256:HEX of the file
	Version string `json:"version"`
	Size    int64  `json:"size"` // bytes
}

// Base is the program that was installed on the machine, by what tells it from a later one.
type Base struct {
	Path    string    `json:"path"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`
}

// Trial is an upgrade under way.
type Trial struct {
	Program
	From   string        `json:"from"` // version before
	Since  time.Time     `json:"since"`
	Window spec.Duration `json:"window"` // in which it has to do as well as the one before
	Steady spec.Duration `json:"steady"` // for how long without a break
	Want   Seen          `json:"want"`   // how well that is
	Order  uint64        `json:"order,omitempty"`
	Starts int           `json:"starts"`
	Failed string        `json:"failed,omitempty"` // why it did not pass; the store is still to be put back
}

// Outcome is how the last upgrade ended.
type Outcome struct {
	Program
	From   string    `json:"from"`
	Passed bool      `json:"passed"`
	Why    string    `json:"why,omitempty"` // it did not pass
	At     time.Time `json:"at"`
	Order  uint64    `json:"order,omitempty"`
}

// Seen is how well an agent does, as far as it can be seen from outside.
type Seen struct {
	Pid       int      `json:"-"`
	Connected bool     `json:"connected,omitempty"` // to its cluster
	Overlay   bool     `json:"overlay,omitempty"`   // it takes part
	Runtimes  []string `json:"runtimes,omitempty"`  // that work
	Ready     []string `json:"ready,omitempty"`     // instances that run and are ready
	Instances []string `json:"-"`                   // all that it holds
	Done      []string `json:"-"`                   // instances that ended as they should
}

// State is what is kept on disk about a worker's programs.
type State struct {
	Base    Base     `json:"base,omitzero"`
	Current *Program `json:"current,omitempty"` // nil: the installed one
	Trial   *Trial   `json:"trial,omitempty"`
	Last    *Outcome `json:"last,omitempty"`
	Ordered *Outcome `json:"ordered,omitempty"` // of those, the last that the cluster ordered
}

// note makes an outcome the last one.
func (s *State) note(o *Outcome) {
	if s.Last = o; o.Order > 0 {
		s.Ordered = o
	}
}

const (
	// Window and Steady are used where a trial gives none.
	Window = 2 * time.Minute
	Steady = 15 * time.Second
	// maxStarts is how often a trial is begun again that the machine cut short.
	maxStarts = 3

	stateFile   = "state.json"
	maxState    = 1 << 20
	versionTime = 30 * time.Second
)

// trialEnv tells the new program that it is on trial.
const trialEnv = "SKERRY_TRIAL"

// OnTrial reports whether this process runs a program that has not passed yet.
func OnTrial() bool { return os.Getenv(trialEnv) != "" }

// Dir keeps the programs of one worker. Only one process may change it at a time.
type Dir struct {
	// Reads says why this program cannot go on with an open store; nil: it can with any that it can open.
	Reads func(context.Context, store.Store) error

	path  string
	store string // file of the worker's store; empty: it is not a file
}

// Open gives the directory at a path, which is made when something is put there. store is the file of the worker's store, or
// empty where that is elsewhere.
func Open(path, store string) *Dir { return &Dir{path: path, store: store} }

// State reads what is kept. Without a file it is empty.
func (d *Dir) State() (s State, err error) {
	f, err := os.Open(filepath.Join(d.path, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return s, err
	}
	if s, err = parseState(data); err != nil {
		return State{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return s, nil
}

// parseState reads a state, and refuses one that names a program by what is no digest: it becomes a file's name.
func parseState(data []byte) (s State, err error) {
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, err
	}
	list := []*Program{s.Current}
	if s.Trial != nil {
		list = append(list, &s.Trial.Program)
	}
	for _, p := range list {
		if p == nil {
			continue
		}
		if h, ok := strings.CutPrefix(p.Digest, "sha256:"); !ok || len(h) != 2*sha256.Size || strings.Trim(h, "0123456789abcdef") != "" {
			return State{}, fmt.Errorf("%q is not a program's digest", p.Digest)
		}
	}
	return s, nil
}

// save replaces the state; after a power cut it is the old one or the new one.
func (d *Dir) save(s *State) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(filepath.Join(d.path, stateFile), data, 0o600)
}

// before is where the store is copied to for the time of a trial.
func (d *Dir) before() string { return filepath.Join(d.path, "before") }

// file is where a program is.
func (d *Dir) file(p *Program) string {
	return filepath.Join(d.path, "skerry-"+strings.TrimPrefix(p.Digest, "sha256:")[:16])
}

// Stage copies a program beside the data and asks it for its version. A file that this machine cannot run, or that is another
// program, is refused with *skerry.Error. What an earlier call staged without Begin is gone then.
func (d *Dir) Stage(ctx context.Context, path string) (p Program, err error) {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return p, err
	}
	if s, err := d.State(); err == nil { // a power cut may have left a part of a program, and they are large
		if err := d.sweep(&s); err != nil {
			return p, err
		}
	}
	in, err := os.Open(path)
	if err != nil {
		return p, skerry.Errorf(skerry.CodeInvalid, "the new program: %w", err)
	}
	defer in.Close()
	if st, err := in.Stat(); err != nil || !st.Mode().IsRegular() {
		return p, skerry.Errorf(skerry.CodeInvalid, "%s is not a file", path)
	}
	h := sha256.New()
	if p.Size, err = io.Copy(h, in); err != nil {
		return p, err
	}
	p.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return p, err
	}
	at := d.file(&p)
	part := filepath.Join(d.path, ".new-"+filepath.Base(at)) // the same program may be in use: it gives way to one that is on the disk
	if err = files.Program(part, in, 0o700); err == nil {
		err = files.Sync(part)
	}
	if err == nil {
		err = os.Rename(part, at)
	}
	if err = errors.Join(err, files.Sync(d.path)); err != nil {
		return p, fmt.Errorf("keep the new program: %w", err)
	}
	if p.Version, err = versionOf(ctx, at); err != nil {
		s, _ := d.State()
		return p, errors.Join(err, d.sweep(&s)) // the same file may be in use
	}
	return p, nil
}

// versionOf asks a program for its version.
func versionOf(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "version", "-o", "json")
	cmd.Env = []string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", skerry.Errorf(skerry.CodeInvalid, "the new program does not run on this machine: %w", err).
			WithHint("it has to be built for this machine's processor, and the worker's data directory must not be mounted noexec")
	}
	var v struct {
		Client string `json:"client"`
	}
	if err := json.Unmarshal(out, &v); err != nil || v.Client == "" {
		return "", skerry.Errorf(skerry.CodeInvalid, "the new program does not tell a version of Skerry")
	}
	return v.Client, nil
}

// Begin makes a trial the one that Try carries out. A second one at a time is a conflict.
func (d *Dir) Begin(t Trial) error {
	s, err := d.State()
	if err != nil {
		return err
	}
	if s.Trial != nil {
		return skerry.Errorf(skerry.CodeConflict, "an upgrade to %s is under way", s.Trial.Version).
			WithHint("`skerry worker status` shows it; one that a full disk cut short goes on when the agent is started anew")
	}
	if t.Window <= 0 {
		t.Window = spec.Duration(Window)
	}
	if t.Steady <= 0 {
		t.Steady = spec.Duration(Steady)
	}
	t.Steady = min(t.Steady, t.Window)
	t.Starts, t.Failed = 0, ""
	// What a power cut left of an earlier trial is no copy of the store as it is now.
	if err := os.RemoveAll(d.before()); err != nil {
		return err
	}
	s.Trial = &t
	return d.save(&s)
}

// Refused notes an upgrade that came to nothing before its trial.
func (d *Dir) Refused(o Outcome) error {
	s, err := d.State()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	s.note(&o)
	return d.save(&s)
}

// Choose says which program is to run in place of self, the one that was started; empty: self.
func (d *Dir) Choose(self string) (string, error) {
	s, err := d.State()
	if err != nil || s.Current == nil {
		return "", err
	}
	at := d.file(s.Current)
	if at == self {
		return "", nil
	}
	if filepath.Dir(self) != d.path && s.Base != baseOf(self) {
		s.Base, s.Current = Base{}, nil
		return "", errors.Join(d.save(&s), d.sweep(&s))
	}
	if st, err := os.Stat(at); err != nil || st.Size() != s.Current.Size {
		return "", fmt.Errorf("the program %s, to which this worker was upgraded, is damaged or gone; the one that was started runs", at)
	}
	return at, nil
}

func baseOf(path string) Base {
	st, err := os.Stat(path)
	if err != nil {
		return Base{Path: path}
	}
	return Base{path, st.Size(), st.ModTime().UTC()}
}

// sweep removes programs that nobody needs, and parts of them.
func (d *Dir) sweep(s *State) error {
	keep := map[string]bool{}
	if s.Current != nil {
		keep[d.file(s.Current)] = true
	}
	if s.Trial != nil {
		keep[d.file(&s.Trial.Program)] = true
	}
	list, err := filepath.Glob(filepath.Join(d.path, "skerry-*"))
	parts, _ := filepath.Glob(filepath.Join(d.path, ".*"))
	list = append(list, parts...)
	for _, p := range list {
		if !keep[p] {
			err = errors.Join(err, os.Remove(p))
		}
	}
	return err
}
