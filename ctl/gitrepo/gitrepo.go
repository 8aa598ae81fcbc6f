// Package gitrepo reads a branch of a Git repository, and leaves notes on its commits. The program git does the work, on a bare
// copy without a work tree: nothing of what a repository holds is ever checked out, run or followed.
package gitrepo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/printed"
)

// Bounds of what is read of one commit.
const (
	MaxFiles = 2000
	MaxBytes = 64 << 20 // of all files together
)

// patience is how long git may take for what needs the network.
const patience = 5 * time.Minute

// Options say which branch of which repository is read, and how it is reached.
type Options struct {
	URL    string // https, ssh, file, HOST:PATH or the path of a directory; http and git with Signers, or on this machine
	Branch string
	Path   string // a directory of the repository; "": all of it
	Dir    string // where the copy is kept; it is made

	Key        string // of SSH: a file with the private key; "": what ssh takes
	KnownHosts string // of SSH: a file with the keys of hosts; "": what ssh takes
	TokenFile  string // of HTTPS: a file with USER:PASSWORD, or with a token alone
	Signers    string // a file of allowed signers (ssh-keygen(1), ALLOWED SIGNERS): a commit that none of them signed is refused
}

// Commit is a commit of the branch.
type Commit struct {
	ID      string // 40 or 64 hexadecimal digits
	Author  string
	Subject string
}

// Short is the ID as people write it.
func (c Commit) Short() string { return c.ID[:min(len(c.ID), 10)] }

// File is a manifest in a commit.
type File struct {
	Name string // from the root of the repository
	Data []byte
}

// Repository is the local copy of a branch. It is used by one goroutine at a time.
type Repository struct {
	opt  Options
	env  []string
	most int64 // that the copy may take
}

// head is the reference of the copy to the branch as it was fetched last. What is fetched from elsewhere into the same copy, by another
// process, has another.
func (o *Options) head() string {
	sum := sha256.Sum256([]byte(o.URL + "\n" + o.Branch))
	return "refs/skerry/heads/" + hex.EncodeToString(sum[:8])
}

