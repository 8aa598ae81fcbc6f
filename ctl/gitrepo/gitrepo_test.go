package gitrepo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
)

// origin is a repository that tests commit into, with a work tree.
type origin struct {
	t   *testing.T
	dir string
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	o := &origin{t, t.TempDir()}
	o.git("init", "--quiet", "--initial-branch=main", ".")
	return o
}

func (o *origin) git(args ...string) string {
	o.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = o.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada",
		"GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (o *origin) write(name, text string) {
	o.t.Helper()
	file := filepath.Join(o.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		o.t.Fatal(err)
	}
}

// commit commits all that is in the work tree.
func (o *origin) commit(subject string, flags ...string) string {
	o.t.Helper()
	o.git("add", "--all")
	o.git(append([]string{"commit", "--quiet", "--allow-empty", "-m", subject}, flags...)...)
	return o.git("rev-parse", "HEAD")
}

func (o *origin) open(change func(*Options)) *Repository {
	o.t.Helper()
	opt := Options{URL: o.dir, Branch: "main", Dir: filepath.Join(o.t.TempDir(), "copy")}
	if change != nil {
		change(&opt)
	}
	r, err := Open(o.t.Context(), opt)
	if err != nil {
		o.t.Fatal(err)
	}
	return r
}

func (r *Repository) mustFetch(t *testing.T) Commit {
	t.Helper()
	c, err := r.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func names(files []File) (out []string) {
	for _, f := range files {
		out = append(out, f.Name)
	}
	return out
}

func TestFiles(t *testing.T) {
	o := newOrigin(t)
	o.write("deploy/b.yaml", "b: 1\n")
	o.write("deploy/sub/a.yml", "a: 1") // without an end of line
	o.write("deploy/empty.json", "")
	o.write("deploy/readme.md", "no")
	o.write("deploy/.hidden.yaml", "no")
	o.write("deploy/.github/x.yaml", "no")
	o.write("deploy/with space\tand tab.yaml", "s: 1\n")
	o.write("other/c.yaml", "c: 1\n")
	if err := os.Symlink("/etc/passwd", filepath.Join(o.dir, "deploy", "link.yaml")); err != nil {
		t.Fatal(err)
	}
	id := o.commit("all of it")
	r := o.open(func(opt *Options) { opt.Path = "deploy/" })
	c := r.mustFetch(t)
	if c.ID != id || c.Author != "Ada" || c.Subject != "all of it" {
		t.Errorf("the commit is read as %+v", c)
	}
	files, skipped, err := r.Files(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := `["deploy/b.yaml" "deploy/empty.json" "deploy/sub/a.yml" "deploy/with space\tand tab.yaml"] ["link.yaml"]`
	if got := fmt.Sprintf("%q %q", names(files), skipped); got != want {
		t.Errorf("read and skipped: %s", got)
	}
	if string(files[0].Data) != "b: 1\n" || len(files[1].Data) != 0 || string(files[2].Data) != "a: 1" {
		t.Errorf("the files hold %q", files)
	}
	everything, _, err := o.open(nil).withFetched(t).Files(t.Context(), c)
	if err != nil || len(everything) != 5 {
		t.Errorf("the whole repository is read as %q: %v", names(everything), err)
	}
	nowhere := o.open(func(opt *Options) { opt.Path = "../nowhere" }).withFetched(t)
	if _, _, err := nowhere.Files(t.Context(), c); skerry.AsError(err).Code != skerry.CodeNotFound {
		t.Errorf("unexpected: %v", err)
	}
	for _, dir := range []string{o.dir, r.opt.Dir} {
		if entries, err := filepath.Glob(filepath.Join(dir, "*.yaml")); err != nil || len(entries) != 0 {
			t.Errorf("%s has a work tree: %q %v", dir, entries, err)
		}
	}
}

func (r *Repository) withFetched(t *testing.T) *Repository {
	t.Helper()
	r.mustFetch(t)
	return r
}

// What is read of a commit is bounded, and what a server sends that is no repository is an error of one line.
func TestBounds(t *testing.T) {
	o := newOrigin(t)
	for i := range MaxFiles + 1 {
		o.write(fmt.Sprintf("%d.yaml", i), "x")
	}
	o.commit("many")
	r := o.open(nil)
	if _, _, err := r.Files(t.Context(), r.mustFetch(t)); skerry.AsError(err).Code != skerry.CodeTooLarge {
		t.Errorf("unexpected: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Fetch(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("unexpected: %v", err)
	}
	empty := newOrigin(t)
	if _, err := empty.open(nil).Fetch(t.Context()); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("unexpected: %v", err)
	}
}

// A listener that says nothing that git understands, and one that never answers, end the fetch and nothing else.
func TestHostileServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("0004\xff\xfe\x00 no git\n"))
			conn.Close()
		}
	}()
	o := newOrigin(t)
	r := o.open(func(opt *Options) { opt.URL = "git://" + l.Addr().String() + "/x.git" })
	if _, err := r.Fetch(t.Context()); skerry.AsError(err).Code != skerry.CodeUnavailable {
		t.Errorf("unexpected: %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r = o.open(func(opt *Options) { opt.URL = "git://" + silent.Addr().String() + "/x.git" })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := silent.Accept(); err == nil {
			conn.Read(make([]byte, 1)) // the request
			cancel()
		}
	}()
	if _, err := r.Fetch(ctx); err == nil {
		t.Error("a server that is silent was fetched from")
	}
}

