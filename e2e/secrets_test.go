//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// logged keeps all that is logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// byWorker runs a program in an instance, by its worker, and gives what it says.
func (s *site) byWorker(id skerry.InstanceID, command ...string) (out string, ok bool) {
	srv := httptest.NewServer(http.HandlerFunc(s.Worker.ServeHTTP))
	defer srv.Close()
	ec := execstream.New(switchTo(s.t, srv.URL+"/instances/"+string(id)+"/exec?"+url.Values{"command": command}.Encode(), execstream.ProtoExec))
	for {
		typ, p, err := ec.Read()
		if err != nil {
			return out, false
		}
		switch typ {
		case execstream.Stdout, execstream.Stderr:
			out += string(p)
		case execstream.Exit:
			var r execstream.Result
			return strings.TrimSpace(out), json.Unmarshal(p, &r) == nil && r.Code == 0 && r.Error == ""
		}
	}
}

// off ends the agent and all that runs, as if the machine had been switched off.
func (s *site) off() {
	s.stopAgent()
	s.stopAgent = func() {}
	for _, d := range s.Worker.Drivers {
		list, err := d.List(s.t.Context())
		for _, h := range list {
			err = errors.Join(err, d.Remove(s.t.Context(), h))
		}
		if err != nil {
			s.t.Error(err)
		}
	}
}

