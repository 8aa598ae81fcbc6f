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
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
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

// userRanges gives instances users of the host, each its own, or, where owners of files cannot be mapped, all of an
// organisation the same ones. Which, is in a file of the instance's directory, or of the organisation's: it stays as
// long as that.
type userRanges struct {
	pool  UserPool
	dir   string   // of all instances
	orgs  string   // of all organisations
	taken []string // files like /etc/subuid, of ranges that are others'
	known []string // files like /etc/passwd, of users and groups that the host has
	all   userRegistry
	// held gives further ranges, by their first users, that files on the disk have; nil: there are none. It reads the records of all
	// instances, volumes and copies.
	held func() []uint32

	mu   sync.Mutex // protects what follows
	of   map[string]uint32
	by   map[uint32]string // nil before the first look
	used map[string]time.Time
	// onDisk is what held gave at lookedAt. What came onto the disk since then has ranges of by, until one leaves by: the zero time asks for
	// another look.
	onDisk   []uint32
	lookedAt time.Time
}

// heldFor is how long a look at the disk serves. Without it, each of a hundred starts would read the records of all the others.
const heldFor = time.Minute

// usersFile is the file with the first user of an instance or an organisation, in decimal digits. Maps have its path.
const usersFile = "users"

// organisationsDir is the directory of organisations, beside that of instances.
const organisationsDir = "organisations"

func newUserRanges(dir string, pool UserPool, all string) *userRanges {
	if pool.Size == 0 {
		pool.First, pool.Size = defaultUsers.First, defaultUsers.Size
	}
	return &userRanges{pool: pool, dir: dir, orgs: filepath.Join(filepath.Dir(dir), organisationsDir), all: userRegistry(all),
		taken: []string{"/etc/subuid", "/etc/subgid"}, known: []string{"/etc/passwd", "/etc/group"}}
}

// take gives the users of an instance, which has a directory: always the same ones.
func (u *userRanges) take(id skerry.InstanceID) (*runtime.UserNamespace, error) {
	// The rename makes it whole or not there; without it the instance gets another after a power failure, when nothing of it runs.
	return u.takeFor(filepath.Join(u.dir, string(id), usersFile), string(id), files.Swap)
}

// organisation gives the users of an organisation: always the same ones, as long as anything on the disk belongs to them.
func (u *userRanges) organisation(org string) (*runtime.UserNamespace, error) {
	if org == "" {
		org = noOrg
	} else if err := skerry.CheckName(org); err != nil {
		return nil, impossible(fmt.Sprintf("organisation %q has no users here: %v", org, err))
	}
	dir := filepath.Join(u.orgs, org)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	return u.takeFor(filepath.Join(dir, usersFile), org, files.Replace)
}

// noOrg is in the place of an organisation's name, which none has, for instances of none.
const noOrg = "-"

// takeFor gives the users whose first is in a file, or finds some and writes it.
func (u *userRanges) takeFor(file, seed string, write func(string, []byte, fs.FileMode) error) (*runtime.UserNamespace, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fresh := u.by == nil
	if fresh {
		u.load()
	}
	unlock, err := u.all.lock()
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	defer unlock()
	others, err := u.all.others(u.dir, u.orgs)
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	org := u.ofOrganisation(file)
	for file, first := range u.of { // organisations have theirs when nothing of them runs, as after a restart of the machine
		if fresh && u.ofOrganisation(file) && overlaps(first, others) == nil {
			if err := u.all.add(first, file); err != nil {
				return nil, fmt.Errorf("users: %w", err)
			}
		}
	}
	first, ok := u.of[file]
	if ok {
		switch err := overlaps(first, others); {
		case err != nil && org: // while it did not run; its files follow
			ok = false
			u.leave(first)
		case err != nil:
			return nil, err
		}
	}
	if !ok {
		if first, err = u.find(seed, others); err != nil {
			return nil, err
		}
		if err := write(file, strconv.AppendUint(nil, uint64(first), 10), 0o644); err != nil {
			return nil, fmt.Errorf("users: %w", err)
		}
		u.of[file], u.by[first] = first, file
	}
	u.used[file] = time.Now()
	if err := u.all.add(first, file); err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	return &runtime.UserNamespace{First: first, Size: usersEach}, nil
}

func (u *userRanges) ofOrganisation(file string) bool {
	return filepath.Dir(filepath.Dir(file)) == u.orgs
}

// give takes note that an instance's directory is gone.
func (u *userRanges) give(id skerry.InstanceID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forget(filepath.Join(u.dir, string(id), usersFile))
}

// forget releases a range whose file is gone. The lock is held.
func (u *userRanges) forget(file string) {
	if first, ok := u.of[file]; ok {
		delete(u.of, file)
		delete(u.used, file)
		u.leave(first)
		u.all.give(first, file)
	}
}

// leave takes a range out of those that are given; files may still have it. The lock is held.
func (u *userRanges) leave(first uint32) {
	delete(u.by, first)
	u.lookedAt = time.Time{}
}

// release forgets the users of organisations that have no instance here, if nothing on the disk belongs to them and none were asked for
// since it was found out which those are.
func (u *userRanges) release(keep map[string]bool, since time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.load()
	}
	var on []uint32
	if u.held != nil {
		on = u.held()
	}
	list, err := os.ReadDir(u.orgs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		file := filepath.Join(u.orgs, e.Name(), usersFile)
		first, known := u.of[file]
		if !known || keep[e.Name()] || e.Name() == noOrg && keep[""] || slices.Contains(on, first) || !u.used[file].Before(since) {
			continue
		}
		if e := os.RemoveAll(filepath.Dir(file)); e != nil {
			err = errors.Join(err, e)
			continue
		}
		u.forget(file)
	}
	return err
}

