package ctl

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/ctl/gitrepo"
)

// sourceLabel names, on an application, the source that keeps it.
const sourceLabel = "skerry.dev/source"

// shortestEvery bounds how often a server of repositories is asked.
const shortestEvery = 5 * time.Second

// syncFlags say how applications are kept as a repository has them.
type syncFlags struct {
	repository             gitrepo.Options
	name                   string
	every                  time.Duration
	once, plan, prune      bool
	writeBack, allowRewind bool
	patience               time.Duration // with once: for everything to be ready
	noWait                 bool
}

func (a *app) syncCommand() *cobra.Command {
	flags := syncFlags{every: time.Minute, patience: 2 * time.Minute}
	cmd := &cobra.Command{Use: "sync REPOSITORY", Short: "Keep applications as a Git repository has them", Args: cobra.ExactArgs(1),
		Long: `Follow a branch of a Git repository, and keep applications as its manifests say: *.yaml, *.yml and *.json in all folders below --path.
It runs until it is stopped, wherever the server and the repository can be reached, with the rights of whoever is logged in: give
it an access token of its own (skerry access-token create). REPOSITORY is an address of https, ssh or a directory, or HOST:PATH.

Every --every it looks for a new commit. The server is first asked about each of its manifests. If it refuses one, nothing of the
commit is applied, and the applications stay as the last good commit has them. Then each manifest that makes a difference is
applied. What somebody changed by hand meanwhile is drift: it is reported, and put back. A version that was rolled back is not tried
again until its manifest changes. Files of other orchestrators are refused: commit what "skerry convert" makes of them.

An application gets the label ` + sourceLabel + `=NAME, and no other source may change it. When it leaves the repository, it goes on
running, and is reported, unless --prune is given: then it is deleted. Its volumes stay, unless they are declared with reclaim: delete.

With --plan nothing is changed: the differences are shown. With --write-back the state of each application is pushed as a note on the
commit (git -c core.notesRef=refs/notes/skerry/NAME notes show, after git fetch origin 'refs/notes/*:refs/notes/*').

With --signers only commits are taken that are signed by an SSH key in that file. A branch that no longer contains the last commit
taken, because it was rewritten or set back, is refused unless --allow-rewind is given.

Exit status with --once: that of "skerry apply"; with --once --plan 0 if there is no difference, 1 if there is one, 2 for an error.`,
		Example: "  skerry sync https://git.example.org/shop.git --path deploy --prune\n" +
			"  skerry sync git@git.example.org:fleet.git --key /etc/skerry/deploy-key --signers /etc/skerry/signers --write-back\n" +
			"  skerry sync . --once --plan",
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.repository.URL = args[0]
			return a.run(func(cmd *cobra.Command, client *api.Client, _ []string) error { return a.sync(cmd, client, flags) })(cmd, args)
		}}
	fs := cmd.Flags()
	fs.StringVar(&flags.name, "name", "", "name of the source (default: that of the repository)")
	fs.StringVar(&flags.repository.Branch, "branch", "main", "branch that is followed")
	fs.StringVar(&flags.repository.Path, "path", "", "directory of the repository with the manifests (default: all of it)")
	fs.Var(spanValue{&flags.every}, "every", "how often to look for a new commit, and for drift")
	fs.BoolVar(&flags.once, "once", false, "look once, wait until everything is ready, and end")
	fs.BoolVar(&flags.noWait, "no-wait", false, "with --once, end as soon as the manifests are accepted")
	fs.Var(spanValue{&flags.patience}, "timeout", "with --once, how long to wait")
	fs.BoolVar(&flags.plan, "plan", false, "show the differences, and change nothing")
	fs.BoolVar(&flags.prune, "prune", false, "delete applications of this source that have left the repository")
	fs.BoolVar(&flags.writeBack, "write-back", false, "push the state of the applications as a note on the commit")
	fs.BoolVar(&flags.allowRewind, "allow-rewind", false,
		"follow a branch that no longer contains the last commit taken, or that is of another repository or --path than it")
	fs.StringVar(&flags.repository.Key, "key", "", "file with the private SSH key (default: what ssh uses)")
	fs.StringVar(&flags.repository.KnownHosts, "known-hosts", "", "file with the SSH keys of hosts (default: what ssh uses)")
	fs.StringVar(&flags.repository.TokenFile, "token-file", "", "file with USER:PASSWORD, or a token, for https")
	fs.StringVar(&flags.repository.Signers, "signers", "", "file of allowed signers (ssh-keygen(1)), of whom one must have signed a commit")
	fs.StringVar(&flags.repository.Dir, "dir", "", "directory for the copy of the repository (default: below that of the user's caches)")
	return cmd
}

