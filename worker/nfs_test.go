//go:build linux

package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/nfsmount"
	"skerry.dev/skerry/spec"
)

// noNFS is a kernel that has none.
type noNFS struct{ asked []string }

func (n *noNFS) Mounts() (string, error) { return "", nil }
func (n *noNFS) Mount(_ context.Context, v *spec.NFSVolume, at string) error {
	n.asked = append(n.asked, v.Source()+" "+at)
	return &nfsmount.Missing{Kernel: "6.1"}
}
func (n *noNFS) Ask(context.Context, *spec.NFSVolume, string) error { return nil }
func (n *noNFS) Unmount(context.Context, string) error              { return nil }

// A worker mounts what its operator allows and nothing else, whatever its cluster says; a refusal is final where another try is in vain.
func TestNFSVolume(t *testing.T) {
	dir := t.TempDir()
	machine := &noNFS{}
	s := &Server{places: places{dir}, opt: ServerOptions{Dir: dir,
		NFS: NFSOptions{Allowed: []spec.NFSGrant{{Server: "nas", Path: "/media"}}, table: nfsTable(dir, machine)}}}
	a := &spec.Assignment{ID: "web-1", Level: spec.LevelPrivileged}
	for _, c := range []struct {
		path, want string
	}{
		{"/media/films", "this worker's kernel 6.1 has no NFS"},
		{"/other", "its operator may allow it with --nfs nas:/other"},
		{"/media/../other", "is not the path of an export"},
	} {
		err := openVolume(t.Context(), s, a, &spec.Volume{Name: "v", NFS: &spec.NFSVolume{Server: "nas", Path: c.path}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !permanent(err) {
			t.Errorf("%s: got %v, final %t; expected %q, and final", c.path, err, permanent(err), c.want)
		}
	}
	v := &spec.Volume{Name: "v", NFS: &spec.NFSVolume{Server: "nas", Path: "/media/films"}}
	if want := "nas:/media/films " + s.volumeSource(a, v); len(machine.asked) != 1 || machine.asked[0] != want {
		t.Errorf("asked for %q, expected %q", machine.asked, want)
	}
	if !hasNFS(s.instanceDir(a.ID)) {
		t.Error("no record of the instance's")
	}
	if permanent(&nfsmount.NoAnswer{}) || permanent(&nfsmount.Refused{}) {
		t.Error("a server that does not answer is final, expected another try")
	}
	if err := os.RemoveAll(s.instanceDir(a.ID)); err != nil {
		t.Fatalf("end the instance: %v", err)
	}
	if err := s.opt.NFS.table.Sweep(t.Context()); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, nfsDir)); len(left) != 0 {
		t.Errorf("left: %v, expected nothing", left)
	}
}

// finding answers a look for a directory, and so many questions of what it is.
func finding(looks int) func(opcode uint32) []byte {
	return func(opcode uint32) []byte {
		attr := make([]byte, 88)
		binary.NativeEndian.PutUint64(attr, 2)
		binary.NativeEndian.PutUint32(attr[60:], 0o40755)
		binary.NativeEndian.PutUint32(attr[64:], 2)
		switch opcode {
		case 1: // lookup
			entry := make([]byte, 40)
			binary.NativeEndian.PutUint64(entry, 2)
			return append(entry, attr...)
		case 3: // getattr
			if looks--; looks >= 0 {
				return append(make([]byte, 16), attr...) // for no time
			}
		}
		return nil
	}
}

// A server that hangs once a part of its export was found holds up nobody: the part is mounted without asking again.
func TestServerHangsAfterPart(t *testing.T) {
	base := t.TempDir()
	root, at := filepath.Join(base, "export"), filepath.Join(base, "parts", "0")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatalf("make the mount point: %v", err)
	}
	hangingServer(t, root, finding(1))
	t.Cleanup(func() {
		if err := unmountBelow(base + "/parts"); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	done := make(chan error, 1)
	go func() {
		v := &spec.NFSVolume{Server: "nas", Path: "/x"}
		done <- mountRemotePart(t.Context(), nfsTable(base, &noNFS{}), v, root, "part", at)
	}()
	select {
	case err := <-done:
		list, readErr := os.ReadFile("/proc/thread-self/mountinfo")
		if err != nil || readErr != nil || !strings.Contains(string(list), " "+at+" ") {
			t.Errorf("mount a part: %v, %v; expected it mounted", err, readErr)
		}
	case <-time.After(serverPatience + 5*time.Second):
		t.Error("the part's server hangs, and so does who mounts it")
	}
}

// However often instances try a server that hangs, few threads of the agent's wait for it, and those of other servers do not.
func TestServerHoldsFewThreads(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "export")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatalf("make the mount point: %v", err)
	}
	asked := hangingServer(t, root)
	table := nfsTable(base, &noNFS{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	const tries = 40
	for range tries {
		go func() {
			done <- mountRemotePart(ctx, table, &spec.NFSVolume{Server: "NAS", Path: "/x"}, root, "part", base+"/parts/0")
		}()
	}
	<-asked
	cancel()
	for range tries {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("one that waited ended with %v, expected that it was told to", err)
		}
	}
	for server, want := range map[string]bool{"nas": false, "other": true} {
		short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := table.Asking(short, server); (err == nil) != want {
			t.Errorf("another asks server %s: %v, expected that it may: %t", server, err, want)
		}
		stop()
	}
}
