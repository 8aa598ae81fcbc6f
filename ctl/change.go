package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
)

// trimKind takes "app/" and its like away from a name.
func trimKind(s, kind string) string {
	head, rest, ok := strings.Cut(s, "/")
	if r, err := findResource(head); ok && err == nil && r.singular() == kind {
		return rest
	}
	return s
}

// serviceKey reads APP/SERVICE or NAMESPACE/APP/SERVICE.
func (a *app) serviceKey(s string) (skerry.ServiceKey, error) {
	parts := strings.Split(trimKind(s, "service"), "/")
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: a.namespace()}}
	switch len(parts) {
	case 2:
		k.App.Name, k.Service = parts[0], parts[1]
	case 3:
		k.App.Namespace, k.App.Name, k.Service = parts[0], parts[1], parts[2]
	default:
		return k, skerry.Errorf(skerry.CodeInvalid, "%q does not name a service", s).WithHint("write APP/SERVICE, such as shop/front")
	}
	for _, p := range []string{k.App.Namespace, k.App.Name, k.Service} {
		if err := skerry.CheckName(p); err != nil {
			return k, skerry.Errorf(skerry.CodeInvalid, "%q: %w", s, err)
		}
	}
	return k, nil
}

func (a *app) completeKind(kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.names(cmd.Context(), kind), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) scaleCommand() *cobra.Command {
	var waiting waitFlags
	replicas := -1
	cmd := &cobra.Command{Use: "scale APP/SERVICE REPLICAS", Short: "Change the number of instances of a service",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeKind("service"),
		Long: "Change the number of instances of a service.\n" + exitHelp, Example: "  skerry scale shop/front 3",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			service, err := a.serviceKey(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				if replicas, err = strconv.Atoi(args[1]); err != nil {
					return skerry.Errorf(skerry.CodeInvalid, "%q is not a number of instances", args[1]).WithHint("write skerry scale %s 3", args[0])
				}
			} else if !cmd.Flags().Changed("replicas") {
				return skerry.Errorf(skerry.CodeInvalid, "the number of instances is missing").WithHint("write skerry scale %s 3", args[0])
			}
			before, err := client.App(cmd.Context(), service.App)
			if err != nil {
				return err
			}
			res, err := client.Scale(cmd.Context(), service, replicas)
			if err != nil {
				return err
			}
			what := "scaled to " + strconv.Itoa(replicas)
			if res.Unchanged {
				what = "has " + strconv.Itoa(replicas) + " already"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "service/%s/%s %s\n", a.short(service.App), service.Service, what)
			if !waiting.waits() {
				return nil
			}
			p := newProgress([]skerry.AppKey{service.App})
			p.past = map[string]bool{}
			for _, s := range before.Services {
				if s.Rollout != nil && s.Rollout.Refused != nil {
					p.past[s.Rollout.Refused.Revision] = true
				}
			}
			return a.watchProgress(cmd, client, p, waiting.timeout, "")
		})}
	cmd.Flags().IntVar(&replicas, "replicas", -1, "number of instances, in place of the argument")
	waiting.add(cmd)
	return cmd
}

