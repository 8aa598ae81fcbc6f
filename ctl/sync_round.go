package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/convert"
	"skerry.dev/skerry/ctl/gitrepo"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/yamlsize"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// syncer keeps applications as a repository has them. What is so, the server knows; between rounds the syncer remembers what saves
// questions, and what it has told.
type syncer struct {
	*app
	cmd        *cobra.Command
	client     *api.Client
	repository *gitrepo.Repository
	flags      syncFlags

	current   revision               // what applications are kept as
	late      map[skerry.AppKey]bool // of these, those that it could not be applied to yet: what is missing there is no drift
	candidate revision               // the newest commit, whose manifests were read
	known     map[skerry.AppKey]knownApp
	undone    map[skerry.AppKey]error // what could not be applied of the revision that was compared last; nil: none was in this round
	differs   bool                    // in this round, something is not as the repository has it
	told      map[string]bool
	before    map[string]bool // told in the last round
}

// revision is a commit with the applications in it.
type revision struct {
	commit gitrepo.Commit
	wanted []wantedApp
}

// wantedApp is an application as the repository has it.
type wantedApp struct {
	doc      document // as it is in the repository
	manifest *spec.Application
	labelled []byte // what is applied: the document with the label of the source
}

// knownApp is what was found out about one generation of an application. One that is deleted and made anew begins with the first again.
type knownApp struct {
	gen    skerry.Generation
	made   time.Time
	source string
	commit string // it is as this commit has it; "": it is not, or nobody asked
}

// change is what a manifest would change.
type change struct {
	wantedApp
	is *view.AppView // nil: there is none
	apps.Applied
}