// sourceName is what names of sources, which are values of labels, look like.
var sourceName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
})

// complete checks the flags, and fills in what follows from others.
func (f *syncFlags) complete() error {
	if f.name == "" {
		at := f.repository.URL
		if fi, err := os.Stat(at); err == nil && fi.IsDir() {
			if abs, err := filepath.Abs(at); err == nil {
				at = filepath.ToSlash(abs)
			}
		}
		f.name = strings.ToLower(strings.TrimSuffix(path.Base(at[strings.LastIndex(at, ":")+1:]), ".git"))
	}
	if !sourceName().MatchString(f.name) {
		return skerry.Errorf(skerry.CodeInvalid, "%q cannot be the name of a source", f.name).
			WithHint("give one with --name: small letters, digits and hyphens, at most 63")
	}
	if f.every < shortestEvery && !f.once {
		return skerry.Errorf(skerry.CodeInvalid, "--every %s is too often", f.every).WithHint("the shortest is %s", shortestEvery)
	}
	if f.plan && f.writeBack {
		return skerry.Errorf(skerry.CodeInvalid, "--plan changes nothing, and --write-back writes into the repository").
			WithHint("leave one of them out")
	}
	if f.repository.Dir != "" {
		return nil
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "there is no directory for the copy of the repository: %w", err).WithHint("name one with --dir")
	}
	f.repository.Dir = filepath.Join(caches, "skerry", "sync", f.name)
	return nil
}

// sync follows a repository until it is stopped, or once.
func (a *app) sync(cmd *cobra.Command, client *api.Client, flags syncFlags) error {
	if err := flags.complete(); err != nil {
		return err
	}
	ctx := cmd.Context()
	repository, err := gitrepo.Open(ctx, flags.repository)
	if err != nil {
		return err
	}
	s := &syncer{app: a, cmd: cmd, client: client, repository: repository, flags: flags, late: map[skerry.AppKey]bool{},
		told: map[string]bool{}}
	s.resume(ctx)
	if flags.once {
		return s.once(ctx)
	}
	for {
		for _, err := range s.round(ctx) {
			s.tell(err)
		}
		s.before, s.told = s.told, map[string]bool{}
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(flags.every):
		}
	}
}

// once makes one round, and ends as an apply does, or as a diff.
func (s *syncer) once(ctx context.Context) error {
	errs := s.round(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := joinErrors(s.cmd, errs)
	switch {
	case s.flags.plan && err != nil:
		return &console.Exit{Code: exitTrouble, Err: err}
	case s.flags.plan && s.differs:
		return &console.Exit{Code: exitDiffers}
	case err == nil && !s.flags.plan && !s.flags.noWait:
		var keys []skerry.AppKey
		for _, w := range s.current.wanted {
			keys = append(keys, w.manifest.Key())
		}
		err = s.follow(s.cmd, s.client, keys, s.flags.patience, "")
	}
	if s.flags.writeBack && ctx.Err() == nil && s.current.commit.ID != "" && s.undone != nil {
		err = cmp.Or(err, s.note(ctx))
	}
	return err
}

// news reports whether a text was not told in this round or the last, and remembers it.
func (s *syncer) news(text string) bool {
	is := !s.told[text] && !s.before[text]
	s.told[text] = true
	return is
}

// tell prints an error unless it is as in the last round.
func (s *syncer) tell(err error) {
	if s.news(err.Error()) {
		console.PrintError(s.cmd.ErrOrStderr(), err)
	}
}

// say prints a line unless it is as in the last round.
func (s *syncer) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); s.news(text) {
		s.print("%s", text)
	}
}

func (s *syncer) print(format string, args ...any) {
	fmt.Fprintf(s.cmd.OutOrStdout(), format+"\n", args...)
}