func TestAddresses(t *testing.T) {
	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for address, ok := range map[string]bool{
		"https://git.example.org/a.git": true, "ssh://git@git.example.org/a.git": true, "git@git.example.org:a.git": true,
		"file:///srv/a.git": true, "http://127.0.0.1:1/a.git": true, "http://git.example.org/a.git": false,
		"git://git.example.org/a.git": false, "ext::sh -c true": false, "-upload-pack=x": false, "": false,
		"https://a:b@git.example.org/a.git": false, "ftp://git.example.org/a": false, "https://git.example.org/a\nb": false,
	} {
		_, err := Open(t.Context(), Options{URL: address, Branch: "main", Dir: t.TempDir()})
		if (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
	signed := Options{URL: "http://git.example.org/a.git", Branch: "main", Dir: t.TempDir(), Signers: signers}
	if _, err := Open(t.Context(), signed); err != nil {
		t.Errorf("http with signed commits: %v", err)
	}
	for _, branch := range []string{"", "-x", "a b", "a:b", "+main"} {
		if _, err := Open(t.Context(), Options{URL: "/", Branch: branch, Dir: t.TempDir()}); err == nil {
			t.Errorf("branch %q", branch)
		}
	}
}

// Commits signed by an allowed signer are accepted; without a signature, or with that of somebody else, they are not.
func TestSigners(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip(&testenv.Unsupported{What: "signed commits", Why: "ssh-keygen is not installed; scripts/deps installs it"})
	}
	keys := t.TempDir()
	for _, who := range []string{"ada", "eve"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(keys, who)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(keys, "ada.pub"))
	if err != nil {
		t.Fatal(err)
	}
	signers := filepath.Join(keys, "signers")
	if err := os.WriteFile(signers, append([]byte("ada@example.org "), public...), 0o600); err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t)
	o.git("config", "gpg.format", "ssh")
	r := o.open(func(opt *Options) { opt.Signers = signers })
	for _, c := range []struct {
		signer string
		ok     bool
	}{{"ada", true}, {"eve", false}, {"", false}, {"ada", true}} {
		var flags []string
		if c.signer != "" {
			o.git("config", "user.signingKey", filepath.Join(keys, c.signer))
			flags = []string{"-S"}
		}
		o.commit("by "+c.signer, flags...)
		if err := r.Verify(t.Context(), r.mustFetch(t)); (err == nil) != c.ok {
			t.Errorf("signed by %q: %v", c.signer, err)
		} else if err != nil && skerry.AsError(err).Code != skerry.CodeForbidden {
			t.Errorf("unexpected: %v", err)
		}
	}
}

func TestRewind(t *testing.T) {
	o := newOrigin(t)
	first := o.commit("first")
	r := o.open(nil)
	one := r.mustFetch(t)
	if r.Accepted(t.Context()) != "" {
		t.Error("something was taken before anything was fetched")
	}
	o.commit("second")
	two := r.mustFetch(t)
	if err := r.Accept(t.Context(), two, false); err != nil {
		t.Fatal(err)
	}
	o.git("reset", "--quiet", "--hard", first)
	again := r.mustFetch(t)
	if again.ID != one.ID || r.Descends(t.Context(), again, two.ID) {
		t.Errorf("the branch was set back to %s, and is taken to contain %s", one.Short(), two.Short())
	}
	if !r.Descends(t.Context(), two, one.ID) || !r.Descends(t.Context(), two, two.ID) {
		t.Error("a commit does not contain the one before, or itself")
	}
	reopened, err := Open(t.Context(), r.opt)
	if err != nil || reopened.Accepted(t.Context()) != two.ID {
		t.Error("what was taken last is forgotten with the process", err)
	}
}

