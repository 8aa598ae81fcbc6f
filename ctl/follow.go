package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// progress is what a live view knows of the applications that it follows. Only its own goroutine touches it.
type progress struct {
	keys  []skerry.AppKey
	apps  map[skerry.AppKey]*view.AppView
	insts map[skerry.InstanceID]*wire.Instance
	seen  map[skerry.InstanceID]*watched
	past  map[string]bool // revisions that had been taken back before, which is nothing that this command asked for
	now   func() time.Time
}

func newProgress(keys []skerry.AppKey) *progress {
	return &progress{keys: keys, apps: map[skerry.AppKey]*view.AppView{}, insts: map[skerry.InstanceID]*wire.Instance{},
		seen: map[skerry.InstanceID]*watched{}, now: time.Now}
}

// take takes up a message of a watch.
func (p *progress) take(m api.WatchMessage) {
	switch {
	case m.Type == api.WatchMissed:
		clear(p.apps)
		clear(p.insts)
	case m.App != nil && slices.Contains(p.keys, m.App.Key):
		p.apps[m.App.Key] = m.App
	case m.Instance != nil && slices.Contains(p.keys, m.Instance.Service.App):
		p.insts[m.Instance.ID] = m.Instance
		p.note(m.Instance)
	case m.Type == api.WatchDeleted && m.Key != nil:
		delete(p.apps, *m.Key)
	case m.Type == api.WatchDeleted:
		delete(p.insts, m.ID)
	}
}