// organisations gives the first users of organisations that have some.
func (u *userRanges) organisations() map[string]uint32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.load()
	}
	out := map[string]uint32{}
	for file, first := range u.of {
		if u.ofOrganisation(file) {
			out[strings.TrimPrefix(filepath.Base(filepath.Dir(file)), noOrg)] = first
		}
	}
	return out
}

// load reads what earlier lives gave. A range counts whatever the pool is now, for something may run with it.
func (u *userRanges) load() {
	u.of, u.by, u.used = map[string]uint32{}, map[uint32]string{}, map[string]time.Time{}
	orgs, _ := filepath.Glob(filepath.Join(u.orgs, "*", usersFile)) // before instances, for they last longer
	files, _ := filepath.Glob(filepath.Join(u.dir, "*", usersFile))
	for _, file := range append(orgs, files...) {
		data, err := os.ReadFile(file)
		n, bad := strconv.ParseUint(string(data), 10, 32)
		first := uint32(n)
		if err != nil || bad != nil || u.by[first] != "" || first < usersEach {
			continue
		}
		u.of[file], u.by[first] = first, file
	}
}

// find looks for a free range, from a place on that depends on whom it is for: workers that share a machine, and do not see each other's
// ranges, hardly ever choose the same.
func (u *userRanges) find(seed string, claims []claim) (uint32, error) {
	var others []idRange
	for _, c := range claims {
		others = append(others, c.idRange)
	}
	for _, file := range u.taken {
		list, err := readIDs(file, parseSubIDs)
		if err != nil {
			return 0, fmt.Errorf("users: %w", err)
		}
		others = append(others, list...)
	}
	for _, file := range u.known {
		list, err := readIDs(file, parseAccounts)
		if err != nil {
			return 0, fmt.Errorf("users: %w", err)
		}
		others = append(others, list...)
	}
	looked := u.held == nil || time.Since(u.lookedAt) > heldFor
	if u.held != nil && looked {
		u.lookedAt, u.onDisk = time.Now(), u.held()
	}
	first, ok := u.free(seed, others)
	if !ok && !looked { // what was on the disk may have gone
		u.lookedAt, u.onDisk = time.Now(), u.held()
		first, ok = u.free(seed, others)
	}
	if !ok {
		return 0, fmt.Errorf("users: all %d ranges of %d users for user namespaces are in use; give the worker more with --user-namespaces",
			u.pool.Size/usersEach, usersEach)
	}
	return first, nil
}

// free gives the first range, from the place of a seed on, that nobody has.
func (u *userRanges) free(seed string, others []idRange) (first uint32, ok bool) {
	for _, first := range u.onDisk {
		others = append(others, idRange{uint64(first), uint64(first) + usersEach - 1})
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(seed))
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
			return first, true
		}
	}
	return 0, false
}

// idRange are users, or groups, of the host.
type idRange struct{ first, last uint64 }

func readIDs(file string, parse func(io.Reader) ([]idRange, error)) ([]idRange, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f)
}

// parseAccounts reads the numbers of users or groups from what passwd(5) or group(5) describes, NAME:PASSWORD:NUMBER and more.
func parseAccounts(r io.Reader) (out []idRange, err error) {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Split(sc.Text(), ":")
		if len(f) < 3 {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(f[2]), 10, 32); err == nil {
			out = append(out, idRange{n, n})
		}
	}
	return out, sc.Err()
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
func hostUsers(task *runtime.Spec, container *spec.Container, assigned *spec.Assignment) (string, error) {
	switch {
	case task.Privileged:
		return "it is privileged", nil
	case task.Checkpoint:
		return "its memory is to be moved with it (migration by checkpoint)", nil
	case len(task.Hooks) > 0:
		return "its device has programs run on the host", nil
	}
	uid, gid, err := secretOwner(task, spec.RuntimeOCI)
	high := err == nil && max(uid, gid) >= usersEach // else the driver, which sees the layers together, says what is wrong
	if assigned.Level != "" && assigned.Level != spec.LevelPrivileged {
		if high {
			return "", &runtime.InvalidSpec{Field: "user", Reason: fmt.Sprintf("%d:%d is above what a user namespace has, 0 to %d; choose others, "+
				"or ask the operator of the site, who grants users of the host by \"levels: {%s: privileged}\" in the site's admission policy", uid,
				gid, usersEach-1, assigned.Org)}
		}
		return "", nil
	}
	switch {
	case high:
		return fmt.Sprintf("its user and group %d:%d are above what a user namespace has", uid, gid), nil
	case len(task.Devices) > 0:
		return "it has a device, and its organisation the security level privileged", nil
	}
	for _, c := range container.Security.AddCaps {
		if c = spec.CapName(c); !slices.Contains(ownCapabilities, c) && !defaultCapability(c) {
			return "it has the capability " + c, nil
		}
	}
	for _, m := range container.Mounts {
		for i := range assigned.Spec.Volumes {
			if v := &assigned.Spec.Volumes[i]; v.Name == m.Volume && v.NFS != nil {
				return "it has the NFS server's " + v.NFS.Source() + ", and its organisation the security level privileged", nil
			} else if v.Name == m.Volume && v.Host != nil {
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
