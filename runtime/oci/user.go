//go:build linux

package oci

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry.dev/skerry/runtime"
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
		f, err := root.Open(name)
		if err != nil {
			return io.NopCloser(strings.NewReader(""))
		}
		return f
	}
	passwd, group := open("etc/passwd"), open("etc/group")
	defer passwd.Close()
	defer group.Close()
	u, err := resolveUser(user, passwd, group)
	if err != nil {
		return u, &runtime.InvalidSpec{Field: "user", Reason: err.Error()}
	}
	return u, nil
}

// maxID is the largest user or group number that means somebody.
const maxID = 1<<32 - 2

// resolveUser reads "user[:group]", names or numbers, by the text of passwd(5) and group(5).
func resolveUser(user string, passwd, group io.Reader) (specs.User, error) {
	name, groupName, hasGroup := strings.Cut(user, ":")
	u := specs.User{}
	uid, uidErr := parseID(name)
	found := uidErr == nil
	u.UID = uid
	login := ""
	if err := fields(passwd, 4, func(f []string) bool {
		id, err1 := parseID(f[2])
		gid, err2 := parseID(f[3])
		if err1 != nil || err2 != nil || f[0] != name && (uidErr != nil || id != uid) {
			return true
		}
		found, login, u.UID, u.GID = true, f[0], id, gid
		return false
	}); err != nil {
		return u, err
	}
	if !found {
		return u, fmt.Errorf("%q is not in the image's /etc/passwd; use a number, or a name that the image has", name)
	}
	gid, gidErr := parseID(groupName)
	if hasGroup && gidErr == nil {
		u.GID = gid
	}
	groupFound := !hasGroup || gidErr == nil
	if err := fields(group, 4, func(f []string) bool {
		id, err := parseID(f[2])
		if err != nil {
			return true
		}
		if hasGroup && gidErr != nil && f[0] == groupName {
			groupFound, u.GID = true, id
		}
		if !hasGroup && login != "" && id != u.GID {
			for member := range strings.SplitSeq(f[3], ",") {
				if member == login && len(u.AdditionalGids) < 64 {
					u.AdditionalGids = append(u.AdditionalGids, id)
				}
			}
		}
		return true
	}); err != nil {
		return u, err
	}
	if !groupFound {
		return u, fmt.Errorf("group %q is not in the image's /etc/group; use a number, or a name that the image has", groupName)
	}
	return u, nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n > maxID {
		err = errors.New("out of range")
	}
	return uint32(n), err
}

// fields calls f for each line with at least n colon-separated fields until it answers false. It reads at most 1 MiB:
// the file is the image's, and nobody vouches for it.
func fields(r io.Reader, n int, f func([]string) bool) error {
	sc := bufio.NewScanner(io.LimitReader(r, 1<<20))
	for sc.Scan() {
		if parts := strings.Split(strings.TrimSpace(sc.Text()), ":"); len(parts) >= n && !f(parts) {
			return nil
		}
	}
	if err := sc.Err(); err != nil && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, bufio.ErrTooLong) {
		return err
	}
	return nil
}
