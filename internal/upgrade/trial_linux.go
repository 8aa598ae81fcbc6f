package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/store"
)

// short says in what an agent does not do as well as one did before; empty: in nothing. An instance that is gone counts for as
// long as no cluster can have asked for its end.
func (s *Seen) short(want *Seen) string {
	switch {
	case want.Connected && !s.Connected:
		return "it is not connected to its cluster"
	case want.Overlay && !s.Overlay:
		return "it takes no part in the overlay"
	}
	for _, r := range want.Runtimes {
		if !slices.Contains(s.Runtimes, r) {
			return "the runtime " + r + " does not work"
		}
	}
	for _, id := range want.Ready {
		switch {
		case slices.Contains(s.Ready, id), slices.Contains(s.Done, id):
		case slices.Contains(s.Instances, id):
			return "instance " + id + " is not ready"
		case !s.Connected:
			return "instance " + id + " is gone"
		}
	}
	return ""
}

// Supervisor carries out trials.
type Supervisor struct {
	Dir  *Dir
	Args []string // of the program, its name first
	// Look asks the agent that runs on the data directory how it does.
	Look func(context.Context) (Seen, error)
	Log  *slog.Logger
	// Every is the time between two looks; 500 ms when zero.
	Every time.Duration
}

const (
	lookTime = 5 * time.Second
	// endTime is what an agent gets to end before it is killed; what it runs is not touched by either.
	endTime = 10 * time.Second
)

// ErrStopped says that the agent was asked to end during a trial, which goes on at the next start.
var ErrStopped = errors.New("asked to end during an upgrade")

// Try carries out the trial that waits, and notes its outcome. It returns when no agent runs any more; the caller then replaces
// this process by the program that Choose names. ctx ends it early with ErrStopped.
func (v *Supervisor) Try(ctx context.Context) (o Outcome, err error) {
	s, err := v.Dir.State()
	if err != nil {
		return o, err
	}
	t := s.Trial
	if t == nil {
		return o, errors.New("no upgrade waits")
	}
	o = Outcome{Program: t.Program, From: t.From, Order: t.Order}
	if t.Failed != "" {
		o.Why = t.Failed
		return o, v.finish(ctx, &s, &o)
	}
	t.Starts++
	if err := v.Dir.keepStore(); err != nil {
		o.Why = fmt.Sprintf("the store could not be copied: %v", err)
		return o, v.finish(ctx, &s, &o)
	}
	if t.Starts > maxStarts {
		o.Why = fmt.Sprintf("the trial was cut short %d times, by an end of the machine or of the agent", maxStarts)
		return o, v.finish(ctx, &s, &o)
	}
	if err := v.Dir.save(&s); err != nil { // the old program goes on, and what was copied of its store gets old
		return o, errors.Join(err, os.RemoveAll(v.Dir.before()))
	}
	debug.FreeOSMemory() // nothing but this happens here for a while
	v.Log.Info("the new program is on trial", "version", t.Version, "from", t.From, "window", time.Duration(t.Window))
	if o.Why, err = v.watch(ctx, t); errors.Is(err, ErrStopped) {
		t.Starts--
		return o, errors.Join(err, v.Dir.save(&s))
	} else if err != nil {
		o.Why = err.Error()
	}
	o.Passed = o.Why == ""
	return o, v.finish(ctx, &s, &o)
}

// finish notes an outcome. Without its note on the disk there is none: what the old program needs to go on is kept or put back,
// and the next start decides anew.
func (v *Supervisor) finish(ctx context.Context, s *State, o *Outcome) error {
	o.At = time.Now().UTC()
	if o.Passed {
		if s.Current == nil {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			s.Base = baseOf(self)
		}
		s.Current = &o.Program
		v.Log.Info("the new program has passed", "version", o.Version)
	} else {
		v.Log.Error("the new program did not pass; the one before goes on", "version", o.Version, "err", o.Why)
		if err := v.Dir.restoreStore(ctx); err != nil {
			// The copy is all that the old program could go on with; the next start puts it back, and tries nothing.
			s.Trial.Failed = o.Why
			return errors.Join(fmt.Errorf("put the store back: %w", err), v.Dir.save(s))
		}
	}
	s.Trial = nil
	s.note(o)
	if err := v.Dir.save(s); err != nil {
		if o.Passed {
			if err2 := v.Dir.restoreStore(ctx); err2 != nil {
				return errors.Join(err, fmt.Errorf("put the store back: %w", err2))
			}
		}
		return errors.Join(err, os.RemoveAll(v.Dir.before()))
	}
	return errors.Join(os.RemoveAll(v.Dir.before()), v.Dir.sweep(s))
}