func (a *app) restartCommand() *cobra.Command {
	var pull bool
	cmd := &cobra.Command{Use: "restart APP[/SERVICE]", Short: "Restart the instances of an application or service, one after the other",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKind("service"),
		Long: "Restart the instances of an application or service, one after the other. They keep the content of their images. With --pull, image\ntags are looked up again first; a service whose images changed is updated instead, as if it had been applied again.",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			target, err := a.targetKey(args[0])
			if err != nil {
				return err
			}
			res, err := client.Restart(cmd.Context(), target, pull)
			if err != nil {
				return err
			}
			for _, note := range res.Notes {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", a.targetText(target), note)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s restarts\n", a.targetText(target))
			return nil
		})}
	cmd.Flags().BoolVar(&pull, "pull", false, "look image tags up again first")
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	var files []string
	var wait, missing, volumes, force bool
	timeout := 2 * time.Minute
	cmd := &cobra.Command{Use: "delete KIND NAME... | delete -f FILE",
		Short: "Delete applications, instances, volumes, clusters, workers, users and more", Aliases: []string{"rm"},
		ValidArgsFunction: a.completeObjects,
		Long: `Delete resources. An application is stopped and removed whatever its state. Its local volumes are kept, unless its manifest says
reclaim: delete, or --volumes is given. A deleted instance ends, and its service places a new one, because the number of instances
stays the same: use "skerry scale" to reduce it. An orphan, which no service wants, ends for good; volumes and
snapshots that a worker keeps and its site does not take up are deleted from the worker. A volume is deleted with its
contents; no instance may use it. A cluster or worker must be disconnected; deleting it revokes its key. An image is one
of the built-in registry; its content goes with its last tag. An image that services use, or could go back to, is
deleted only with --force ("skerry get images" shows which).

KIND is app, instance, orphan, volume, snapshot, image, cluster, worker, upgrade, namespace, org, user, token, access-token or member.`,
		Example: "  skerry delete app shop\n  skerry delete -f shop.yaml --wait\n  skerry delete app shop --volumes\n" +
			"  skerry delete volume shop/db/0\n  skerry delete volume shop/db/0:old\n  skerry delete instance front-x5b2k\n" +
			"  skerry delete image shop/front:1",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			var keys []skerry.AppKey
			if len(files) > 0 {
				if len(args) > 0 {
					return skerry.Errorf(skerry.CodeInvalid, "NAME and -f exclude each other")
				}
				docs, err := readDocuments(files, cmd.InOrStdin())
				if err == nil {
					docs, err = new(foreign).names(cmd.Context(), docs)
				}
				if err != nil {
					return err
				}
				for _, d := range docs {
					k, err := d.key(a.namespace())
					if err != nil {
						return err
					}
					args = append(args, k.String())
				}
				args = append([]string{"app"}, args...)
			}
			if len(args) == 1 && strings.Contains(args[0], "/") {
				kind, name, _ := strings.Cut(args[0], "/")
				args = []string{kind, name}
			}
			if len(args) < 2 {
				return skerry.Errorf(skerry.CodeInvalid, "the resources to delete are missing").
					WithHint("write `skerry delete app NAME`, or -f FILE")
			}
			res, err := findResource(args[0])
			if err != nil {
				return err
			}
			if volumes && res.singular() != "app" {
				return skerry.Errorf(skerry.CodeInvalid, "--volumes goes with applications")
			}
			if wait && res.singular() != "app" {
				return skerry.Errorf(skerry.CodeInvalid, "--wait goes with applications")
			}
			if force && res.singular() != "image" {
				return skerry.Errorf(skerry.CodeInvalid, "--force goes with images")
			}
			var errs []error
			for _, name := range args[1:] {
				key, gone, err := a.remove(cmd.Context(), client, res, name, volumes, force)
				var problem *skerry.Error
				if missing && errors.As(err, &problem) && problem.Code == skerry.CodeNotFound {
					continue
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				word := "deleted"
				switch kind := res.singular(); kind {
				case "instance", "orphan":
					word = "is being stopped"
					if kind == "orphan" && strings.Contains(name, "/") {
						word = "is being deleted"
					}
				case "app", "volume", "snapshot": // of a worker, which may be away
					word = "is being deleted"
				}
				name = trimKind(name, res.singular())
				if key.Name != "" {
					keys, name = append(keys, key), a.short(key)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s/%s %s\n", res.singular(), name, word)
				a.tellVolumes(cmd.OutOrStdout(), gone)
			}
			if err := joinErrors(cmd, errs); err != nil {
				return err
			}
			if !wait {
				return nil
			}
			for _, k := range keys {
				if err := a.waitDeleted(cmd, client, k, timeout); err != nil {
					return err
				}
			}
			return nil
		})}
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "delete the applications of these manifests")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the applications are gone")
	cmd.Flags().BoolVar(&volumes, "volumes", false, "also delete the local volumes of the applications, with their contents")
	cmd.Flags().BoolVar(&force, "force", false, "delete images that something uses all the same")
	cmd.Flags().BoolVar(&missing, "ignore-not-found", false, "do not fail if a resource does not exist")
	cmd.Flags().Var(spanValue{&timeout}, "timeout", "how long to wait")
	return cmd
}

