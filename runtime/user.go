package runtime

import (
	"io"
	"io/fs"
	"os"
	"strings"

	"skerry.dev/skerry/runtime/internal/passwd"
)

// LookupUser finds the number of a user, and of its group, in an image of layers, the topmost first. Nothing outside of a layer is
// read, whatever its symbolic links say. Empty is root.
func LookupUser(layers []string, user string) (uid, gid uint32, err error) {
	if user == "" {
		return 0, 0, nil
	}
	users, groups := inLayers(layers, "etc/passwd"), inLayers(layers, "etc/group")
	defer users.Close()
	defer groups.Close()
	u, err := passwd.Resolve(user, users, groups)
	if err != nil {
		return 0, 0, &InvalidSpec{Field: "user", Reason: err.Error()}
	}
	return u.UID, u.GID, nil
}

// inLayers opens a file as the layers together have it; it reads as empty where there is none.
func inLayers(layers []string, name string) io.ReadCloser {
	for _, dir := range layers {
		root, err := os.OpenRoot(dir)
		if err != nil {
			continue
		}
		st, err := root.Lstat(name)
		if err == nil && st.Mode()&fs.ModeSymlink != 0 {
			st, err = root.Stat(name)
		}
		var f *os.File
		if err == nil && st.Mode().IsRegular() { // a fifo would hold us up, a whiteout has nothing
			f, _ = root.Open(name)
		}
		_ = root.Close()
		if f != nil {
			return f
		}
		if err == nil {
			break // something else is there, and hides what is below
		}
	}
	return io.NopCloser(strings.NewReader(""))
}