// round looks once at the repository and the server, and has the second follow the first. The server is left as it is where an
// error is told.
func (s *syncer) round(ctx context.Context) (errs []error) {
	s.differs, s.undone = false, nil
	next, err := s.newest(ctx)
	if err != nil {
		errs = append(errs, err)
	}
	if next.commit.ID == "" || ctx.Err() != nil {
		return errs
	}
	list, err := s.client.Apps(ctx, "")
	if err == nil {
		err = s.look(ctx, list)
	}
	if err != nil {
		return append(errs, err)
	}
	changes, refused := s.compare(ctx, &next, list)
	fresh := next.commit.ID != s.current.commit.ID
	if fresh && len(refused) > 0 && ctx.Err() == nil {
		s.say("commit %s is held back, nothing of it is applied: %s", next.commit.Short(),
			counted(len(refused), "manifest is refused", "manifests are refused"))
		errs = append(errs, refused...)
		if s.current.commit.ID == "" {
			return errs
		}
		fresh = false
		changes, refused = s.compare(ctx, &s.current, list)
	}
	errs = append(errs, refused...)
	if ctx.Err() != nil {
		return errs
	}
	if fresh {
		if !s.flags.plan {
			if err := s.repository.Accept(ctx, next.commit, s.flags.allowRewind); err != nil {
				return append(errs, err)
			}
		}
		s.current, s.late = next, map[skerry.AppKey]bool{}
		s.print("commit %s by %s: %s", next.commit.Short(), clean(next.commit.Author), clean(next.commit.Subject))
	}
	for _, c := range changes {
		key := c.manifest.Key()
		err := s.change(ctx, &c, !fresh && !s.late[key])
		if err != nil {
			s.undone[key] = c.doc.at(err)
			errs = append(errs, s.undone[key])
		}
		s.late[key] = err != nil && (fresh || s.late[key])
	}
	errs = append(errs, s.left(ctx, list)...)
	if s.flags.writeBack && !s.flags.once {
		if err := s.note(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// resume takes up the commit that was followed when the program ended last, so that applications are kept as it has them while the newest
// one cannot be had. If it cannot be read as it was, such as by other signers, the first good commit is the first.
func (s *syncer) resume(ctx context.Context) {
	id := s.repository.Accepted(ctx)
	if id == "" {
		return
	}
	commit, err := s.repository.Commit(ctx, id)
	if err == nil {
		err = s.repository.Verify(ctx, commit)
	}
	var wanted []wantedApp
	if err == nil {
		wanted, err = s.read(ctx, commit)
	}
	if err == nil {
		s.current = revision{commit, wanted}
	}
}

// newest gives the newest commit that may be followed. With an error, it is the one that is followed already.
func (s *syncer) newest(ctx context.Context) (revision, error) {
	commit, err := s.repository.Fetch(ctx)
	if err != nil || commit.ID == s.current.commit.ID {
		return s.current, err
	}
	if err := s.repository.Verify(ctx, commit); err != nil {
		return s.current, err
	}
	if last := s.repository.Accepted(ctx); last != "" && !s.flags.allowRewind && !s.repository.Descends(ctx, commit, last) {
		return s.current, skerry.Errorf(skerry.CodeConflict,
			"branch %s was rewritten or set back: commit %s does not contain %.10s, the last one taken",
			s.flags.repository.Branch, commit.Short(), last).WithHint("if that is meant, give --allow-rewind once")
	}
	if commit.ID == s.candidate.commit.ID {
		return s.candidate, nil
	}
	wanted, err := s.read(ctx, commit)
	if err != nil {
		return s.current, fmt.Errorf("commit %s: %w", commit.Short(), err)
	}
	s.candidate = revision{commit, wanted}
	return s.candidate, nil
}

// read reads the manifests of a commit: all of them, or none.
func (s *syncer) read(ctx context.Context, commit gitrepo.Commit) ([]wantedApp, error) {
	files, skipped, err := s.repository.Files(ctx, commit)
	if err != nil {
		return nil, err
	}
	for _, name := range skipped {
		s.say("%s is a link or a submodule, and is not read", clean(name))
	}
	var out []wantedApp
	names := map[skerry.AppKey]string{}
	for _, file := range files {
		docs, err := splitDocuments(clean(file.Name), file.Data)
		if err != nil {
			return nil, err
		}
		for _, doc := range docs {
			w, err := s.want(doc)
			if err != nil {
				return nil, err
			}
			key := w.manifest.Key()
			if first, twice := names[key]; twice {
				return nil, skerry.Errorf(skerry.CodeInvalid, "%s: application %s is already in %s", doc.where(), key, first).
					WithHint("keep one of them")
			}
			names[key] = doc.where()
			out = append(out, w)
		}
	}
	if len(out) == 0 {
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no manifest below %q", "/"+s.flags.repository.Path).
			WithHint("a repository without manifests deletes nothing; to end applications, delete them")
	}
	return out, nil
}

// want reads one manifest.
func (s *syncer) want(doc document) (app wantedApp, err error) {
	if err := yamlsize.Check(doc.yaml, maxFile); err != nil {
		return app, doc.at(err)
	}
	if format := convert.Detect(doc.yaml); format != convert.FormatSkerry && format != convert.FormatUnknown {
		return app, skerry.Errorf(skerry.CodeInvalid, "%s is a %s file, not a manifest of Skerry", doc.where(), format).
			WithHint("commit what `skerry convert` makes of it, or name a directory without it with --path")
	}
	app.doc = doc
	if app.manifest, err = doc.manifestOf(s.namespace()); err != nil {
		return app, err
	}
	if given, ok := app.manifest.Metadata.Labels[sourceLabel]; ok && given != s.flags.name {
		return app, skerry.Errorf(skerry.CodeInvalid, "%s has the label %s=%s, and this source is %s", doc.where(), sourceLabel, given,
			s.flags.name).WithHint("leave the label out; it is set when the manifest is applied")
	}
	if app.manifest.Metadata.Labels == nil {
		app.manifest.Metadata.Labels = map[string]string{}
	}
	app.manifest.Metadata.Labels[sourceLabel] = s.flags.name
	var tree map[string]any
	if err := yaml.UnmarshalStrict(doc.inNamespace(s.namespace()), &tree); err != nil {
		return app, doc.syntax(err)
	}
	meta, _ := tree["metadata"].(map[string]any) // the manifest is valid: it has a name
	labels, _ := meta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[sourceLabel] = s.flags.name
	meta["labels"] = labels
	app.labelled, err = yaml.Marshal(tree)
	return app, err
}

// look finds out to which sources applications belong. Only generations that are not known yet are asked for.
func (s *syncer) look(ctx context.Context, list []view.AppView) error {
	known := map[skerry.AppKey]knownApp{}
	for i := range list {
		key := list[i].Key
		if k, ok := s.known[key]; ok && k.gen == list[i].Gen && k.made.Equal(list[i].CreatedAt) {
			known[key] = k
			continue
		}
		one, err := s.client.App(ctx, key)
		if err != nil {
			if skerry.AsError(err).Code == skerry.CodeNotFound {
				continue
			}
			return err
		}
		known[key] = knownApp{gen: one.Gen, made: one.CreatedAt, source: sourceOf(&one)}
	}
	s.known = known
	return nil
}

// sourceOf gives the source that keeps an application, or "".
func sourceOf(v *view.AppView) string {
	if v.Manifest == nil {
		return ""
	}
	return v.Manifest.Metadata.Labels[sourceLabel]
}

// compare asks the server what the manifests of a revision would change, and changes nothing.
func (s *syncer) compare(ctx context.Context, rev *revision, list []view.AppView) (changes []change, errs []error) {
	s.undone = map[skerry.AppKey]error{}
	for _, app := range rev.wanted {
		key := app.manifest.Key()
		one := change{wantedApp: app}
		if at := slices.IndexFunc(list, func(v view.AppView) bool { return v.Key == key }); at >= 0 {
			one.is = &list[at]
		}
		about, known := s.known[key]
		if known && about.gen == one.is.Gen && about.commit == rev.commit.ID {
			continue
		}
		if known && about.source != "" && about.source != s.flags.name {
			s.undone[key] = skerry.Errorf(skerry.CodeConflict, "%s: application %s belongs to the source %s", app.doc.where(), key,
				clean(about.source)).WithHint("take it out of one of the two repositories, or remove its label: skerry label %s %s-",
				key, sourceLabel)
			errs = append(errs, s.undone[key])
			continue
		}
		var err error
		if one.Applied, err = s.client.Apply(ctx, app.labelled, api.ApplyOptions{DryRun: true}); err != nil {
			if ctx.Err() != nil {
				return nil, []error{ctx.Err()}
			}
			s.undone[key] = app.doc.at(err)
			errs = append(errs, s.undone[key])
			continue
		}
		for _, warning := range one.Warnings {
			s.say("warning: app/%s: %s", s.short(key), warning)
		}
		if !one.Unchanged {
			changes = append(changes, one)
		} else if known {
			about.commit = rev.commit.ID
			s.known[key] = about
		}
	}
	return changes, errs
}

// change applies what a manifest changes, or shows it.
func (s *syncer) change(ctx context.Context, wanted *change, drift bool) error {
	key := wanted.manifest.Key()
	name := "app/" + s.short(key)
	s.differs = true
	what := name + " is new"
	if wanted.is != nil {
		one, err := s.client.App(ctx, key)
		if err != nil {
			return err
		}
		wanted.is = &one
		what = name + " differs"
		if drift {
			what = fmt.Sprintf("%s was changed outside the repository (generation %d, by %s)", name, one.Gen, orSomebody(one.Author))
		}
	} else if drift {
		what = name + " was deleted outside the repository"
	}
	if s.flags.plan {
		text, err := s.difference(wanted.is, wanted.manifest, wanted.doc.where())
		s.say("%s\n%s", what, strings.TrimSuffix(text, "\n"))
		return err
	}
	res, err := s.client.Apply(ctx, wanted.labelled, api.ApplyOptions{})
	if err != nil {
		return err
	}
	about := knownApp{gen: res.Gen, source: s.flags.name, commit: s.current.commit.ID}
	if wanted.is != nil { // else it is looked at again, to know when it was made
		about.made = wanted.is.CreatedAt
	}
	s.known[key] = about
	if drift {
		s.print("%s; put back: %s", what, verb(res, api.ApplyOptions{}))
		return nil
	}
	s.print("%s %s", name, verb(res, api.ApplyOptions{}))
	return nil
}

func orSomebody(author string) string {
	if author == "" {
		return "somebody"
	}
	return clean(author)
}

// left deals with applications of this source that the repository no longer has.
func (s *syncer) left(ctx context.Context, list []view.AppView) (errs []error) {
	for _, app := range list {
		if s.known[app.Key].source != s.flags.name || app.Deleting ||
			slices.ContainsFunc(s.current.wanted, func(w wantedApp) bool { return w.manifest.Key() == app.Key }) {
			continue
		}
		s.differs = true
		switch {
		case s.flags.plan && s.flags.prune:
			s.say("app/%s has left the repository: it would be deleted", s.short(app.Key))
		case !s.flags.prune || s.flags.plan:
			s.say("app/%s has left the repository, and runs on (--prune deletes it)", s.short(app.Key))
		default:
			// It may be somebody else's by now: under its name another one, or without the label.
			now, err := s.client.App(ctx, app.Key)
			if err == nil && sourceOf(&now) == s.flags.name {
				err = s.client.DeleteApp(ctx, app.Key)
			} else if err == nil || skerry.AsError(err).Code == skerry.CodeNotFound {
				continue
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			s.print("app/%s has left the repository: it is being deleted", s.short(app.Key))
		}
	}
	return errs
}

// note writes the state of the applications, as they are by now, on the commit that they are kept as.
func (s *syncer) note(ctx context.Context) error {
	list, err := s.client.Apps(ctx, "")
	if err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "source: %s\napplications:\n", s.flags.name)
	for _, w := range s.current.wanted {
		key := w.manifest.Key()
		state := struct {
			App        string            `json:"app"`
			Generation skerry.Generation `json:"generation,omitempty"`
			Status     string            `json:"status"`
			Reason     string            `json:"reason,omitempty"`
		}{App: key.String(), Status: "Missing"}
		if at := slices.IndexFunc(list, func(v view.AppView) bool { return v.Key == key }); at >= 0 {
			state.Generation, state.Status, state.Reason = list[at].Gen, list[at].Status, list[at].Reason
		}
		if why := s.undone[key]; why != nil {
			state.Status, state.Reason = "NotApplied", why.Error()
		}
		text, err := yaml.Marshal([]any{state})
		if err != nil {
			return err
		}
		out.Write(text)
	}
	return s.repository.WriteNote(ctx, s.current.commit, s.flags.name, out.String())
}