// remove deletes one thing; of an application it gives the key, and what becomes of its volumes.
func (a *app) remove(ctx context.Context, client *api.Client, res *resource, name string, volumes, force bool) (key skerry.AppKey,
	gone apps.Deleted, err error) {
	if res.singular() != "volume" || strings.Count(name, "/") != 2 { // an application may be called volume
		name = trimKind(name, res.singular())
	}
	switch res.singular() {
	case "app":
		if key, err = skerry.ParseAppKey(name, a.namespace()); err != nil {
			return key, gone, skerry.Errorf(skerry.CodeInvalid, "%w", err)
		}
		gone, err = client.DeleteAppVolumes(ctx, key, volumes)
		return key, gone, err
	case "volume":
		v, err := a.volumeClaim(name)
		if err != nil {
			return key, gone, err
		}
		return key, gone, client.DeleteVolume(ctx, v)
	case "snapshot":
		return key, gone, client.DeleteSnapshot(ctx, spec.SnapshotID(name))
	case "orphan":
		return key, gone, client.DeleteOrphan(ctx, name)
	case "instance":
		id, err := a.instanceID(ctx, client, name)
		if err != nil {
			return key, gone, err
		}
		return key, gone, client.DeleteInstance(ctx, id)
	case "upgrade":
		return key, gone, client.DeleteUpgrade(ctx, name)
	case "cluster":
		return key, gone, client.DeleteCluster(ctx, name)
	case "worker":
		return key, gone, client.DeleteWorker(ctx, name)
	case "namespace":
		return key, gone, client.DeleteNamespace(ctx, name)
	case "org":
		return key, gone, client.DeleteOrg(ctx, name)
	case "image":
		return key, gone, client.DeleteImage(ctx, shortName(name), force)
	case "user":
		return key, gone, client.DeleteUser(ctx, name)
	case "token":
		return key, gone, client.DeleteJoinToken(ctx, name)
	case "access-token":
		return key, gone, client.DeleteAccessToken(ctx, name)
	case "member":
		return key, gone, client.RevokeMember(ctx, name, "")
	}
	hint := "apps, instances, orphans, volumes, snapshots, clusters, workers, namespaces, orgs, images, users, tokens and access tokens can be deleted"
	if res.singular() == "service" {
		hint = "take the service out of the manifest and apply it, or `skerry scale APP/SERVICE 0`"
	}
	return key, gone, skerry.Errorf(skerry.CodeUnsupported, "%s cannot be deleted", res.plural2()).WithHint("%s", hint)
}

// waitDeleted waits until an application is gone.
func (a *app) waitDeleted(cmd *cobra.Command, client *api.Client, key skerry.AppKey, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	there, left := false, 0
	insts := map[skerry.InstanceID]bool{}
	away := map[skerry.InstanceID]bool{} // nobody knows whether they have ended
	err := client.Watch(ctx, api.WatchFilter{Namespace: key.Namespace, App: key.Name, Kinds: []string{api.WatchApp, api.WatchInstance}},
		func(m api.WatchMessage) error {
			switch {
			case m.Type == api.WatchMissed:
				there = false
				clear(insts)
				return nil
			case m.App != nil:
				there = true
			case m.Instance != nil:
				insts[m.Instance.ID] = true
				away[m.Instance.ID] = slices.ContainsFunc(m.Instance.Conditions, func(c skerry.Condition) bool {
					return c.Type == skerry.Reachable && !c.Status
				})
			case m.Type == api.WatchDeleted && m.Key != nil:
				there = false
			case m.Type == api.WatchDeleted:
				delete(insts, m.ID)
			}
			left = len(insts)
			if m.Type == api.WatchSet || there {
				return nil
			}
			return errDone
		})
	switch {
	case errors.Is(err, errDone):
		fmt.Fprintf(cmd.OutOrStdout(), "app/%s is deleted\n", a.short(key))
		for _, id := range slices.Sorted(maps.Keys(away)) {
			if away[id] {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: instance %s was out of touch, and may run until its worker or site is back\n", id)
			}
		}
		return nil
	case interrupted(cmd.Context()):
		return cmd.Context().Err()
	case errors.Is(err, context.DeadlineExceeded):
		return skerry.Errorf(skerry.CodeUnavailable, "application %s is not deleted after %s; %d instances are left", key, span(timeout), left).
			WithHint("a disconnected site deletes its instances when it reconnects; `skerry get instances -o wide` lists the rest")
	}
	return err
}

