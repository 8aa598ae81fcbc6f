//go:build linux

package worker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
