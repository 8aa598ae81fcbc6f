//go:build linux

package worker

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// UserPool are the users of the host, and the groups, that user namespaces of instances have: First to First+Size-1. The zero value is
// the default pool. Off: containers have the host's users.
type UserPool struct {
	First, Size uint32
	Off         bool
}

// usersEach is how many users the user namespace of an instance has: as many as other tools give one, and as most images need.
const usersEach = 1 << 16

// defaultUsers lie where systemd's table of user numbers has nothing, below what its foreign images have, and end before the range of
// the runtime's self-test.
var defaultUsers = UserPool{First: 0x7000_0000, Size: 0x0ffd_0000}

// ParseUserPool reads FIRST-LAST, or "off"; empty is the default.
func ParseUserPool(s string) (p UserPool, err error) {
	switch s {
	case "":
		return UserPool{}, nil
	case "off":
		return UserPool{Off: true}, nil
	}
	probe := runtime.ProbeUsers()
	from, to, ok := strings.Cut(s, "-")
	first, err1 := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	switch {
	case !ok || err1 != nil || err2 != nil:
		return p, fmt.Errorf("%q is neither FIRST-LAST, two numbers of users, nor off", s)
	case last < first || last-first+1 < usersEach:
		return p, fmt.Errorf("%q has fewer than %d users, as many as one instance has", s, usersEach)
	case first < usersEach || last == 1<<32-1:
		return p, fmt.Errorf("%q has users of the host; begin at %d or above, and end below %d", s, usersEach, uint32(1<<32-1))
	case overlap(first, last, firstOwnUser, firstOwnUser+ownUsers-1):
		return p, fmt.Errorf("%q has users of native instances, %d-%d", s, firstOwnUser, firstOwnUser+ownUsers-1)
	case overlap(first, last, uint64(probe.First), uint64(probe.First)+uint64(probe.Size)-1):
		return p, fmt.Errorf("%q has users of the runtimes' self-tests, %d-%d", s, probe.First, probe.First+probe.Size-1)
	}
	return UserPool{First: uint32(first), Size: uint32(last - first + 1)}, nil
}

func overlap(a, b, c, d uint64) bool { return a <= d && c <= b }

// userRanges gives instances users of the host, each its own. Which, is in a file of the instance's directory: it stays as long as that.
type userRanges struct {
	pool  UserPool
	dir   string   // of all instances
	taken []string // files like /etc/subuid, of ranges that are others'
	all   userRegistry

	mu sync.Mutex // protects what follows
	of map[skerry.InstanceID]uint32
	by map[uint32]skerry.InstanceID // nil before the first look
}

// usersFile is the file with the first user of an instance, in decimal digits.
const usersFile = "users"

func newUserRanges(dir string, pool UserPool, all string) *userRanges {
	if pool.Size == 0 {
		pool.First, pool.Size = defaultUsers.First, defaultUsers.Size
	}
	return &userRanges{pool: pool, dir: dir, all: userRegistry(all), taken: []string{"/etc/subuid", "/etc/subgid"}}
}

// take gives the users of an instance, which has a directory: always the same ones.
func (u *userRanges) take(id skerry.InstanceID) (*runtime.UserNamespace, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.load()
	}
	unlock, err := u.all.lock()
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	defer unlock()
	others, err := u.all.others(u.dir)
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	first, ok := u.of[id]
	if ok {
		if err := overlaps(first, others); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(u.dir, string(id), usersFile)
	if !ok {
		if first, err = u.find(id, others); err != nil {
			return nil, err
		}
		// The rename makes it whole or not there; without it the instance gets another after a power failure, when nothing of it runs.
		if err := replaceFile(file, strconv.AppendUint(nil, uint64(first), 10)); err != nil {
			return nil, fmt.Errorf("users: %w", err)
		}
		u.of[id], u.by[first] = first, id
	}
	if err := u.all.add(first, file); err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	return &runtime.UserNamespace{First: first, Size: usersEach}, nil
}

// give takes note that an instance's directory is gone.
func (u *userRanges) give(id skerry.InstanceID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if first, ok := u.of[id]; ok {
		delete(u.of, id)
		delete(u.by, first)
		u.all.give(first, filepath.Join(u.dir, string(id), usersFile))
	}
}

