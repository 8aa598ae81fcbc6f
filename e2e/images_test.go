//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/wire"
)

// awaitCopies waits until every image at a server has a copy at each of so many processes that stand by.
func awaitCopies(t *testing.T, c *api.Client, images, standbys int) {
	t.Helper()
	await(t, fmt.Sprintf("%d images are at %d standbys", images, standbys), func() bool {
		list, err := c.Images(t.Context())
		if err != nil || len(list) != images {
			return false
		}
		for _, v := range list {
			if v.Copies == nil || v.Copies.Have != standbys || v.Copies.Of != standbys {
				return false
			}
		}
		return true
	})
}

// keepPassword copies the first admin's password out of a data directory that is about to be removed.
func keepPassword(t *testing.T, from, to string) string {
	t.Helper()
	password, err := os.ReadFile(filepath.Join(from, parents.AdminPasswordFile))
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	file := filepath.Join(to, parents.AdminPasswordFile)
	if err == nil {
		err = os.WriteFile(file, password, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// pullFrom fetches an image from the registry of a server, with all its layers.
func pullFrom(t *testing.T, c *api.Client, name string) {
	t.Helper()
	st, err := artifact.Open(filepath.Join(t.TempDir(), "pulled"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	src := &artifact.Source{BaseURL: c.Server(), Transport: c.Transport()}
	if _, err := st.Pull(t.Context(), "skerry.local/"+name, artifact.HostPlatform(), nil, src); err != nil {
		t.Errorf("pull of %s from %s: %v", name, c.Server(), err)
	}
}

// longer gives the program that was pushed last with another digest.
func longer(t *testing.T, dir string) string {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "longer"), append(program, 0), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "longer")
}

// TestImagesOfASuccessor kills a site's cluster and removes its data directory, with the images that were pushed there. The successor
// serves them and starts instances from them, at a worker that never had them.
func TestImagesOfASuccessor(t *testing.T) {
	p := newProcesses(t, "w1")
	candidate := func(n int, more ...string) *role {
		at := fmt.Sprintf("127.0.11.%d", n)
		return &role{name: "cluster", args: append([]string{"cluster", "--standalone", "--data", p.data(fmt.Sprint("site", n)),
			"--link", at + ":7444", "--api", at + ":7481", "--relay", "", "--admission", p.admission()}, more...)}
	}
	first := p.keep(candidate(1, "--name", "harbour"))
	const firstAPI, secondAPI = "https://127.0.11.1:7481", "https://127.0.11.2:7481"
	token := joinToken(t, firstAPI, p.data("site1"), wire.TierWorker)
	p.keep(&role{name: "worker", args: []string{"worker", "--name", "w1", "--data", p.data("w1"), "--cluster", "127.0.11.1:7444",
		"--join", token, "--run-dir", p.data("run"), "--cgroup-parent", p.cgroup(), "--address", "127.0.0.1", "--http", "", "--ingress=false"}})
	site := login(t, firstAPI, p.data("site1"))
	pushProgram(t, site, p.dir, "test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	token = joinToken(t, firstAPI, p.data("site1"), wire.TierSuccessor)
	p.keep(candidate(2, "--succeed", "127.0.11.1:7444", "--name", "second", "--join", token))
	await(t, "the successor has everything of the store", func() bool {
		st := candidateOf(p.program, p.data("site1"))
		return st != nil && len(st.Voters) == 1 && len(st.Successors) == 1 && st.Successors[0].State == "heir"
	})
	awaitCopies(t, site, 1, 1)
	pushFile(t, site, p.data("twin"), "test/twin:1", filepath.Join(p.dir, "program")) // the same blobs, in another repository
	pushFile(t, site, p.data("more"), "test/since:1", longer(t, p.dir))
	awaitCopies(t, site, 3, 1)
	for dir, want := range map[string]string{"site1": "second", "site2": "2 copied from the leader"} {
		out, err := exec.Command(p.program, "cluster", "status", "--data", p.data(dir)).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("status of %s: got %v\n%s\nwant %q in it", dir, err, out, want)
		}
	}
	admin := p.data("admin")
	keepPassword(t, p.data("site1"), admin)

	first.kill()
	if err := os.RemoveAll(p.data("site1")); err != nil {
		t.Fatal(err)
	}
	second := login(t, secondAPI, admin)
	for _, name := range []string{"test/since:1", "test/twin:1"} {
		pullFrom(t, second, name)
	}
	applied(t, second, "shop", []byte(manifestOf("shop", 1)), 1)
}

// TestImagesOverEtcd does the same to a root whose store lies in etcd, and to the one that takes over: the first, with an empty disk,
// has copied the images back.
func TestImagesOverEtcd(t *testing.T) {
	p := newProcesses(t)
	t.Setenv("ETCD_UNSUPPORTED_ARCH", goruntime.GOARCH)
	members, hosts := etcdMembers(t, p.dir)
	for _, m := range members {
		m.start(t, m.name, p.log)
		p.all = append(p.all, m)
	}
	var servers []string
	var roots []*role
	for n := range 2 {
		at := fmt.Sprintf("127.0.8.%d", n+1)
		servers = append(servers, "https://"+at+":7480")
		roots = append(roots, &role{name: "root", args: []string{"root", "--data", p.data(fmt.Sprint("root", n)),
			"--store", "etcd://" + hosts + "/images", "--link", at + ":7443", "--api", at + ":7480"}})
	}
	admin := p.data("admin")
	p.keep(roots[0])
	client := login(t, servers[0], p.data("root0"))
	keepPassword(t, p.data("root0"), admin)
	pushProgram(t, client, p.dir, "test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	p.keep(roots[1])
	awaitCopies(t, client, 1, 1)
	for n, images := range []int{2, 3} { // 0 leads, then 1
		pushFile(t, client, p.data(fmt.Sprint("more", n)), fmt.Sprintf("test/since:%d", n), filepath.Join(p.dir, "program"))
		awaitCopies(t, client, images, 1)
		roots[n].kill()
		if err := os.RemoveAll(p.data(fmt.Sprint("root", n))); err != nil {
			t.Fatal(err)
		}
		client = login(t, servers[1-n], admin)
		pullFrom(t, client, "test/catalog:1")
		pullFrom(t, client, fmt.Sprintf("test/since:%d", n))
		roots[n].keep(t, p.program, p.log)
		awaitCopies(t, client, images, 1)
	}
}