func (a *app) waitCommand() *cobra.Command {
	timeout := 5 * time.Minute
	what := "ready"
	cmd := &cobra.Command{Use: "wait APP...", Short: "Wait until applications are ready, completed or deleted", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeKind("app"),
		Long: "Wait until applications are ready, completed (jobs) or deleted. An application that does not exist counts as deleted, and the\n" +
			"command says so; the other conditions fail then.\n" + exitHelp,
		Example: "  skerry wait shop --for ready --timeout 1m\n  skerry wait report --for completed",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			keys, err := a.appKeys(args)
			if err != nil {
				return err
			}
			switch what {
			case "ready":
				if err := exist(cmd.Context(), client, keys); err != nil {
					return err
				}
				return a.follow(cmd, client, keys, timeout, "")
			case "deleted":
				for _, k := range keys {
					if _, err := client.App(cmd.Context(), k); skerry.AsError(err) != nil && skerry.AsError(err).Code == skerry.CodeNotFound {
						fmt.Fprintf(cmd.OutOrStdout(), "app/%s does not exist: it was deleted before, or never was\n", a.short(k))
						continue
					}
					if err := a.waitDeleted(cmd, client, k, timeout); err != nil {
						return err
					}
				}
				return nil
			case "completed":
				if err := exist(cmd.Context(), client, keys); err != nil {
					return err
				}
				for _, k := range keys {
					if err := a.waitCompleted(cmd, client, k, timeout); err != nil {
						return err
					}
				}
				return nil
			}
			return skerry.Errorf(skerry.CodeInvalid, "--for %q is not a condition", what).WithHint("use ready, completed or deleted")
		})}
	cmd.Flags().StringVar(&what, "for", what, "ready, completed or deleted")
	cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"ready", "completed", "deleted"},
		cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().Var(spanValue{&timeout}, "timeout", "how long to wait")
	return cmd
}

func exist(ctx context.Context, c *api.Client, keys []skerry.AppKey) error {
	for _, k := range keys {
		if _, err := c.App(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// waitCompleted waits until the last run of every job of an application has ended.
func (a *app) waitCompleted(cmd *cobra.Command, client *api.Client, key skerry.AppKey, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	var failed, why []string
	err := client.Watch(ctx, api.WatchFilter{Namespace: key.Namespace, App: key.Name, Kinds: []string{api.WatchApp}},
		func(msg api.WatchMessage) error {
			if msg.Type == api.WatchDeleted {
				return skerry.Errorf(skerry.CodeNotFound, "application %s was deleted", key)
			}
			if msg.App == nil {
				return nil
			}
			failed, why = nil, nil
			jobs := 0
			for _, s := range msg.App.Services {
				if s.Mode != spec.ModeJob && s.Mode != spec.ModeCron {
					continue
				}
				jobs++
				n := len(s.Runs)
				if n == 0 || s.Pending || s.Runs[n-1].Result == "" {
					return nil
				}
				if r := s.Runs[n-1]; r.Result == "Failed" {
					failed = append(failed, s.Name)
					if r.Reason != "" {
						why = append(why, s.Name+": "+r.Reason)
					}
				}
			}
			if jobs == 0 {
				return skerry.Errorf(skerry.CodeInvalid, "application %s has no jobs, and never completes", key).WithHint("use --for ready")
			}
			return errDone
		})
	switch {
	case errors.Is(err, errDone) && len(why) > 0:
		return skerry.Errorf(skerry.CodeUnavailable, "jobs of %s failed: %s", a.short(key), strings.Join(why, "; ")).
			WithHint("allow more time with job.finishBefore, or run more at once with job.parallelism")
	case errors.Is(err, errDone) && len(failed) > 0:
		return skerry.Errorf(skerry.CodeUnavailable, "jobs of %s failed: %s", a.short(key), strings.Join(failed, ", ")).
			WithHint("`skerry logs %s/%s` shows its output", key.Name, failed[0])
	case errors.Is(err, errDone):
		fmt.Fprintf(cmd.OutOrStdout(), "app/%s has completed\n", a.short(key))
		return nil
	case interrupted(cmd.Context()):
		return cmd.Context().Err()
	case errors.Is(err, context.DeadlineExceeded):
		return skerry.Errorf(skerry.CodeUnavailable, "application %s has not completed after %s", key, span(timeout)).
			WithHint("`skerry describe app %s` shows the progress", key.Name)
	}
	return err
}
