//go:build linux

package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
)

const someMounts = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /srv/nfs/nas/data rw,relatime shared:9 - nfs4 nas:/data rw,vers=4.2,soft,addr=10.0.0.2
31 22 0:27 / /srv/with\040space rw - nfs nas:/x rw
32 30 0:28 / /srv/nfs/nas/data/local rw - ext4 /dev/vdb rw
33 22 0:29 / /srv/covered rw - nfs4 nas:/y rw
34 33 0:30 / /srv/covered rw - tmpfs tmpfs rw
35 22 0:31 / /srv/auto rw - autofs systemd-1 rw
36 22 0:32 / /srv/share rw - cifs //nas/share rw
garbage
`

// A volume is found on the network file system that it asks for, and never on what is mounted above, below or over it.
func TestOnFileSystem(t *testing.T) {
	for _, c := range []struct{ path, kind, have string }{
		{"/srv/nfs/nas/data", "nfs", ""},
		{"/srv/nfs/nas/data/deep/er", "nfs", ""},
		{"/srv/with space", "nfs", ""},
		{"/srv/share", "smb", ""},
		{"/srv/nfs/nas/data", "smb", "nfs4"},
		{"/srv/nfs/nas/data/local/x", "nfs", "ext4"},
		{"/srv/nfs/nas/database", "nfs", "ext4"},
		{"/srv/covered", "nfs", "tmpfs"},
		{"/srv/auto", "nfs", "autofs"},
		{"/", "nfs", "ext4"},
	} {
		_, err := onFileSystem(someMounts, &spec.HostVolume{Path: c.path, FileSystem: c.kind})
		var missing *notMounted
		if (err == nil) != (c.have == "") || err != nil && (!errors.As(err, &missing) || missing.have != c.have) {
			t.Errorf("%s on %s: %v, expected it on %q", c.path, c.kind, err, c.have)
		}
	}
}

func FuzzOnFileSystem(f *testing.F) {
	f.Add(someMounts, "/srv/nfs/nas/data")
	f.Add("1 2 3:4 / / - nfs\n", "/")
	f.Fuzz(func(t *testing.T, mounts, path string) {
		_, err := onFileSystem(mounts, &spec.HostVolume{Path: path, FileSystem: "nfs"})
		var missing *notMounted
		if err != nil && !errors.As(err, &missing) {
			t.Errorf("%q in %q: %v is not of a mount that is missing", path, mounts, err)
		}
	})
}

// hangingServer mounts a file system of the network whose server takes requests and never answers, but for what answers gives. asked is
// closed with the first one.
func hangingServer(t *testing.T, dir string, answers ...func(opcode uint32) []byte) (asked chan struct{}) {
	t.Helper()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "file systems in user space", Why: err.Error()})
	}
	if err := unix.Mount("nas:/volume", dir, "fuse.glusterfs", 0, fmt.Sprintf(
		"fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())); err != nil {
		fuse.Close()
		t.Skip(&testenv.Unsupported{What: "file systems in user space", Why: err.Error()})
	}
	asked = make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		request := make([]byte, 1<<17)
		for nth := 0; ; nth++ {
			if _, err := unix.Read(int(fuse.Fd()), request); err != nil {
				return // it was unmounted
			}
			switch nth {
			case 0: // the greeting: without an answer nothing else is asked
				answer := make([]byte, 80)
				binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
				copy(answer[8:16], request[8:16])
				binary.NativeEndian.PutUint32(answer[16:], 7) // FUSE 7.31
				binary.NativeEndian.PutUint32(answer[20:], 31)
				binary.NativeEndian.PutUint32(answer[36:], 4096) // of a write
				if _, err := unix.Write(int(fuse.Fd()), answer); err != nil {
					return
				}
			case 1:
				close(asked)
			}
			for _, f := range answers {
				if text := f(binary.NativeEndian.Uint32(request[4:])); nth > 0 && text != nil {
					answer := make([]byte, 16, 16+len(text))
					binary.NativeEndian.PutUint32(answer, uint32(16+len(text)))
					copy(answer[8:16], request[8:16])
					_, _ = unix.Write(int(fuse.Fd()), append(answer, text...)) // who asked may have gone
				}
			}
		}
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
		<-done
		fuse.Close()
	})
	return asked
}

// A server that hangs holds up nobody but the instance that asks it, and that one not for ever.
func TestHangingServer(t *testing.T) {
	base := t.TempDir()
	at := filepath.Join(base, "volume")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatalf("make the mount point: %v", err)
	}
	asked := hangingServer(t, at)
	s := &Server{places: places{filepath.Join(base, "worker")}}
	s.opt.NFS.table = nfsTable(s.dir, &noNFS{})
	volume := spec.Volume{Name: "v", Host: &spec.HostVolume{Path: at, FileSystem: "glusterfs"}}
	for level, a := range map[spec.SecurityLevel]*spec.Assignment{
		spec.LevelPrivileged: {ID: "web-1", Level: spec.LevelPrivileged},
		spec.LevelRestricted: {ID: "web-2", Level: spec.LevelRestricted, HostPaths: []spec.HostPath{{Path: at, Writable: true}}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.makeVolume(ctx, s.opt.NFS.table, a, &volume) }()
		<-asked
		if cancel(); !errors.Is(<-done, context.Canceled) {
			t.Errorf("%s: an instance that waited for the server does not end when it is told to", level)
		}
		if err := s.makeVolume(t.Context(), s.opt.NFS.table, a, &spec.Volume{Name: "other", Empty: &spec.EmptyVolume{}}); err != nil {
			t.Errorf("%s: another volume: %v", level, err)
		}
	}
	var late *noAnswer
	if _, err := within(t.Context(), s.opt.NFS.table, at, time.Millisecond, &noAnswer{*volume.Host, time.Millisecond},
		func() (os.FileInfo, error) { return os.Stat(at) }, func(os.FileInfo) {}); !errors.As(err, &late) {
		t.Errorf("the patience is over: %v, expected that the server does not answer", err)
	}
}

// However often instances try a server of the operator's mounts that hangs, few threads of the agent's wait for it.
func TestHostVolumeHoldsFewThreads(t *testing.T) {
	base := t.TempDir()
	at := filepath.Join(base, "volume")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatalf("make the mount point: %v", err)
	}
	asked := hangingServer(t, at)
	s := &Server{places: places{filepath.Join(base, "worker")}}
	s.opt.NFS.table = nfsTable(s.dir, &noNFS{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	const tries = 40
	for n := range tries {
		volume := spec.Volume{Name: "v", Host: &spec.HostVolume{Path: filepath.Join(at, strconv.Itoa(n)), FileSystem: "glusterfs"}}
		a := &spec.Assignment{ID: "web-1", Level: spec.LevelPrivileged}
		go func() { done <- s.makeVolume(ctx, s.opt.NFS.table, a, &volume) }()
	}
	<-asked
	time.Sleep(100 * time.Millisecond) // so that all have asked that may
	cancel()
	for range tries {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("one that waited ended with %v, expected that it was told to", err)
		}
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if n := bytes.Count(stacks, []byte("\nos.Stat(")); n == 0 || n > 8 {
		t.Errorf("%d threads wait for the server, want 1 to 8", n)
	}
}

// Where the file system is not mounted, the instance waits, and writes to no disk of the worker's own.
func TestNetworkVolumeIsNotMounted(t *testing.T) {
	base := t.TempDir()
	s := &Server{places: places{filepath.Join(base, "worker")}}
	a := &spec.Assignment{ID: "web-1", Level: spec.LevelPrivileged}
	err := s.makeVolume(t.Context(), s.opt.NFS.table, a, &spec.Volume{Name: "v", Host: &spec.HostVolume{Path: base, FileSystem: "nfs"}})
	var missing *notMounted
	var never impossible
	if !errors.As(err, &missing) || errors.As(err, &never) {
		t.Errorf("%v, expected that it is not mounted, and may be later", err)
	}
}