func TestNotes(t *testing.T) {
	o := newOrigin(t)
	id := o.commit("first")
	a, b := o.open(nil), o.open(nil)
	c := a.mustFetch(t)
	b.mustFetch(t)
	show := func() string { return o.git("notes", "--ref", "skerry/prod", "show", id) }
	for _, write := range []struct {
		by   *Repository
		text string
	}{{a, "one\n"}, {b, "two\n"}, {a, "three\n"}} { // each after what the other wrote
		if err := write.by.WriteNote(t.Context(), c, "prod", write.text); err != nil {
			t.Fatal(err)
		}
		if got := show(); got != strings.TrimSpace(write.text) {
			t.Errorf("%q in place of %q", got, write.text)
		}
	}
	before := o.git("rev-parse", "refs/notes/skerry/prod")
	if err := b.WriteNote(t.Context(), c, "prod", "three\n"); err != nil || o.git("rev-parse", "refs/notes/skerry/prod") != before {
		t.Error("the same note was written again", err)
	}
	if err := os.Chmod(filepath.Join(o.dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := o.git("rev-parse", "HEAD"); got != id {
		t.Error("a note moved the branch")
	}
}

// A token goes to its server alone, and is neither in the list of processes nor in the copy.
func TestToken(t *testing.T) {
	o := newOrigin(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := o.open(func(opt *Options) { opt.URL, opt.TokenFile = "https://git.example.org/a.git", file })
	out, err := r.git(t.Context(), nil, "config", "--get-urlmatch", "http.extraHeader", "https://git.example.org/a.git")
	if err != nil || !strings.HasPrefix(string(out), "Authorization: Basic ") {
		t.Errorf("the header is %q: %v", out, err)
	}
	if out, err := r.git(t.Context(), nil, "config", "--get-urlmatch", "http.extraHeader", "https://elsewhere.example.org/a.git"); err == nil {
		t.Errorf("another server would be sent %q", out)
	}
	filepath.WalkDir(r.opt.Dir, func(path string, entry os.DirEntry, err error) error {
		if data, e := os.ReadFile(path); e == nil && strings.Contains(string(data), "czNjcmV0") {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err := os.WriteFile(file, []byte("two\nlines\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), r.opt); skerry.AsError(err).Code != skerry.CodeInvalid {
		t.Errorf("unexpected: %v", err)
	}
}

// Git's own server by HTTP: the token opens it, a redirect to another server is not followed, and notes are pushed.
func TestHTTP(t *testing.T) {
	where, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t)
	o.git("config", "http.receivepack", "true")
	o.write("a.yaml", "a: 1")
	id := o.commit("first")
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(where)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + o.dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=deploy"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "deploy" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	defer server.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler(server.URL+"/.git/info/refs?service=git-upload-pack", http.StatusFound))
	defer elsewhere.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("deploy:s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := o.open(func(opt *Options) { opt.URL, opt.TokenFile = server.URL+"/.git", token })
	c := r.mustFetch(t)
	if files, _, err := r.Files(t.Context(), c); err != nil || c.ID != id || len(files) != 1 {
		t.Errorf("%+v %q %v", c, names(files), err)
	}
	if err := r.WriteNote(t.Context(), c, "prod", "by HTTP\n"); err != nil || o.git("notes", "--ref", "skerry/prod", "show", id) != "by HTTP" {
		t.Errorf("unexpected: %v", err)
	}
	for what, address := range map[string]string{"without a token": server.URL + "/.git", "by a redirect": elsewhere.URL + "/.git"} {
		r := o.open(func(opt *Options) { opt.URL = address })
		if _, err := r.Fetch(t.Context()); skerry.AsError(err).Code != skerry.CodeUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzParseTree(f *testing.F) {
	id := strings.Repeat("a", 40)
	f.Add([]byte("100644 blob " + id + "      12\tdeploy/a.yaml\x00120000 blob " + id + "       3\tl.yml\x00160000 commit " + id +
		"       -\tsub.json\x00"))
	f.Add([]byte("100644 blob " + id + " 99999999999999999999\ta.yaml\x00"))
	f.Add([]byte("\t\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _, err := parseTree(data)
		total := 0
		for _, e := range entries {
			if total += e.size; e.size < 0 || !commitID().MatchString(e.object) || hidden(e.name) {
				t.Errorf("an entry is read as %+v", e)
			}
		}
		if err == nil && (total > MaxBytes || len(entries) > MaxFiles) {
			t.Errorf("%d files, %d bytes", len(entries), total)
		}
	})
}