// instances lists what is followed, in the order of service and name.
func (p *progress) instances() []*wire.Instance {
	return slices.SortedFunc(maps.Values(p.insts), func(a, b *wire.Instance) int {
		return cmp.Or(cmp.Compare(a.Service.String(), b.Service.String()), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// done reports whether an application is as it should be: services are ready and up to date and their updates have ended, jobs have begun.
func (p *progress) done(app skerry.AppKey) bool {
	shown := p.apps[app]
	if shown == nil {
		return false
	}
	if p.crashes(app) != nil {
		return true // nothing better is to come
	}
	stuck := false
	for _, s := range shown.Services {
		if (s.Mode == spec.ModeService || s.Mode.HasCopies()) && p.ready(app, s.Name) < s.Ready {
			return false // that they are ready is on its way, and to be shown
		}
		if blocked(shown, &s) {
			stuck = true
			continue
		}
		if r := s.Rollout; r != nil && (r.Phase == view.RolloutCanary || r.Phase == view.RolloutWaves || r.Phase == view.RolloutBack) {
			return false // a version that is ready may still fail
		}
	}
	if stuck || shown.Status == "Ready" || shown.Status == view.AppRolledBack || shown.Status == "Completed" {
		return true
	}
	for _, s := range shown.Services {
		switch s.Mode {
		case spec.ModeCron:
		case spec.ModeJob:
			if n := len(s.Runs); n == 0 || s.Pending || s.Runs[n-1].Result == "" && !p.begun(app, s.Name, s.Runs[n-1].StartedAt) {
				return false
			}
		default:
			if s.CrashLoops > 0 || s.Ready < s.Want || s.UpToDate < s.Instances || s.Want > 0 && s.Instances == 0 {
				return false
			}
		}
	}
	return true
}

// services gives the services of an application as far as it is known.
func (p *progress) services(k skerry.AppKey) []view.ServiceView {
	if v := p.apps[k]; v != nil {
		return v.Services
	}
	return nil
}

// ready counts the instances, or copies at sites, of a service that are known to be ready.
func (p *progress) ready(k skerry.AppKey, service string) (n int) {
	for _, i := range p.insts {
		switch {
		case i.Service.App != k || i.Service.Service != service:
		case i.Have > 0:
			n += i.Have
		case skerry.HasCondition(i.Conditions, skerry.Ready):
			n++
		}
	}
	return n
}

// begun reports whether an instance of a run of a job, which began at that time, runs or has done its work.
func (p *progress) begun(k skerry.AppKey, service string, since time.Time) bool {
	for _, i := range p.insts {
		if i.Service.App == k && i.Service.Service == service && !i.Stopping && !i.CreatedAt.Before(since) &&
			(i.State == skerry.Running || i.State == skerry.Terminated) {
			return true
		}
	}
	return false
}

// outcome says what an application has come to that is done. Of a job no more is known than that it has begun.
func (a *app) outcome(shown *view.AppView) string {
	var begun []string
	services := 0
	for _, s := range shown.Services {
		switch n := len(s.Runs); s.Mode {
		case spec.ModeJob:
			if n > 0 && s.Runs[n-1].Result == "" {
				begun = append(begun, s.Name)
			}
		case spec.ModeCron:
		default:
			services++
		}
	}
	if len(begun) == 0 {
		return "is " + strings.ToLower(shown.Status)
	}
	text := "has begun: job " + strings.Join(begun, ", ") + " runs"
	if services > 0 {
		text = "serves, and job " + strings.Join(begun, ", ") + " has begun"
	}
	return text + "; `skerry wait " + a.short(shown.Key) + " --for completed` waits for its end"
}

func (p *progress) allDone() bool {
	for _, k := range p.keys {
		if !p.done(k) {
			return false
		}
	}
	return true
}

// pending lists the instances that have no worker yet.
func (p *progress) pending() []*wire.Instance {
	var out []*wire.Instance
	for _, i := range p.instances() {
		if unplaced(i) {
			out = append(out, i)
		}
	}
	return out
}

// unplaced reports whether an instance has no worker yet.
func unplaced(i *wire.Instance) bool {
	return !i.Stopping && (i.State == skerry.Requested || i.State == skerry.ClusterScheduled)
}

// failed reports why an application will not become what was asked for: a job failed, or a version of a service was taken back.
func (p *progress) failed() error {
	for _, k := range p.keys {
		v := p.apps[k]
		if v == nil || !p.done(k) {
			continue
		}
		for _, s := range v.Services {
			if s.Rollout != nil && s.Rollout.Refused != nil && !p.past[s.Rollout.Refused.Revision] {
				f := s.Rollout.Refused
				return skerry.Errorf(skerry.CodeUnavailable, "service %s/%s was rolled back: revision %s failed: %s", k.Name, s.Name, f.Revision,
					f.Reason).
					WithHint("the previous version serves again; change the manifest and apply it, or `skerry rollout resume %s/%s` to try the version again", k.Name, s.Name)
			}
			if n := len(s.Runs); s.Mode == spec.ModeJob && n > 0 && !s.Pending && s.Runs[n-1].Result == "Failed" {
				text := strings.Join(nonEmpty("failed", s.Runs[n-1].Reason), ": ")
				return skerry.Errorf(skerry.CodeUnavailable, "job %s/%s %s", k.Name, s.Name, text).
					WithHint("`skerry logs %s/%s` shows its output", k.Name, s.Name)
			}
		}
		if i := p.crashes(k); i != nil {
			return crashed(k, i)
		}
	}
	return nil
}

// culprit is the instance whose log tells why an application failed, or nil.
func (p *progress) culprit() *wire.Instance {
	for _, k := range p.keys {
		if i := p.crashes(k); i != nil {
			return i
		}
	}
	return nil
}

// follow shows how applications become what was asked for, until they are or time is up.
func (a *app) follow(cmd *cobra.Command, c *api.Client, keys []skerry.AppKey, timeout time.Duration, output string) error {
	return a.watchProgress(cmd, c, newProgress(keys), timeout, output)
}

func (a *app) watchProgress(cmd *cobra.Command, client *api.Client, shown *progress, timeout time.Duration, output string) error {
	keys := shown.keys
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	out := cmd.OutOrStdout()
	if output != "" && output != formatTable && output != formatWide {
		out = cmd.ErrOrStderr() // the output is for a program
	}
	follower := a.newView(out, shown)
	filter := api.WatchFilter{Kinds: []string{api.WatchApp, api.WatchInstance}}
	if len(keys) == 1 {
		filter.Namespace, filter.App = keys[0].Namespace, keys[0].Name
	}
	err := shown.watch(ctx, client, filter, func() { follower.show(false) })
	follower.show(true)
	switch {
	case errors.Is(err, errDone):
		if err := shown.failed(); err != nil {
			if i := shown.culprit(); i != nil {
				return lastLines(cmd.Context(), client, i, err)
			}
			return err
		}
		for _, k := range keys {
			fmt.Fprintf(out, "app/%s %s\n", a.short(k), a.outcome(shown.apps[k]))
		}
		return nil
	case interrupted(cmd.Context()):
		fmt.Fprintln(cmd.ErrOrStderr(), "\nthe view has ended; the deployment goes on (`skerry get instances -w` shows it)")
		if len(shown.pending()) > 0 {
			return notPlaced(nil)
		}
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return a.late(shown, timeout)
	}
	return err
}

// late says why not everything is ready in time.
func (a *app) late(shown *progress, timeout time.Duration) error {
	problem := &skerry.Error{Code: skerry.CodeUnavailable}
	pending := shown.pending()
	for _, i := range pending {
		text, hint := "not placed yet", ""
		if len(i.Why) > 0 {
			var parts []string
			for _, w := range i.Why {
				if !slices.Contains(parts, whyText(w)) {
					parts = append(parts, whyText(w))
				}
				if hint == "" {
					hint = w.Hint
				}
			}
			text = strings.Join(parts, "; ")
		} else if i.Reason != "" {
			text = i.Reason
		}
		problem.Problems = append(problem.Problems, skerry.Problem{Path: string(i.ID), Message: text, Hint: hint})
	}
	if len(pending) > 0 {
		problem.Message = fmt.Sprintf("accepted, but after %s %d of %d instances are not placed", span(timeout), len(pending), len(shown.insts))
		problem.Hint = "Skerry keeps trying; `skerry explain INSTANCE` shows why"
		return notPlaced(problem)
	}
	for _, i := range shown.instances() {
		if !i.Stopping && i.State != skerry.Terminated && !skerry.HasCondition(i.Conditions, skerry.Ready) {
			problem.Problems = append(problem.Problems, skerry.Problem{Path: string(i.ID),
				Message: strings.Join(nonEmpty(string(i.State), phaseOf(i), reasonOf(i)), ", ")})
		}
	}
	for _, k := range shown.keys {
		for _, s := range shown.services(k) {
			if s.Rollout != nil && s.Rollout.Phase != view.RolloutDone {
				problem.Problems = append(problem.Problems, skerry.Problem{Path: a.short(k) + "/" + s.Name, Message: rolloutText(&s, shown.now())})
			}
		}
	}
	problem.Message = fmt.Sprintf("not everything is ready after %s", span(timeout))
	problem.Hint = "see `skerry describe instance INSTANCE` and `skerry logs INSTANCE`"
	return problem
}

func nonEmpty(list ...string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// whyText is a reason with the number of candidates that it ruled out.
func whyText(r wire.Reason) string {
	if r.Count > 1 && !strings.HasPrefix(r.Text, strconv.Itoa(r.Count)+" ") {
		return fmt.Sprintf("%s (%d times)", r.Text, r.Count)
	}
	return r.Text
}

// view shows progress: on a terminal as a table that is drawn anew, else as a line for each change.
type follower struct {
	a     *app
	p     *progress
	out   io.Writer
	tty   bool
	lines int // drawn last time
	drawn time.Time
	last  map[skerry.InstanceID]string
	begin time.Time
}

func (a *app) newView(out io.Writer, p *progress) *follower {
	v := &follower{a: a, p: p, out: out, last: map[skerry.InstanceID]string{}, begin: p.now()}
	if f := console.Terminal(out); f != nil && os.Getenv("TERM") != "dumb" {
		v.tty, v.out = true, f // it draws, of cells that are clean
	}
	return v
}

// drawEvery bounds how often the table is drawn.
const drawEvery = 60 * time.Millisecond

func (v *follower) show(final bool) {
	if !v.tty {
		v.printLines()
		return
	}
	if !final && v.p.now().Sub(v.drawn) < drawEvery && !v.p.allDone() {
		return
	}
	v.drawn = v.p.now()
	v.draw()
}

func (v *follower) printLines() {
	for _, i := range v.p.instances() {
		ready := ""
		if skerry.HasCondition(i.Conditions, skerry.Ready) {
			ready = "ready"
		}
		text := strings.Join(nonEmpty(string(i.State), phaseOf(i), ready, placeOf(i)), ", ")
		if r := reasonOf(i); r != "" && ready == "" {
			text += ": " + r
		}
		if v.last[i.ID] != text {
			v.last[i.ID] = text
			fmt.Fprintf(v.out, "%6.1fs  %s  %s\n", v.p.now().Sub(v.begin).Seconds(), i.ID, clean(text))
		}
	}
}

func placeOf(i *wire.Instance) string {
	switch {
	case i.Worker != "":
		return "on " + string(i.Worker)
	case i.Cluster != "":
		return "in " + string(i.Cluster)
	}
	return ""
}

func (v *follower) draw() {
	width, height := 80, 24
	if f, ok := v.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			width, height = w, h
		}
	}
	grid := table{head: []string{"INSTANCE", "SERVICE", "STATE", "PHASE", "READY", "WHERE", "REASON"}}
	for _, i := range v.p.instances() {
		reason := reasonOf(i)
		ready := yesNo(skerry.HasCondition(i.Conditions, skerry.Ready))
		if ready == "yes" {
			reason = ""
		}
		grid.add("", []string{string(i.ID), i.Service.Service, string(i.State), phaseOf(i), ready,
			string(cmp.Or(string(i.Worker), string(i.Cluster))), reason})
	}
	var b strings.Builder
	grid.print(&b, false, true)
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if most := max(height-3, 3); len(lines) > most {
		more := len(lines) - most
		lines = append(lines[:most], fmt.Sprintf("... and %d more", more))
	}
	var out strings.Builder
	if v.lines > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", v.lines)
	}
	for _, l := range lines {
		if r := []rune(l); len(r) > width {
			l = string(r[:width])
		}
		out.WriteString("\x1b[2K" + l + "\n")
	}
	out.WriteString("\x1b[J")
	v.lines = len(lines)
	io.WriteString(v.out, out.String())
}
