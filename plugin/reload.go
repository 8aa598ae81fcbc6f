package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// stamp tells one state of a plugin's files from the next, the description first.
type stamp []fileStamp

type fileStamp struct {
	path string
	info os.FileInfo // nil: it cannot be seen
}

func stampOf(files ...string) stamp {
	out := make(stamp, len(files))
	for i, f := range files {
		out[i].path = f
		out[i].info, _ = os.Stat(f)
	}
	return out
}

// fresh reports whether the files are as they were.
func (s stamp) fresh() bool {
	for _, f := range s {
		i, _ := os.Stat(f.path)
		if (i == nil) != (f.info == nil) {
			return false
		}
		if i != nil && (!os.SameFile(i, f.info) || !i.ModTime().Equal(f.info.ModTime()) || i.Size() != f.info.Size() ||
			i.Mode() != f.info.Mode()) {
			return false
		}
	}
	return true
}

// readDescription reads no more than ParseDescription needs to refuse what is too large.
func readDescription(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxDescription+1))
}

func (h *Host) poll(ctx context.Context) {
	t := time.NewTicker(h.opt.Poll)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = h.scan(ctx, false) // it tells the log
		case <-ctx.Done():
			return
		}
	}
}

// descriptions finds the descriptions by the plugin's name, and what is wrong with their names.
func descriptions(dir string) (found map[string]string, problems []skerry.Problem, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	found = map[string]string{}
	for _, e := range list {
		file := e.Name()
		ext := filepath.Ext(file)
		if strings.HasPrefix(file, ".") || e.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			continue
		}
		name := strings.TrimSuffix(file, ext)
		if err := skerry.CheckName(name); err != nil {
			problems = append(problems, skerry.Problem{Path: file, Message: err.Error(), Hint: "rename the file"})
			continue
		}
		if other, twice := found[name]; twice {
			problems = append(problems, skerry.Problem{Path: file, Message: "describes the same plugin as " + filepath.Base(other),
				Hint: "remove one of them"})
			continue
		}
		if len(found) == MaxPlugins {
			problems = append(problems, skerry.Problem{Path: file, Message: fmt.Sprintf("a site has at most %d plugins", MaxPlugins)})
			continue
		}
		found[name] = filepath.Join(dir, file)
	}
	return found, problems, nil
}

// scan brings the plugins up to date with the directory. The first time, what is wrong is an error; later it is logged, and
// what worked before stays.
func (h *Host) scan(ctx context.Context, first bool) error {
	found, problems, err := descriptions(h.opt.Dir)
	if err != nil {
		if first {
			return fmt.Errorf("directory of plugins: %w", err)
		}
		h.complain("", "the directory of plugins cannot be read; the plugins stay as they are", err)
		return nil
	}
	changed := false
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if old, ok := h.seen[name]; ok && old[0].path == found[name] && old.fresh() {
			continue
		}
		switch ok, err := h.update(ctx, name, found[name], first); {
		case err == nil:
			changed = changed || ok
		case first:
			problems = append(problems, told(filepath.Base(found[name]), err)...)
		}
	}
	if first && len(problems) > 0 {
		return &skerry.Error{Code: skerry.CodeInvalid, Message: "plugins in " + h.opt.Dir, Problems: problems, Hint: "`skerry cluster plugin check " + h.opt.Dir + "` tries them"}
	}
	var last string
	for _, p := range problems {
		last += p.Path + ": " + p.Message + "; "
	}
	if last != "" {
		h.complain("", "some plugins are left out", errors.New(strings.TrimSuffix(last, "; ")))
	} else {
		delete(h.failed, "")
	}
	for name := range h.seen {
		if _, there := found[name]; !there {
			delete(h.seen, name)
			delete(h.failed, name)
			if h.swap(name, nil) {
				h.opt.Log.Info("a plugin was removed", "plugin", name)
				changed = true
			}
		}
	}
	if changed {
		h.mu.Lock()
		close(h.changed)
		h.changed = make(chan struct{})
		h.mu.Unlock()
	}
	return nil
}