// watch runs the program on trial and says why it does not pass, or nothing.
func (v *Supervisor) watch(ctx context.Context, t *Trial) (why string, err error) {
	// The child must not outlive this process: two agents on one machine would be one too many. The kernel ties that to the
	// thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(v.Dir.file(&t.Program), v.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// systemd hears of one process alone.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "NOTIFY_SOCKET=") })
	cmd.Env = append(cmd.Env, trialEnv+"="+t.Version)
	if err := cmd.Start(); err != nil {
		return "it could not be started: " + err.Error(), nil
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	end := func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(endTime):
			cmd.Process.Kill()
			<-ended
		}
	}
	every := v.Every
	if every <= 0 {
		every = 500 * time.Millisecond
	}
	deadline := time.Now().Add(time.Duration(t.Window))
	var well time.Time // since when
	why = "it did not answer"
	for {
		select {
		case <-ctx.Done():
			end()
			return "", ErrStopped
		case err := <-ended:
			if ctx.Err() != nil { // both were asked, by a machine that goes down
				return "", ErrStopped
			}
			if err == nil {
				return "it ended", nil
			}
			return "it ended: " + err.Error(), nil
		case <-time.After(every):
		}
		look, cancel := context.WithTimeout(ctx, lookTime)
		seen, err := v.Look(look)
		cancel()
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			continue
		case err != nil:
			why = "it does not answer: " + err.Error()
		case seen.Pid != cmd.Process.Pid:
			why = "another agent answers in its place"
		default:
			why = seen.short(&t.Want)
		}
		switch {
		case why != "":
			well = time.Time{}
		case well.IsZero():
			well = now
		}
		if !well.IsZero() && now.Sub(well) >= time.Duration(t.Steady) {
			end()
			return "", nil
		}
		if now.After(deadline) {
			end()
			if why == "" {
				why = fmt.Sprintf("it did well for no more than %s without a break", now.Sub(well).Round(time.Second))
			}
			return fmt.Sprintf("after %s: %s", time.Duration(t.Window), why), nil
		}
	}
}

// storeFiles are a store's file and what is kept beside it.
func storeFiles(path string) []string {
	return []string{path, path + "-wal", path + "-shm", path + ".head"}
}

// keepStore copies the store as the old program left it, once.
func (d *Dir) keepStore() error {
	if d.store == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(d.before(), filepath.Base(d.store))); err == nil {
		return nil
	}
	if err := os.MkdirAll(d.before(), 0o700); err != nil {
		return err
	}
	return copyFiles(d.store, filepath.Join(d.before(), filepath.Base(d.store)))
}

// restoreStore puts the copy, if there is one, back if this program cannot read what the new one left: its changes are lost,
// and what of them the cluster knows it tells again. It is not cut short by an end of ctx: nothing could be read then.
func (d *Dir) restoreStore(ctx context.Context) error {
	if d.store == "" {
		return nil
	}
	kept := filepath.Join(d.before(), filepath.Base(d.store))
	if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) {
		return nil // no new program was started
	}
	ctx = context.WithoutCancel(ctx)
	st, err := store.Open(ctx, "sqlite:"+d.store, store.Options{})
	if err == nil {
		if d.Reads != nil {
			err = d.Reads(ctx, st)
		}
		if err2 := st.Close(); err2 != nil || !errors.Is(err, store.ErrNewer) {
			return err2 // what else is wrong, the old program says itself
		}
	}
	// Newer, or damaged: by the new program, or by a power cut while it was put back.
	if err2 := copyFiles(kept, d.store); err2 != nil {
		return errors.Join(err, err2)
	}
	return nil
}

// copyFiles copies a closed store over another one.
func copyFiles(from, to string) error {
	src, dst := storeFiles(from), storeFiles(to)
	if _, err := os.Stat(from); err != nil {
		return err
	}
	for n := len(src) - 1; n >= 0; n-- { // the file itself last: what is beside it belongs to it
		in, err := os.Open(src[n])
		if errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(dst[n]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		err = files.ReplaceFrom(dst[n], in, 0o600)
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Exec replaces this process by the program that is to run: what Choose names, else the one that was started. It returns only
// with an error.
func (d *Dir) Exec(self string, args []string) error {
	at, err := d.Choose(self)
	if err != nil || at == "" { // whoever starts then tells of the error
		at = "/proc/self/exe" // also when its file was replaced meanwhile
	}
	if err := syscall.Exec(at, args, os.Environ()); err != nil {
		return skerry.Errorf(skerry.CodeInternal, "start %s: %w", at, err)
	}
	return nil
}
