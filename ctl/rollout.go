package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// targetKey reads APP or APP/SERVICE; of an application it leaves the service's name empty.
func (a *app) targetKey(s string) (skerry.ServiceKey, error) {
	name := trimKind(s, "app")
	if strings.Contains(trimKind(name, "service"), "/") {
		return a.serviceKey(name)
	}
	k, err := skerry.ParseAppKey(name, a.namespace())
	if err != nil {
		err = skerry.Errorf(skerry.CodeInvalid, "%w", err)
	}
	return skerry.ServiceKey{App: k}, err
}

func (a *app) targetText(k skerry.ServiceKey) string {
	if k.Service == "" {
		return "app/" + a.short(k.App)
	}
	return "service/" + a.short(k.App) + "/" + k.Service
}

func (a *app) rolloutCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rollout", Short: "Watch, pause, resume and undo updates",
		Long: `Watch, pause, resume and undo updates. A changed service replaces its instances as the update section of its manifest
specifies: first the canary, then wave by wave. A version that failed and was rolled back is retried only when the manifest
changes or you run resume.`}
	restart := a.restartCommand()
	cmd.AddCommand(a.rolloutStatusCommand(), a.rolloutHistoryCommand(),
		a.rolloutChange(api.RolloutPause, "Pause updates", "paused"),
		a.rolloutChange(api.RolloutResume, "Resume updates, or retry a version that was rolled back", "resumed"),
		a.rolloutChange(api.RolloutUndo, "Roll back to an earlier version", "goes back"), restart)
	return cmd
}

func (a *app) rolloutChange(action, short, word string) *cobra.Command {
	to, site := 0, ""
	cmd := &cobra.Command{Use: action + " APP[/SERVICE]", Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKind("service"),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			k, err := a.targetKey(args[0])
			if err != nil {
				return err
			}
			if to < 0 {
				return skerry.Errorf(skerry.CodeInvalid, "there is no generation %d", to)
			}
			res, err := c.Rollout(cmd.Context(), k, api.RolloutRequest{Action: action, To: skerry.Generation(to), Amendment: site})
			if err != nil {
				return err
			}
			if res.Unchanged {
				fmt.Fprintf(cmd.OutOrStdout(), "%s unchanged\n", a.targetText(k))
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", a.targetText(k), word)
			return nil
		})}
	if action == api.RolloutUndo {
		cmd.Long = "Roll back to an earlier version: the last one that differs, or that of a generation. The rollback skips canary and waves,\nand keeps the current number of instances and update settings."
		cmd.Flags().IntVar(&to, "to", 0, "generation to roll back to, as listed by rollout history")
		cmd.Flags().StringVar(&site, "amendment", "",
			"site whose override, made while the root was away, is to be adopted, with its number of instances")
		cmd.MarkFlagsMutuallyExclusive("to", "amendment")
	}
	return cmd
}

func (a *app) rolloutHistoryCommand() *cobra.Command {
	return &cobra.Command{Use: "history APP", Short: "List the stored versions", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("app"), RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			keys, err := a.appKeys(args)
			if err != nil {
				return err
			}
			v, err := c.App(cmd.Context(), keys[0])
			if err != nil {
				return err
			}
			t := table{head: []string{"GENERATION", "APPLIED", "BY", "SERVICE", "REVISION", "IMAGE"}}
			for _, r := range v.Revisions {
				for _, s := range r.Services {
					gen := strconv.Itoa(int(r.Gen))
					if r.Site != "" {
						gen += " at " + r.Site // that was changed there, and not adopted
					}
					t.add("", []string{gen, when(time.Now(), r.At), r.Author, s.Name, s.Revision, s.Image})
				}
			}
			t.print(cmd.OutOrStdout(), false, true)
			for _, r := range v.Revisions {
				if r.Site != "" && r.Why != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "\nThe change at %s is not adopted: %s. `skerry rollout undo %s --amendment %s` adopts it.\n", r.Site, r.Why, args[0], r.Site)
				}
			}
			return nil
		})}
}

// rolloutText says in a line how far a service's update is.
func rolloutText(s *view.ServiceView, now time.Time) string {
	r := s.Rollout
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("%d of %d run revision %s", s.UpToDate, s.Want, r.Revision)
	switch r.Phase {
	case view.RolloutDone:
		if s.Ready < s.Want {
			text += fmt.Sprintf(", %d ready", s.Ready)
		} else {
			text += ", done"
		}
	case view.RolloutCanary:
		text += "; observing the canary"
		if r.Limit > 0 {
			text += fmt.Sprintf(" (%d)", r.Limit)
		}
	case view.RolloutPaused:
		text += "; paused by " + r.Paused
	case view.RolloutBack:
		text += "; rolling back to it"
	case view.RolloutWaves:
		if r.Limit > 0 { // else worker by worker
			text += fmt.Sprintf("; wave %d, up to %d", r.Wave, r.Limit)
		}
		if r.NextAt.After(now) {
			text += ", the next in " + age(r.NextAt, now)
		}
	}
	if k := r.Sites; k != nil && (k.All > 1 || k.Away > 0) {
		text += fmt.Sprintf("; done at %d of %d sites", k.Done, k.All)
		if k.Away > 0 {
			text += fmt.Sprintf(", %d out of touch or in quarantine", k.Away)
		}
	}
	if r.Waits != "" {
		text += "; update waits: " + r.Waits
	}
	if r.Failures > 0 && r.Phase != view.RolloutDone {
		text += fmt.Sprintf("; %d failures", r.Failures)
		if r.Reason != "" {
			text += ": " + r.Reason
		}
	}
	return text
}

func refusedText(r *view.RolloutView, now time.Time) string {
	if r == nil || r.Refused == nil {
		return ""
	}
	return fmt.Sprintf("revision %s was rolled back %s ago: %s", r.Refused.Revision, age(now, r.Refused.At), r.Refused.Reason)
}