// told gives the problems of an error with the file they are in.
func told(file string, err error) []skerry.Problem {
	var e *skerry.Error
	if !errors.As(err, &e) || len(e.Problems) == 0 {
		return []skerry.Problem{{Path: file, Message: err.Error()}}
	}
	out := slices.Clone(e.Problems)
	for i := range out {
		out[i].Path = strings.TrimSuffix(file+": "+out[i].Path, ": ")
	}
	return out
}

// complain logs a thing once, until it changes.
func (h *Host) complain(name, what string, err error) {
	text := what + ": " + err.Error()
	if h.failed[name] == text {
		return
	}
	h.failed[name] = text
	if name == "" {
		h.opt.Log.Warn(what, "err", err)
		return
	}
	h.opt.Log.Warn(what, "plugin", name, "err", err)
}

// update loads a plugin anew. It reports whether there is a new version.
func (h *Host) update(ctx context.Context, name, file string, first bool) (bool, error) {
	h.seen[name] = stampOf(file)
	h.mu.Lock()
	old := h.plugins[name]
	h.mu.Unlock()
	data, err := readDescription(file)
	var d *Description
	if err == nil {
		d, err = ParseDescription(data)
	}
	if err != nil {
		what := "a description of a plugin is not valid; there is no such plugin"
		if old != nil {
			what = "a new description of a plugin is not valid; the one before stays"
		}
		if !first {
			h.complain(name, what, err)
		}
		return false, err
	}
	h.seen[name] = append(h.seen[name], stampOf(d.files(h.opt.Dir)...)...)
	v := h.load(ctx, name, d)
	if old != nil && old.run != nil {
		if err := v.try(ctx); err != nil {
			h.complain(name, "a new version of a plugin does not work; the one before stays", err)
			if v.run != nil {
				v.run.close()
			}
			return false, err
		}
	}
	delete(h.failed, name)
	if v.run == nil {
		h.opt.Log.Warn("a plugin does not load", "plugin", name, "err", v.broken)
	} else {
		h.opt.Log.Info("a plugin is loaded", "plugin", name, "kind", d.Kind, "isolation", strings.Join(v.run.isolation(), "; "))
	}
	h.swap(name, v)
	return true, nil
}

// load makes a version, which may be broken.
func (h *Host) load(ctx context.Context, name string, d *Description) *version {
	d.Timeout += spec.Duration(h.opt.slack)
	v := &version{name: name, desc: d, log: h.opt.Log, loaded: time.Now()}
	stderr := &lines{log: h.opt.Log, name: name}
	var err error
	if d.Kind == KindWasm {
		var w *wasm
		if w, err = newWasm(ctx, name, d, path(h.opt.Dir, d.File), h.cache, stderr); err == nil {
			v.run = w
		}
	} else {
		var x *program
		if x, err = newProgram(name, d, &h.opt, stderr); err == nil {
			v.run = x
		}
	}
	if err != nil {
		v.broken = "it does not load: " + err.Error()
	}
	return v
}

// try asks a version that is new the sample query. A machine that is busy for a moment gets another chance.
func (v *version) try(ctx context.Context) (err error) {
	if v.run == nil {
		return errors.New(v.broken)
	}
	q, text := sampleText()
	for range 2 {
		if _, err = v.ask(ctx, &q, text); err == nil {
			break
		}
	}
	return err
}

// swap replaces a version, nil for none, and ends the old one once its calls are over.
func (h *Host) swap(name string, v *version) bool {
	h.mu.Lock()
	old := h.plugins[name]
	if v == nil {
		delete(h.plugins, name)
	} else {
		h.plugins[name] = v
	}
	h.mu.Unlock()
	if old != nil {
		h.wg.Go(old.retire)
	}
	return old != nil
}
