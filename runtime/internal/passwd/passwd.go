// Package passwd finds users and groups in the text of passwd(5) and group(5), which may come from an image that nobody
// vouches for. Runtime drivers import it.
package passwd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// User is who a process runs as. Groups are the supplementary ones.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// maxID is the largest user or group number that means somebody.
const maxID = 1<<32 - 2

// Resolve reads "user[:group]", names or numbers, by the text of passwd(5) and group(5).
func Resolve(user string, passwd, group io.Reader) (User, error) {
	name, groupName, hasGroup := strings.Cut(user, ":")
	u := User{}
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
		return u, fmt.Errorf("%q is not in /etc/passwd; use a number, or a name that is in it", name)
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
				if member == login && len(u.Groups) < 64 {
					u.Groups = append(u.Groups, id)
				}
			}
		}
		return true
	}); err != nil {
		return u, err
	}
	if !groupFound {
		return u, fmt.Errorf("group %q is not in /etc/group; use a number, or a name that is in it", groupName)
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