// findings lists where a text stands below a directory, as it is or written in hexadecimal digits or base64. What lies in memory,
// and is mounted below, is left out.
func findings(t *testing.T, dir, text string) (out []string) {
	t.Helper()
	var top unix.Stat_t
	if err := unix.Stat(dir, &top); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		switch {
		case err != nil || unix.Lstat(path, &st) != nil:
			return nil // it went away meanwhile
		case d.IsDir() && st.Dev != top.Dev:
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		if fileHolds(path, text) {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fileHolds looks through a file piece by piece, without its holes: the disks of machines are large and mostly empty.
func fileHolds(path, text string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	piece, end := make([]byte, 4<<20), int64(-1)
	kept := 0 // of the piece before: what is looked for may lie across two
	for at := int64(0); ; {
		data, err := f.Seek(at, unix.SEEK_DATA)
		if err != nil {
			return false // nothing more
		}
		if data != end {
			kept = 0
		}
		n, _ := f.ReadAt(piece[kept:], data)
		if n == 0 {
			return false
		}
		if holds(piece[:kept+n], text) {
			return true
		}
		at = data + int64(n)
		end, kept = at, copy(piece, piece[max(0, kept+n-4*len(text)):kept+n])
	}
}

func holds(data []byte, text string) bool {
	for _, form := range []string{text, hex.EncodeToString([]byte(text)), base64.StdEncoding.EncodeToString([]byte(text))[:len(text)/3*4]} {
		if bytes.Contains(data, []byte(form)) {
			return true
		}
	}
	return false
}

// TestSecrets has a container and a process read a secret, rotates it, starts the worker anew without a link, and looks for
// what it holds in everything that any role keeps, logs or answers.
func TestSecrets(t *testing.T) {
	log := &logged{}
	s := (&site{t: t, log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}).open()
	s.image("test/workload:1", workload)
	program := filepath.Join(t.TempDir(), "program")
	testenv.Build(t, program, workload)
	const first, second, third, public = "correct-horse-battery-staple", "wrong-mule-capacitor-paperclip", "lame-pony-transistor-nail", "this-may-be-seen-by-everybody"
	digest := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	shop := func() apps.Apply {
		uses := func(x *spec.ServiceSpec) {
			x.Args, x.Secrets = []string{"sleep"}, []spec.SecretUse{{Name: "db"}}
		}
		return app("shop",
			service("box", "test/workload:1", uses, func(x *spec.ServiceSpec) {
				x.User = "1234:5678"
				x.Env = map[string]string{"PUBLIC": public}
			}),
			service("process", "", uses, func(x *spec.ServiceSpec) {
				x.Runtime, x.Command, x.Secrets[0].Path = spec.RuntimeNative, []string{program}, "/run/skerry-test-secret"
			}))
	}
	t.Cleanup(func() { _ = os.Remove("/run/skerry-test-secret") })
	if _, err := s.Root.Do(t.Context(), shop()); err == nil || !strings.Contains(fmt.Sprint(skerry.AsError(err).Problems), "skerry secret create db") {
		t.Fatalf("without the secret: %v", err)
	}
	put := func(rotate bool, value string) {
		t.Helper()
		v, err := s.Root.Do(t.Context(), apps.PutSecret{Namespace: "default", Name: "db", Rotate: rotate, Actor: "test", Value: spec.SecretValue{"password": []byte(value)}})
		if err != nil || holds([]byte(fmt.Sprintf("%+v", v)), value) {
			t.Fatal(v, err)
		}
	}
	put(false, first)
	s.do(shop())
	s.await("both are ready", s.ready(2))
	read := func(want string) func() bool {
		return func() bool {
			list, err := s.Worker.Instances(context.Background())
			if err != nil || len(list) < 2 {
				return false
			}
			for _, o := range list {
				path, file, owner, want := "/program", "/run/secrets/db/password", "1234", want
				switch service, _, _ := strings.Cut(string(o.ID), "-"); service {
				case "own":
					want = third
					fallthrough
				case "process":
					path, file, owner = program, "/run/skerry-test-secret/password", "0"
				}
				if o.Phase != skerry.PhaseRunning {
					return false
				}
				if out, ok := s.byWorker(o.ID, path, "digest", file); !ok || out != digest(want) {
					return false
				}
				if out, ok := s.byWorker(o.ID, path, "owner", file); !ok || out != owner+" 0400 memory=true" {
					t.Errorf("%s: %q", o.ID, out)
				}
			}
			return true
		}
	}
	s.await("both read the secret", read(first))
	if _, err := s.Root.Do(t.Context(), apps.DeleteSecret{Namespace: "default", Name: "db"}); err == nil || !strings.Contains(err.Error(), "shop/box, shop/process") {
		t.Errorf("a secret in use: %v", err)
	}
	put(true, second)
	s.await("both were replaced and read the new version", func() bool { return s.ready(2)() && read(second)() })
	// Undone, the first version is used again, also by the same manifest when it is applied once more.
	undo := func(to int) {
		t.Helper()
		if _, err := s.Root.Do(t.Context(), apps.UndoSecret{Namespace: "default", Name: "db", To: to, Actor: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	undo(0)
	s.await("both read the first version again", func() bool { return s.ready(2)() && read(first)() })
	s.do(shop())
	if v, err := s.Root.Secrets(t.Context(), "default"); err != nil || v[0].Version != 1 {
		t.Errorf("applied again after an undo: %+v, %v", v, err)
	}
	undo(2)
	s.await("both read the second version again", func() bool { return s.ready(2)() && read(second)() })

	told := bytes.Buffer{}
	tell := func(v any, err error) {
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(&told).Encode(v)
		fmt.Fprintf(&told, "%+v %#v\n", v, v)
	}
	tell(s.Root.App(t.Context(), skerry.AppKey{Namespace: "default", Name: "shop"}, 0))
	list, err := s.Root.Instances(t.Context())
	tell(list, err)
	for _, i := range list {
		tell(s.Root.Explain(t.Context(), i.ID))
	}
	secrets, err := s.Root.Secrets(t.Context(), "default")
	if tell(secrets, err); len(secrets) != 1 || secrets[0].Version != 2 || len(secrets[0].Versions) != 2 {
		t.Errorf("%+v", secrets)
	}
	tell(s.Root.Journal().List(0, nil), nil)
	views, err := s.Worker.Views(t.Context())
	tell(views, err)

	// Without the root the site starts what it holds with the secrets that it has, and has some of its own.
	s.stops["root"]()
	gone, since := list[0].ID, time.Now()
	if _, err := s.Cluster.Do(t.Context(), apps.DeleteInstance{ID: gone, Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := parents.Seed(t.Context(), s.Cluster); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cluster.Do(t.Context(), apps.PutSecret{Namespace: "default", Name: "own", Value: spec.SecretValue{"password": []byte(third)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cluster.Do(t.Context(), app("own", service("own", "", func(x *spec.ServiceSpec) {
		x.Runtime, x.Command, x.Args, x.Secrets = spec.RuntimeNative, []string{program}, []string{"sleep"}, []spec.SecretUse{{Name: "own", Path: "/run/skerry-test-secret"}}
	}))); err != nil {
		t.Fatal(err)
	}
	s.await("all read their secrets without the root", func() bool {
		list, err := s.Worker.Instances(context.Background())
		return err == nil && len(list) == 3 && !slices.ContainsFunc(list, func(o wire.Observation) bool { return o.ID == gone && o.StartedAt.Before(since) }) && read(second)()
	})

	// Nothing but the device: what is in memory is lost, and nobody can be asked.
	s.stops["cluster"]()
	s.off()
	if err := s.Worker.CleanUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Worker.Close(); err != nil {
		t.Fatal(err)
	}
	rooms, err := filepath.Glob(filepath.Join(s.dir, "worker", "instances", "*", "secrets"))
	if err != nil || len(rooms) != 3 {
		t.Fatal(rooms, err)
	}
	for _, room := range rooms {
		if left, err := os.ReadDir(room); err != nil || len(left) > 0 {
			t.Errorf("on the disk below: %v, %v", left, err)
		}
	}
	s.startWorker("")
	s.await("all read their secrets without a link", read(second))

	for _, text := range []string{first, second, third} {
		if found := findings(t, s.dir, text); len(found) > 0 {
			t.Errorf("%q stands in %v", text, found)
		}
		if holds(told.Bytes(), text) || holds(log.text(), text) {
			t.Errorf("%q was told or logged", text)
		}
	}
	if found := findings(t, s.dir, public); len(found) < 3 || !holds(told.Bytes(), public) || !holds(log.text(), "box-") {
		t.Errorf("the search finds nothing: %v", found)
	}
	s.off() // one driver after the other would wait for the tasks of the next
}

// TestFindings finds a text across two pieces of a file, after a hole, and in base64.
func TestFindings(t *testing.T) {
	dir, text := t.TempDir(), "the tide waits for nobody"
	for name, at := range map[string]int64{"across": 4<<20 - 10, "after": 1 << 30, "begin": 0} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "across" {
			_, err = f.Write(bytes.Repeat([]byte("x"), int(at)))
		}
		if err == nil {
			_, err = f.WriteAt([]byte(text), at)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "coded"), []byte(base64.StdEncoding.EncodeToString([]byte(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), []byte("the tide"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := findings(t, dir, text); len(got) != 4 {
		t.Errorf("%v", got)
	}
}
