package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

// liveSite is a lab with a host "site" whose role its operator, the test, is logged in at.
type liveSite struct {
	t *testing.T
	l *Lab
}

// newSite brings up a lab, logs in at its host "site", and, if that is a cluster that has a root, at the root, too. There, or
// else at the site, it pushes the image of the program that instances run, and applies a manifest, if one is given, all of
// which is ready then.
func newSite(t *testing.T, lab, manifest string) *liveSite {
	t.Helper()
	s, kit := bareSite(t, lab, "kit")
	top := "site"
	if root := s.l.Topology.Host(top).Root; root != "" && root != "none" {
		top = root
		s.login(top)
	}
	s.must(top, "", "image", "build", kit, "-t", "demo/kit:1", "--push")
	if manifest != "" {
		s.must(top, manifest, "apply", "-f", "-", "--timeout", "1m")
	}
	return s
}

// bareSite brings up a lab and logs in at its host "site". It gives the program that was built of a directory of examples.
func bareSite(t *testing.T, lab, example string) (s *liveSite, program string) {
	t.Helper()
	o := options(t)
	bin := binaries(t, &o, example)
	s = &liveSite{t, bring(t, lab, o)}
	s.login("site")
	return s, filepath.Join(bin, filepath.Base(example))
}

// killAndStart has the role of a host die and be started again, until it works.
func (s *liveSite) killAndStart(host string) {
	s.t.Helper()
	if err := s.l.Kill(host, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	if err := s.l.Start(s.t.Context(), host); err != nil {
		s.t.Fatal(err)
	}
	if err := s.l.Await(s.t.Context(), host); err != nil {
		s.t.Fatal(err)
	}
}

// login makes a host's own role the one that its commands talk to.
func (s *liveSite) login(host string) {
	s.t.Helper()
	api := clusterAPI
	if s.l.Topology.Host(host).Role == RoleRoot {
		api = rootAPI
	}
	s.must(host, "", "login", "--trust", "-u", "admin", "--password-file", filepath.Join(s.l.hostDir(host), "admin-password"), host+":"+api)
}

// at runs a command of skerry on a host, as its own operator does.
func (s *liveSite) at(host, stdin string, argv ...string) (string, error) {
	out, err := s.tryAt(host, stdin, append([]string{s.l.Binary}, argv...)...)
	return string(out), err
}

// must runs one that must not fail.
func (s *liveSite) must(host, stdin string, argv ...string) []byte {
	s.t.Helper()
	out, err := s.at(host, stdin, argv...)
	if err != nil {
		s.t.Fatal(err)
	}
	return []byte(out)
}

// tryAt runs any program on a host, for ten minutes at most: what hangs is to be named.
func (s *liveSite) tryAt(host, stdin string, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	defer cancel()
	var out, problems bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	status, err := s.l.Exec(ctx, host, cmd)
	if err == nil && status != 0 {
		err = errors.Join(ctx.Err(), fmt.Errorf("%v exits with %d: %s", argv, status, problems.Bytes()))
	}
	return out.Bytes(), err
}

// try runs a program at the site, skerry a command of skerry.
func (s *liveSite) try(stdin string, argv ...string) ([]byte, error) {
	return s.tryAt("site", stdin, argv...)
}

func (s *liveSite) skerry(stdin string, argv ...string) []byte {
	s.t.Helper()
	return s.must("site", stdin, argv...)
}

func listOf[T any](s *liveSite, kind string) []T {
	s.t.Helper()
	var out struct {
		Items []T `json:"items"`
	}
	data := s.skerry("", "get", kind, "-o", "json")
	if err := json.Unmarshal(data, &out); err != nil {
		s.t.Fatalf("%s: %v\n%s", kind, err, data)
	}
	return out.Items
}

func (s *liveSite) await(what string, ok func() bool) {
	s.t.Helper()
	begin := time.Now()
	defer func() { fmt.Fprintf(s.t.Output(), "%s: after %.1f s\n", what, time.Since(begin).Seconds()) }()
	for end := time.Now().Add(90 * time.Second); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			out, _ := s.try("", "sh", "-c", "skerry get workers -o wide; skerry get instances -o wide; skerry get events; skerry explain shop/front; skerry explain shop/edge")
			s.t.Fatalf("waited in vain: %s\n%s", what, out)
		}
	}
}

// binaries has hosts of a lab run the program, and builds programs of examples for instances, by their directories.
func binaries(t *testing.T, o *Options, examples ...string) (bin string) {
	t.Helper()
	bin, err := os.MkdirTemp("/tmp", "labbin")
	if err == nil {
		err = testenv.Note(bin)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(bin) })
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	o.Binary = testenv.Program(t)
	for _, e := range examples {
		testenv.Build(t, filepath.Join(bin, filepath.Base(e)), "skerry.dev/skerry/examples/"+e)
	}
	return bin
}
