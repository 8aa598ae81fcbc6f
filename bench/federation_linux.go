package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// federated is a real root, as `skerry root` runs it, with a second process that holds the clusters' ends of its links.
type federated struct {
	workspace
	program     string
	link, api   string
	root, sites *exec.Cmd
	toSites     io.WriteCloser
	fromSites   *bufio.Reader
	admin       *api.Client
	users       []*api.Client // each with its own rate, from an address of its own
	clusters    int
	apps        int
}

// apiUsers share the requests, because one user has 100 a second and one address 200.
const apiUsers = 8

func openFederated(ctx context.Context, program string) (fed *federated, err error) {
	fed = &federated{program: program}
	defer func() {
		if err != nil {
			err = errors.Join(err, fed.tail(), fed.close())
		}
	}()
	if err = fed.workspace.open(); err != nil {
		return fed, err
	}
	for _, addr := range []*string{&fed.link, &fed.api} {
		if *addr, err = freeAddress(); err != nil {
			return fed, err
		}
	}
	if err = fed.startRoot(ctx); err != nil {
		return fed, err
	}
	if err = fed.logins(ctx); err != nil {
		return fed, err
	}
	if err = fed.image(ctx); err != nil {
		return fed, err
	}
	return fed, fed.startSites()
}

// freeAddress is one of this machine that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startRoot starts the root, for the first time or again, and waits until its API answers that it is the root.
func (f *federated) startRoot(ctx context.Context) error {
	f.root = f.command(f.program, "root", "--data", filepath.Join(f.dir, "root"), "--link", f.link, "--api", f.api, "--log-level", "warn")
	if err := f.root.Start(); err != nil {
		return err
	}
	return f.await(ctx, "the root serves its API", func() (bool, error) {
		if f.admin == nil {
			_, err := api.FetchPin(ctx, "https://"+f.api)
			return err == nil, err
		}
		_, err := f.admin.Orgs(ctx)
		return err == nil, err
	})
}

func (f *federated) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Stderr = f.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// logins makes the users, each of whom comes from an address of its own.
func (f *federated) logins(ctx context.Context) error {
	var password []byte
	err := f.await(ctx, "the root has its first admin", func() (ok bool, err error) {
		password, err = os.ReadFile(filepath.Join(f.dir, "root", parents.AdminPasswordFile))
		return err == nil, err
	})
	if err != nil {
		return err
	}
	pin, err := api.FetchPin(ctx, "https://"+f.api)
	if err != nil {
		return err
	}
	open := func(n int, user, password string) (*api.Client, error) {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(n))}}
		c, err := api.NewClient(api.ClientOptions{Server: "https://" + f.api, Pin: pin, Dial: from.DialContext})
		if err == nil {
			_, err = c.Login(ctx, user, password)
		}
		return c, err
	}
	if f.admin, err = open(apiUsers+1, "admin", strings.TrimSpace(string(password))); err != nil {
		return err
	}
	for n := range apiUsers {
		name, secret := fmt.Sprint("bench", n), fmt.Sprintf("%x-bench-%d", time.Now().UnixNano(), n)
		if _, err := f.admin.CreateUser(ctx, name, secret, []auth.Grant{{Role: auth.RoleAdmin, Org: "*", Cluster: "*"}}); err != nil {
			return err
		}
		c, err := open(n+1, name, secret)
		if err != nil {
			return err
		}
		f.users = append(f.users, c)
	}
	return nil
}

// user gives the client of the user whose turn it is.
func (f *federated) user(n int) *api.Client { return f.users[n%len(f.users)] }

// benchImage is what the instances would run, of which their clusters need the name alone.
const benchImage = "bench/none:1"

func (f *federated) image(ctx context.Context) error {
	root := filepath.Join(f.dir, "rootfs")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "none"), nil, 0o644); err != nil {
		return err
	}
	return f.pushed(ctx, artifact.BuildOptions{Source: root, Entrypoint: []string{"/none"}}, benchImage, f.api, f.admin)
}

func (f *federated) startSites() (err error) {
	f.sites = f.command(f.program, "bench", "sites", "--data", filepath.Join(f.dir, "sites"), "--root", f.link)
	if f.toSites, err = f.sites.StdinPipe(); err != nil {
		return err
	}
	out, err := f.sites.StdoutPipe()
	if err != nil {
		return err
	}
	f.fromSites = bufio.NewReader(out)
	return f.sites.Start()
}

