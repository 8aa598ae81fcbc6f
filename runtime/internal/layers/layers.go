// Package layers finds files in the layers of an image that is not mounted. Runtime drivers import it.
package layers

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Layers are those of an image, the topmost first. No link leads out of one.
type Layers []*os.Root

// Open opens them; Close must be called.
func Open(dirs []string) (l Layers, err error) {
	for _, d := range dirs {
		r, err := os.OpenRoot(d)
		if err != nil {
			l.Close()
			return nil, err
		}
		l = append(l, r)
	}
	return l, nil
}

// Close closes them.
func (l Layers) Close() {
	for _, r := range l {
		r.Close()
	}
}

// File opens a regular file; nil where the topmost layer that has the name has none.
func (l Layers) File(name string) *os.File {
	name = clean(name)
	for _, r := range l {
		st, err := r.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !st.Mode().IsRegular() {
			return nil // a whiteout, a directory: what is below does not count
		}
		if f, err := r.Open(name); err == nil {
			return f
		}
	}
	return nil
}

// Dir lists the regular files of a directory in the topmost layer that has it.
func (l Layers) Dir(name string) (files []string) {
	for _, r := range l {
		f, err := r.Open(clean(name))
		if err != nil {
			continue
		}
		defer f.Close()
		entries, _ := f.ReadDir(-1)
		for _, e := range entries {
			if e.Type().IsRegular() {
				files = append(files, path.Join(name, e.Name()))
			}
		}
		return files
	}
	return nil
}

func clean(name string) string { return strings.TrimPrefix(path.Join("/", name), "/") }