func (a *app) rolloutStatusCommand() *cobra.Command {
	watch, timeout := false, 5*time.Minute
	cmd := &cobra.Command{Use: "status APP[/SERVICE]", Short: "Show the progress of updates", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("service"),
		Long:              "Show the progress of updates. With --watch, wait until they have finished, and fail if a version was rolled back.\n" + exitHelp,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			k, err := a.targetKey(args[0])
			if err != nil {
				return err
			}
			shown, err := c.App(cmd.Context(), k.App)
			if err != nil {
				return err
			}
			if k.Service != "" && !hasService(&shown, k.Service) {
				return skerry.Errorf(skerry.CodeNotFound, "application %s has no service %q", k.App, k.Service)
			}
			if err := hasRollouts(&shown, k.Service); err != nil {
				return err
			}
			last := map[string]string{}
			done, taken := a.showRollouts(cmd.OutOrStdout(), &shown, k.Service, last)
			if watch && !done {
				if err := a.watchRollouts(cmd, c, k, timeout, last, &taken); err != nil {
					return err
				}
			}
			if watch && taken != "" {
				return skerry.Errorf(skerry.CodeUnavailable, "%s", taken).
					WithHint("change the manifest and apply it, or retry with `skerry rollout resume %s`", args[0])
			}
			return nil
		})}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "wait until the updates have finished")
	cmd.Flags().Var(spanValue{&timeout}, "timeout", "how long to wait")
	return cmd
}

func hasService(v *view.AppView, name string) bool {
	for i := range v.Services {
		if v.Services[i].Name == name {
			return true
		}
	}
	return false
}

// hasRollouts says why there is no update to show of an application, or of one of its services.
func hasRollouts(shown *view.AppView, service string) error {
	if !shown.Deployed {
		return skerry.Errorf(skerry.CodeConflict, "application %s is not deployed, and has no updates", shown.Key).
			WithHint("`skerry deploy %s` starts it", shown.Key.Name)
	}
	jobs := true
	for i := range shown.Services {
		svc := &shown.Services[i]
		if service != "" && svc.Name != service {
			continue
		}
		if svc.Rollout != nil {
			return nil
		}
		jobs = jobs && (svc.Mode == spec.ModeJob || svc.Mode == spec.ModeCron)
	}
	if jobs {
		return skerry.Errorf(skerry.CodeInvalid, "jobs have runs, and no updates").
			WithHint("`skerry wait %s --for completed` waits for the last run, and `skerry describe app %s` lists them",
				shown.Key.Name, shown.Key.Name)
	}
	return skerry.Errorf(skerry.CodeWrongTier, "the updates of %s are not known here", shown.Key).WithHint("ask the root, which owns it")
}

// showRollouts prints the lines that changed. It tells whether all is done, and why something was taken back.
func (a *app) showRollouts(out io.Writer, v *view.AppView, service string, last map[string]string) (done bool, taken string) {
	done = true
	now := time.Now()
	for at := range v.Services {
		svc := &v.Services[at]
		if service != "" && svc.Name != service {
			continue
		}
		if svc.Rollout == nil {
			done = done && (svc.Mode == spec.ModeJob || svc.Mode == spec.ModeCron) // else its update is yet to begin
			continue
		}
		stuck := blocked(v, svc)
		done = done && (svc.Rollout.Phase == view.RolloutDone && svc.Ready >= svc.Want || stuck)
		if stuck && taken == "" {
			taken = "service " + svc.Name + ": its update waits: " + svc.Rollout.Waits
		}
		text := rolloutText(svc, now)
		if f := svc.Rollout.Refused; f != nil {
			taken = "service " + svc.Name + ": revision " + f.Revision + " was rolled back: " + f.Reason
			text += "\n  " + "revision " + f.Revision + " was rolled back: " + f.Reason
		}
		if last[svc.Name] != text {
			last[svc.Name] = text
			fmt.Fprintf(out, "service/%s/%s: %s\n", a.short(v.Key), svc.Name, text)
		}
	}
	return done, taken
}

func (a *app) watchRollouts(cmd *cobra.Command, c *api.Client, k skerry.ServiceKey, timeout time.Duration, last map[string]string,
	taken *string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	err := c.Watch(ctx, api.WatchFilter{Namespace: k.App.Namespace, App: k.App.Name, Kinds: []string{api.WatchApp}},
		func(m api.WatchMessage) error {
			if m.Type == api.WatchDeleted {
				return skerry.Errorf(skerry.CodeNotFound, "application %s was deleted", k.App)
			}
			if m.App == nil {
				return nil
			}
			if k.Service != "" && !hasService(m.App, k.Service) {
				return skerry.Errorf(skerry.CodeNotFound, "application %s no longer has a service %q", k.App, k.Service)
			}
			var done bool
			if done, *taken = a.showRollouts(cmd.OutOrStdout(), m.App, k.Service, last); done {
				return errDone
			}
			return nil
		})
	switch {
	case errors.Is(err, errDone):
		return nil
	case interrupted(cmd.Context()):
		return cmd.Context().Err()
	case errors.Is(err, context.DeadlineExceeded):
		err = skerry.Errorf(skerry.CodeUnavailable, "the updates of %s have not finished after %s", k.App, span(timeout)).
			WithHint("`skerry describe app %s` shows what blocks them", k.App.Name)
		list, e := c.Instances(cmd.Context(), api.InstanceFilter{Namespace: k.App.Namespace, App: k.App.Name, Service: k.Service})
		if e == nil && slices.ContainsFunc(list, func(i wire.Instance) bool { return unplaced(&i) }) {
			return notPlaced(err)
		}
	}
	return err
}
