//go:build linux

package oci

import (
	"io"
	"os"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/passwd"
)

// lookupUser finds a user in a root file system. Nothing outside of it is read, whatever its symbolic links say.
func lookupUser(rootfs, user string) (specs.User, error) {
	if user == "" || user == "0" || user == "0:0" {
		return specs.User{}, nil
	}
	root, err := os.OpenRoot(rootfs)
	if err != nil {
		return specs.User{}, err
	}
	defer root.Close()
	open := func(name string) io.ReadCloser {
		// A fifo must not hold us up, also not one that a running container puts there after we looked.
		if st, err := root.Stat(name); err == nil && st.Mode().IsRegular() {
			if f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
				return f
			}
		}
		return io.NopCloser(strings.NewReader(""))
	}
	users, groups := open("etc/passwd"), open("etc/group")
	defer users.Close()
	defer groups.Close()
	u, err := passwd.Resolve(user, users, groups)
	if err != nil {
		return specs.User{}, &runtime.InvalidSpec{Field: "user", Reason: err.Error()}
	}
	return specs.User{UID: u.UID, GID: u.GID, AdditionalGids: u.Groups}, nil
}