// branchName is what may be a branch here: no option, no pattern, no other reference.
var branchName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}$`)
})

// Open makes the copy if there is none. It does not use the network.
func Open(ctx context.Context, opt Options) (*Repository, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, skerry.Errorf(skerry.CodeUnsupported, "the program git is not installed").WithHint("apt install git")
	}
	if !branchName().MatchString(opt.Branch) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%q is not the name of a branch", opt.Branch)
	}
	if opt.Path = path.Clean("/" + opt.Path)[1:]; strings.ContainsAny(opt.Path, ":\x00\n") {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%q is not a directory of a repository", opt.Path)
	}
	if fi, err := os.Stat(opt.URL); err == nil && fi.IsDir() {
		if opt.URL, err = filepath.Abs(opt.URL); err != nil {
			return nil, err
		}
	}
	if err := opt.checkURL(); err != nil {
		return nil, err
	}
	for _, file := range []*string{&opt.Key, &opt.KnownHosts, &opt.TokenFile, &opt.Signers} {
		if *file == "" {
			continue
		}
		abs, err := filepath.Abs(*file)
		if err == nil {
			_, err = os.Stat(abs)
		}
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%w", err)
		}
		*file = abs
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, err
	}
	r := &Repository{opt: opt, most: MaxCopy}
	if err := r.environment(); err != nil {
		return nil, err
	}
	_, err := r.git(ctx, nil, "init", "--quiet", "--bare", ".")
	return r, err
}

// checkURL refuses ways on which others may change what is read.
func (o *Options) checkURL() error {
	if strings.HasPrefix(o.URL, "-") || strings.ContainsAny(o.URL, "\n\x00") || o.URL == "" || strings.Contains(o.URL, "::") {
		return skerry.Errorf(skerry.CodeInvalid, "%q is not the address of a repository", o.URL)
	}
	scheme, _, ok := strings.Cut(o.URL, "://")
	if !ok { // HOST:PATH, or a directory
		return nil
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "%q is not the address of a repository", o.URL)
	}
	if _, given := u.User.Password(); given {
		return skerry.Errorf(skerry.CodeInvalid, "the address of the repository contains a password, and others can see the list of processes").
			WithHint("write it into a file, and name that with --token-file")
	}
	switch scheme {
	case "https", "ssh", "file":
		return nil
	case "http", "git":
		ip := net.ParseIP(u.Hostname())
		if o.Signers != "" && o.TokenFile == "" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			return nil
		}
		return skerry.Errorf(skerry.CodeInvalid, "what comes by %s can be read and changed on the way", scheme).
			WithHint("use https or ssh, or name who signs the commits with --signers; a token is sent by https only")
	}
	return skerry.Errorf(skerry.CodeInvalid, "%s is not a way to a repository", scheme).WithHint("it is https, ssh or file")
}

// environment of git: nothing of the machine's or user's configuration, no questions, no other ways than those of checkURL.
func (r *Repository) environment() error {
	for _, name := range []string{"PATH", "HOME", "SSH_AUTH_SOCK", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE",
		"TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			r.env = append(r.env, name+"="+value)
		}
	}
	r.env = append(r.env, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "GIT_DIR=.",
		"GIT_ALLOW_PROTOCOL=https:ssh:file:http:git", "GIT_NO_LAZY_FETCH=1", "GIT_AUTHOR_NAME=Skerry", "GIT_AUTHOR_EMAIL=skerry@localhost",
		"GIT_COMMITTER_NAME=Skerry", "GIT_COMMITTER_EMAIL=skerry@localhost")
	ssh := "ssh -o BatchMode=yes -o ConnectTimeout=30"
	if r.opt.Key != "" {
		ssh += " -o IdentitiesOnly=yes -i " + quoted(r.opt.Key)
	}
	if r.opt.KnownHosts != "" {
		ssh += " -o StrictHostKeyChecking=yes -o UserKnownHostsFile=" + quoted(r.opt.KnownHosts)
	}
	r.env = append(r.env, "GIT_SSH_COMMAND="+ssh)
	// Configuration by the environment is not in the list of processes.
	settings := [][2]string{{"http.followRedirects", "false"}, {"http.lowSpeedLimit", "1"}, {"http.lowSpeedTime", "60"},
		{"core.hooksPath", os.DevNull}, {"gc.auto", "500"}, {"fetch.fsckObjects", "true"}, {"transfer.fsckObjects", "true"}}
	if r.opt.Signers != "" {
		settings = append(settings, [2]string{"gpg.format", "ssh"}, [2]string{"gpg.ssh.allowedSignersFile", r.opt.Signers},
			[2]string{"gpg.program", "false"}, [2]string{"gpg.x509.program", "false"}, [2]string{"gpg.minTrustLevel", "fully"})
	}
	if r.opt.TokenFile != "" {
		data, err := os.ReadFile(r.opt.TokenFile)
		if err != nil {
			return err
		}
		token := strings.TrimSpace(string(data))
		if token == "" || strings.ContainsAny(token, "\r\n") {
			return skerry.Errorf(skerry.CodeInvalid, "%s holds no token in one line", r.opt.TokenFile)
		}
		if !strings.Contains(token, ":") {
			token = "git:" + token
		}
		settings = append(settings, [2]string{"http." + r.opt.URL + ".extraHeader",
			"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(token))})
	}
	for i, s := range settings {
		r.env = append(r.env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s[1]))
	}
	r.env = append(r.env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(settings)))
	return nil
}

// quoted writes a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// git runs git in the copy, and gives what it printed.
func (r *Repository) git(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.opt.Dir, r.env, 5*time.Second
	endTogether(cmd)
	// A few trees that hold each other often enough are listed for days.
	out, errs := printed.Head{Max: MaxBytes + 1<<20, Stop: true}, printed.Head{Max: 64 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	err := cmd.Run()
	switch {
	case out.Over():
		return nil, skerry.Errorf(skerry.CodeTooLarge, "git %s gave more than %s", args[0], skerry.Bytes(out.Max))
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, skerry.Errorf(skerry.CodeUnavailable, "git %s took longer than %s", args[0], patience)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		text := lastLine(errs.Bytes())
		if text == "" {
			text = err.Error()
		}
		return nil, skerry.Errorf(skerry.CodeUnavailable, "git %s: %s", args[0], text)
	case bytes.Contains(errs.Bytes(), []byte("shallow roots are not allowed")): // git calls it a success, and leaves the branch as it was
		return nil, skerry.Errorf(skerry.CodeUnsupported, "the repository is a shallow clone").
			WithHint("`git fetch --unshallow` there gets the rest; actions/checkout does so with fetch-depth: 0")
	}
	return out.Bytes(), nil
}

// lastLine gives the last line of what git complained of that says something, without its prefix. A server may have written it: it is
// made harmless for terminals and logs.
func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		for _, prefix := range []string{"fatal: ", "error: "} {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return printable(rest)
			}
		}
	}
	return printable(lines[len(lines)-1])
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// Fetch brings the branch up to date, and gives its last commit.
func (r *Repository) Fetch(ctx context.Context) (Commit, error) {
	if err := r.fetch(ctx, "+refs/heads/"+r.opt.Branch+":"+r.opt.head()); err != nil {
		if problem := skerry.AsError(err); strings.Contains(problem.Message, "dubious ownership") {
			return Commit{}, problem.WithHint("run this as the owner of the directory, or reach it by ssh")
		}
		return Commit{}, err
	}
	return r.Commit(ctx, r.opt.head())
}

// Commit gives a commit that the copy has.
func (r *Repository) Commit(ctx context.Context, name string) (Commit, error) {
	out, err := r.git(ctx, nil, "log", "-1", "--no-show-signature", "--format=%H%x00%an%x00%s", name, "--")
	if err != nil {
		return Commit{}, err
	}
	parts := strings.SplitN(strings.TrimSuffix(string(out), "\n"), "\x00", 3)
	if len(parts) != 3 || !commitID().MatchString(parts[0]) {
		return Commit{}, skerry.Errorf(skerry.CodeUnavailable, "git log gave %q for %s", out, name)
	}
	return Commit{ID: parts[0], Author: strings.ToValidUTF8(parts[1], "?"), Subject: strings.ToValidUTF8(parts[2], "?")}, nil
}

// commitID is what names of objects look like, by SHA-1 and SHA-256.
var commitID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
})

// Verify refuses a commit that none of the allowed signers signed. Without Signers everything is accepted.
func (r *Repository) Verify(ctx context.Context, commit Commit) error {
	if r.opt.Signers == "" {
		return nil
	}
	if _, err := r.git(ctx, nil, "verify-commit", commit.ID); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return skerry.Errorf(skerry.CodeForbidden, "commit %s has no signature of an allowed signer: %s", commit.Short(),
			skerry.AsError(err).Message).WithHint("sign it with an SSH key that --signers lists: git commit -S with gpg.format=ssh")
	}
	return nil
}

// Descends reports whether a commit has another among its ancestors, or is it.
func (r *Repository) Descends(ctx context.Context, commit Commit, from string) bool {
	if !commitID().MatchString(from) {
		return false
	}
	_, err := r.git(ctx, nil, "merge-base", "--is-ancestor", from, commit.ID)
	return err == nil
}

// accepted is the reference to the commit that was taken last. It is kept from one start to the next.
const accepted = "refs/skerry/accepted"

// originFile is the file of the copy that says from where the commit is that was taken last.
const originFile = "skerry-origin"

// Accept remembers a commit as the one taken last, and where it is from. It refuses one from elsewhere than the last, unless moved says
// that this is meant: two sources that share a copy would take what the other one has for what has left their repository.
func (r *Repository) Accept(ctx context.Context, commit Commit, moved bool) error {
	file, from := filepath.Join(r.opt.Dir, originFile), r.opt.from()
	last, err := os.ReadFile(file)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case err == nil && string(last) != from && !moved:
		return skerry.Errorf(skerry.CodeConflict, "what was taken last is from %s, and this is %s", last, from).
			WithHint("give each source a name of its own with --name; if this one has moved, give --allow-rewind once")
	case string(last) != from:
		if err := os.WriteFile(file+".new", []byte(from), 0o600); err != nil {
			return err
		}
		if err := os.Rename(file+".new", file); err != nil {
			return err
		}
	}
	_, err = r.git(ctx, nil, "update-ref", accepted, commit.ID)
	return err
}

// from says where commits are from.
func (o *Options) from() string {
	return fmt.Sprintf("%s branch %s directory /%s", o.URL, o.Branch, o.Path)
}

// Accepted gives the ID of the commit that was taken last from here, or "".
func (r *Repository) Accepted(ctx context.Context) string {
	if last, err := os.ReadFile(filepath.Join(r.opt.Dir, originFile)); err != nil || string(last) != r.opt.from() {
		return ""
	}
	out, err := r.git(ctx, nil, "rev-parse", "--verify", "--quiet", accepted)
	if id := strings.TrimSpace(string(out)); err == nil && commitID().MatchString(id) {
		return id
	}
	return ""
}

// Files gives the manifests below the directory, in the order of their names: *.yaml, *.yml and *.json, of all folders. Names that
// begin with a dot are left out. Links and submodules are not followed: skipped names them.
func (r *Repository) Files(ctx context.Context, commit Commit) (files []File, skipped []string, err error) {
	tree := commit.ID + ":" + r.opt.Path
	out, err := r.git(ctx, nil, "ls-tree", "-r", "-z", "-l", "--full-tree", tree)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if skerry.AsError(err).Code == skerry.CodeTooLarge {
			return nil, nil, err
		}
		return nil, nil, skerry.Errorf(skerry.CodeNotFound, "commit %s has no directory %q", commit.Short(), r.opt.Path)
	}
	entries, skipped, err := parseTree(out)
	if err != nil {
		return nil, nil, err
	}
	var ask bytes.Buffer
	for _, e := range entries {
		fmt.Fprintln(&ask, e.object)
	}
	if out, err = r.git(ctx, ask.Bytes(), "cat-file", "--batch"); err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		line, rest, ok := bytes.Cut(out, []byte("\n"))
		if !ok || string(line) != fmt.Sprintf("%s blob %d", e.object, e.size) || len(rest) < e.size+1 {
			return nil, nil, skerry.Errorf(skerry.CodeUnavailable, "git cat-file gave %q for %s", line, e.name)
		}
		files = append(files, File{path.Join(r.opt.Path, e.name), rest[:e.size:e.size]})
		out = rest[e.size+1:]
	}
	return files, skipped, nil
}

// entry is a file in a tree.
type entry struct {
	name, object string
	size         int
}

// parseTree reads what git ls-tree -r -z -l prints.
func parseTree(out []byte) (entries []entry, skipped []string, err error) {
	total := 0
	for record := range bytes.SplitSeq(out, []byte{0}) {
		if len(record) == 0 {
			continue
		}
		about, name, ok := strings.Cut(string(record), "\t")
		fields := strings.Fields(about)
		if !ok || len(fields) != 4 {
			return nil, nil, skerry.Errorf(skerry.CodeUnavailable, "git ls-tree gave %q", record)
		}
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) || hidden(name) {
			continue
		}
		if name = strings.ToValidUTF8(name, "?"); fields[0] != "100644" && fields[0] != "100755" {
			skipped = append(skipped, name)
			continue
		}
		size, err := strconv.Atoi(fields[3])
		if err != nil || size < 0 || !commitID().MatchString(fields[2]) {
			return nil, nil, skerry.Errorf(skerry.CodeUnavailable, "git ls-tree gave %q", record)
		}
		entries = append(entries, entry{name, fields[2], size})
		if total += size; total > MaxBytes || len(entries) > MaxFiles {
			return nil, nil, skerry.Errorf(skerry.CodeTooLarge, "the directory has more than %d manifests, or more than %s in them",
				MaxFiles, skerry.Bytes(MaxBytes))
		}
	}
	return entries, skipped, nil
}

// hidden reports whether a name, or a folder in it, begins with a dot.
func hidden(name string) bool { return name[0] == '.' || strings.Contains(name, "/.") }

// WriteNote leaves a note on a commit, in place of the one that was there, and pushes it to refs/notes/skerry/NAME.
func (r *Repository) WriteNote(ctx context.Context, commit Commit, name, text string) error {
	ref := "refs/notes/skerry/" + name
	// What others wrote since is fetched first. There may be none yet, which is no error of its own: the push says what is wrong.
	fetched := r.fetch(ctx, "+"+ref+":"+ref)
	if out, err := r.git(ctx, nil, "notes", "--ref", ref, "show", commit.ID); err == nil && fetched == nil && string(out) == text {
		return nil
	}
	if _, err := r.git(ctx, []byte(text), "notes", "--ref", ref, "add", "--force", "--file", "-", commit.ID); err != nil {
		return err
	}
	_, err := r.git(ctx, nil, "push", "--quiet", "--no-verify", "--", r.opt.URL, ref+":"+ref)
	if err != nil && fetched != nil {
		return fmt.Errorf("%w (before that: %w)", err, fetched)
	}
	return err
}