// load reads what earlier lives gave. A range counts whatever the pool is now, for something may run with it.
func (u *userRanges) load() {
	u.of, u.by = map[skerry.InstanceID]uint32{}, map[uint32]skerry.InstanceID{}
	files, _ := filepath.Glob(filepath.Join(u.dir, "*", usersFile))
	for _, file := range files {
		data, err := os.ReadFile(file)
		n, bad := strconv.ParseUint(string(data), 10, 32)
		first := uint32(n)
		if err != nil || bad != nil || u.by[first] != "" || first < usersEach {
			continue
		}
		id := skerry.InstanceID(filepath.Base(filepath.Dir(file)))
		u.of[id], u.by[first] = first, id
	}
}

// find looks for a free range, from a place on that depends on the instance: workers that share a machine, and do not see each other's
// ranges, hardly ever choose the same.
func (u *userRanges) find(id skerry.InstanceID, claims []claim) (uint32, error) {
	var others []idRange
	for _, c := range claims {
		others = append(others, c.idRange)
	}
	for _, file := range u.taken {
		list, err := readSubIDs(file)
		if err != nil {
			return 0, fmt.Errorf("users: %w", err)
		}
		others = append(others, list...)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	n := u.pool.Size / usersEach
	for i := range n {
		first := u.pool.First + (h.Sum32()%n+i)%n*usersEach
		last := uint64(first) + usersEach - 1
		mine := func(o idRange) bool { return overlap(uint64(first), last, o.first, o.last) }
		near := false // a pool that has been changed has other borders
		for f := range u.by {
			near = near || overlap(uint64(first), last, uint64(f), uint64(f)+usersEach-1)
		}
		if !near && !slices.ContainsFunc(others, mine) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("users: all %d ranges of %d users for user namespaces are in use; give the worker more with --user-namespaces", n, usersEach)
}

// idRange are users, or groups, of the host.
type idRange struct{ first, last uint64 }

func readSubIDs(file string) ([]idRange, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseSubIDs(f)
}

// parseSubIDs reads what subuid(5) describes, NAME:FIRST:COUNT. As there, lines that are not of that form do not count.
func parseSubIDs(r io.Reader) (out []idRange, err error) {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Split(strings.TrimSpace(sc.Text()), ":")
		if len(f) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 33)
		if err1 == nil && err2 == nil && count > 0 {
			out = append(out, idRange{first, first + count - 1})
		}
	}
	return out, sc.Err()
}

// ownCapabilities are those beyond what the level baseline may add that a container can use on what is its own. All others are good for
// something on the host alone.
var ownCapabilities = []string{"DAC_READ_SEARCH", "IPC_OWNER", "SYS_PTRACE"}

// hostUsers says why a container has the host's users; "" when it gets its own. The container's spec is complete but for that, and for
// secrets.
//
// What an organisation of the level privileged asks for by name is to work as on the host. Others may only use what works all the same.
func hostUsers(spec *runtime.Spec, k *skerry.Container, a *skerry.Assignment) (string, error) {
	switch {
	case spec.Privileged:
		return "it is privileged", nil
	case spec.Checkpoint:
		return "its memory is to be moved with it (migration by checkpoint)", nil
	case len(spec.Hooks) > 0:
		return "its device has programs run on the host", nil
	}
	uid, gid, err := secretOwner(spec, skerry.RuntimeOCI)
	high := err == nil && max(uid, gid) >= usersEach // else the driver, which sees the layers together, says what is wrong
	if a.Level != "" && a.Level != skerry.LevelPrivileged {
		if high {
			return "", &runtime.InvalidSpec{Field: "user", Reason: fmt.Sprintf("%d:%d is above what a user namespace has, 0 to %d; choose others, "+
				"or ask the operator of the site, who grants users of the host by \"levels: {%s: privileged}\" in the site's admission policy", uid, gid, usersEach-1, a.Org)}
		}
		return "", nil
	}
	switch {
	case high:
		return fmt.Sprintf("its user and group %d:%d are above what a user namespace has", uid, gid), nil
	case len(spec.Devices) > 0:
		return "it has a device, and its organisation the security level privileged", nil
	}
	for _, c := range k.Security.AddCaps {
		if c = skerry.CapName(c); !slices.Contains(ownCapabilities, c) && !defaultCapability(c) {
			return "it has the capability " + c, nil
		}
	}
	for _, m := range k.Mounts {
		for i := range a.Spec.Volumes {
			if v := &a.Spec.Volumes[i]; v.Name == m.Volume && v.Host != nil {
				return "it has the host's path " + v.Host.Path + ", and its organisation the security level privileged", nil
			}
		}
	}
	return "", nil
}

// defaultCapability reports whether containers have a capability without asking.
func defaultCapability(name string) bool {
	set, _, err := runtime.ContainerCapabilities(runtime.Spec{})
	return err == nil && slices.Contains(set, "CAP_"+name)
}