// grow joins clusters until there are n, and waits until all are connected.
func (f *federated) grow(ctx context.Context, n int) error {
	fresh := n - f.clusters
	for ; f.clusters < n; f.clusters++ {
		name := fmt.Sprintf("site-%04d", f.clusters)
		t, err := f.user(f.clusters).CreateJoinToken(ctx, api.JoinTokenRequest{Role: wire.TierCluster, Name: name})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(f.toSites, siteJoin, name, t.Text); err != nil {
			return err
		}
	}
	for range fresh {
		line, err := f.fromSites.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, siteJoined+" ") {
			return fmt.Errorf("a cluster did not join: %q: %w", line, err)
		}
	}
	return f.connected(ctx)
}

// connected waits until all clusters are.
func (f *federated) connected(ctx context.Context) error {
	return f.await(ctx, fmt.Sprintf("%d clusters are connected", f.clusters), func() (bool, error) {
		list, err := f.admin.Clusters(ctx)
		n := 0
		for _, k := range list {
			if k.Connected && len(k.Report.Classes) > 0 {
				n++
			}
		}
		return n == f.clusters, err
	})
}

// held is how many instances the clusters have.
func (f *federated) held() (int, error) {
	if _, err := fmt.Fprintln(f.toSites, siteCount); err != nil {
		return 0, err
	}
	line, err := f.fromSites.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, siteHeld+" ")))
}

// Each application has this many services, and these that many instances.
const (
	benchServices = 2
	benchReplicas = 5
)

func benchApp(n int) skerry.AppKey {
	return skerry.AppKey{Namespace: spec.DefaultNamespace, Name: fmt.Sprintf("app-%05d", n)}
}

func benchService(n int) skerry.ServiceKey { return skerry.ServiceKey{App: benchApp(n), Service: "s0"} }

// benchManifest is an application. Some text in it makes it another version.
func benchManifest(key skerry.AppKey, services, replicas int, text string) []byte {
	var list []string
	for n := range services {
		list = append(list, fmt.Sprintf(`{"name":"s%d","image":%q,"replicas":%d,"env":{"TEXT":%q},`+
			`"resources":{"cpu":"10m","memory":"16Mi"},"ports":[{"name":"http","port":8080}]}`, n, benchImage, replicas, text))
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Application","metadata":{"name":%q,"namespace":%q},"spec":{"services":[%s]}}`,
		spec.APIVersion, key.Name, key.Namespace, strings.Join(list, ","))
}

// fill applies applications until there are as many instances as asked for, and waits until the clusters have told of all.
func (f *federated) fill(ctx context.Context, instances int) error {
	const each = benchServices * benchReplicas
	var all errgroup.Group
	all.SetLimit(len(f.users))
	for ; f.apps*each < instances; f.apps++ {
		n := f.apps
		all.Go(func() error {
			_, err := f.user(n).Apply(ctx, benchManifest(benchApp(n), benchServices, benchReplicas, ""), api.ApplyOptions{})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return f.settled(ctx)
}

// settled waits until the root knows of every instance that it runs, and nothing else is left at the clusters.
func (f *federated) settled(ctx context.Context) error {
	return f.await(ctx, "all instances are ready", func() (bool, error) {
		list, err := f.admin.Apps(ctx, "")
		if err != nil {
			return false, err
		}
		wanted, ready := 0, 0
		for _, a := range list {
			for _, s := range a.Services {
				wanted, ready = wanted+s.Want, ready+s.Ready
			}
		}
		held, err := f.held()
		return ready == wanted && held == wanted, err
	})
}

// await polls, less often what takes long, for at most ten minutes.
func (f *federated) await(ctx context.Context, what string, ok func() (bool, error)) error {
	return await(ctx, 10*time.Minute, func(took time.Duration) time.Duration { return max(5*time.Millisecond, 5*took) }, what, ok)
}

// close ends the processes and removes what they kept.
func (f *federated) close() error {
	if f.toSites != nil {
		f.toSites.Close()
	}
	stop(f.sites, syscall.SIGTERM)
	stop(f.root, syscall.SIGTERM)
	var err error
	if f.log != nil {
		err = f.log.Close()
	}
	if f.dir != "" {
		err = errors.Join(err, os.RemoveAll(f.dir))
	}
	return err
}
