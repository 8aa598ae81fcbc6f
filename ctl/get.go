package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// serverWait bounds questions that a command asks beside its purpose.
const serverWait = 5 * time.Second

// getFlags say what to list.
type getFlags struct {
	output, selector, app string
	pkg                   string
	fetch                 bool
	sortBy                string
	all, watch, noHeaders bool
	showLabels            bool
}

// values tells whether what is asked for is what the API gives, in place of a table.
func (f *getFlags) values() bool {
	return slices.Contains([]string{formatJSON, formatYAML, formatManifest}, f.output) || strings.HasPrefix(f.output, formatJSONPath) ||
		strings.HasPrefix(f.output, formatColumns)
}

func (a *app) getCommand() *cobra.Command {
	var flags getFlags
	var kinds []string
	for _, r := range resources() {
		kinds = append(kinds, r.plural2())
	}
	cmd := &cobra.Command{Use: "get KIND [NAME...]", Short: "List resources, or show some of them", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeObjects,
		Long: "List resources, or show some of them. KIND is one of\n\n  " + strings.Join(kinds, ", ") + `

or a short form: app, svc, inst, i, cl, w, ev, ns. KIND/NAME works too. At a cluster, -o wide also shows the instances'
workers and addresses.

-o manifest prints the manifests of applications without defaults, fit to be edited and applied again; "skerry apply" takes
what -o yaml prints, too. Paths are JSONPath as in kubectl, into what -o json shows of one item.`,
		Example: `  skerry get apps
  skerry get instances -o wide --watch
  skerry get app shop -o manifest > shop.yaml
  skerry get instances --sort-by .restarts -o custom-columns=ID:.id,WORKER:.worker
  skerry get app shop -o jsonpath='{.services[*].image}'
  skerry get workers --cluster harbour
  skerry get instances -A --package 'openssl@<3.0.15'`,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error { return a.get(cmd, c, &flags, args) })}
	outputFlag(cmd, &flags.output)
	fs := cmd.Flags()
	fs.BoolVarP(&flags.all, "all-namespaces", "A", false, "in all namespaces")
	fs.StringVarP(&flags.selector, "selector", "l", "", "only those with these labels, such as a=b,c=d")
	fs.StringVar(&flags.app, "app", "", "only of this application")
	fs.BoolVarP(&flags.watch, "watch", "w", false, "keep running and show changes")
	fs.BoolVar(&flags.noHeaders, "no-headers", false, "omit the heading")
	fs.StringVar(&flags.sortBy, "sort-by", "", "order of the list: a path such as .restarts")
	fs.BoolVar(&flags.showLabels, "show-labels", false, "show the labels of applications, clusters or workers")
	fs.StringVar(&flags.pkg, "package", "", "only instances whose images contain this package by their SBOMs, such as openssl,\nopenssl@3.0.14 or 'openssl@>=3.0,<3.0.15'")
	a.clusterFlag(cmd)
	fs.BoolVar(&flags.fetch, "fetch-sboms", false, "with --package, ask the images' registries for SBOMs that are not stored")
	return cmd
}

func (a *app) get(cmd *cobra.Command, client *api.Client, flags *getFlags, args []string) error {
	kind, names := args[0], args[1:]
	if k, name, ok := strings.Cut(kind, "/"); ok {
		kind, names = k, append([]string{name}, names...)
	}
	if kinds := strings.Split(kind, ","); len(kinds) > 1 {
		if flags.watch || flags.values() {
			return skerry.Errorf(skerry.CodeInvalid, "several kinds cannot be watched or shown as %s at once", flags.output).
				WithHint("ask for one after the other")
		}
		for n, k := range kinds {
			if n > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			if err := a.get(cmd, client, flags, append([]string{k}, names...)); err != nil {
				return err
			}
		}
		return nil
	}
	res, err := findResource(kind)
	if err != nil {
		return err
	}
	if err := a.workersOnly(res); err != nil {
		return err
	}
	if flags.pkg != "" {
		return a.findPackages(cmd, client, res, flags, names)
	}
	noted := map[string]bool{}
	query := listQuery{app: flags.app, all: flags.all, note: func(text string) {
		if !noted[text] { // a watch lists again and again
			noted[text] = true
			fmt.Fprintln(cmd.ErrOrStderr(), text)
		}
	}}
	if res.namespaced && !flags.all {
		query.namespace = a.namespace()
		if res.singular() == "event" && a.space == "" {
			query.namespace = "" // a site's own events are in no namespace
		}
	}
	list := func(ctx context.Context) ([]item, error) {
		query.now = time.Now()
		items, err := res.list(ctx, client, query)
		if err != nil {
			return nil, err
		}
		if items, err = choose(ctx, client, res, items, names, flags); err != nil {
			return nil, err
		}
		return items, sortBy(items, flags.sortBy)
	}
	if flags.watch {
		if flags.values() && flags.output != formatJSON && flags.output != formatYAML {
			return skerry.Errorf(skerry.CodeUnsupported, "changes cannot be shown as %s", flags.output).
				WithHint("with --watch use table, wide, json, yaml or name")
		}
		return watchList(cmd, client, res, query, flags, list)
	}
	items, err := list(cmd.Context())
	if err != nil {
		return err
	}
	if res.singular() == "app" && flags.values() {
		if items, err = withManifests(cmd.Context(), client, items); err != nil {
			return err
		}
		if flags.output == formatManifest {
			return printManifests(cmd.OutOrStdout(), items, a.namespace())
		}
	}
	return printItems(cmd, res, flags, items, len(names) == 1)
}

// withManifests asks for each application, because lists leave the manifests away.
func withManifests(ctx context.Context, c *api.Client, items []item) ([]item, error) {
	for n := range items {
		v, err := c.App(ctx, items[n].value.(view.AppView).Key)
		if err != nil {
			return nil, err
		}
		items[n].value = v
	}
	return items, nil
}

// choose keeps the items of the names and labels given. A name that is not there is an error.
func choose(ctx context.Context, client *api.Client, res *resource, items []item, names []string, flags *getFlags) ([]item, error) {
	if flags.selector != "" || flags.showLabels {
		if res.singular() == "app" {
			for n := range items { // labels are in the manifest
				v, err := client.App(ctx, items[n].value.(view.AppView).Key)
				if err != nil {
					return nil, err
				}
				if v.Manifest != nil {
					items[n].labels = v.Manifest.Metadata.Labels
				}
			}
		} else if res.singular() != "worker" && res.singular() != "cluster" {
			return nil, skerry.Errorf(skerry.CodeUnsupported, "%s have no labels", res.plural()).
				WithHint("-l and --show-labels work with apps, clusters and workers")
		}
	}
	if flags.selector != "" {
		var out []item
		for _, i := range items {
			ok, err := matchLabels(i.labels, flags.selector)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, i)
			}
		}
		items = out
	}
	if len(names) == 0 {
		return items, nil
	}
	var out []item
	var known []string
	for _, i := range items {
		known = append(known, i.name)
	}
	for _, name := range names {
		name = strings.TrimPrefix(name, res.singular()+"/")
		n := slices.IndexFunc(items, func(i item) bool { return i.name == name })
		if n < 0 {
			n = uniquePrefix(known, name)
		}
		if n < 0 {
			hint := "`skerry get " + res.plural2() + "` lists them"
			if s := spec.Suggest(name, known); strings.HasPrefix(s, "did you mean") {
				hint = s
			}
			return nil, skerry.Errorf(skerry.CodeNotFound, "there is no %s %q", res.singular(), name).WithHint("%s", hint)
		}
		out = append(out, items[n])
	}
	return out, nil
}

// uniquePrefix finds the only name that begins with s and is long enough to be meant; -1 if there is none or several.
func uniquePrefix(names []string, s string) int {
	found := -1
	for n, x := range names {
		if len(s) >= 4 && strings.HasPrefix(x, s) {
			if found >= 0 {
				return -1
			}
			found = n
		}
	}
	return found
}

func tableOf(r *resource, flags *getFlags, items []item) *table {
	t := &table{head: r.head, wide: r.wide}
	if flags.showLabels {
		t.head = append(slices.Clone(r.head), "LABELS")
	}
	for _, i := range items {
		cells := i.cells
		if flags.showLabels {
			cells = append(slices.Clone(cells), pairsText(i.labels, ","))
		}
		t.add(r.singular()+"/"+i.name, cells, i.wide...)
	}
	return t
}

func printItems(cmd *cobra.Command, res *resource, flags *getFlags, items []item, single bool) error {
	values := make([]any, len(items))
	for n := range items {
		values[n] = items[n].value
	}
	if done, err := printColumns(cmd.OutOrStdout(), flags.output, values, !flags.noHeaders); done || err != nil {
		return err
	}
	if single && len(values) == 1 {
		if done, err := printValue(cmd.OutOrStdout(), flags.output, values[0]); done {
			return err
		}
	}
	shown := tableOf(res, flags, items)
	if flags.noHeaders && (flags.output == "" || flags.output == formatTable || flags.output == formatWide) && len(items) > 0 {
		shown.print(cmd.OutOrStdout(), flags.output == formatWide, false)
		return nil
	}
	return printList(cmd, flags.output, values, shown)
}

// watchEvery is how often things are asked for that the server does not tell of.
const watchEvery = 2 * time.Second

// watchList shows a list, and then each line that changed. It ends without an error when the user ends it.
func watchList(cmd *cobra.Command, client *api.Client, res *resource, query listQuery, flags *getFlags,
	list func(context.Context) ([]item, error)) error {
	ctx := cmd.Context()
	changed := make(chan struct{}, 1)
	watchDone := make(chan error, 1)
	wctx, stop := context.WithCancel(ctx)
	defer stop()
	if res.watch {
		go func() {
			watchDone <- client.Watch(wctx, api.WatchFilter{Namespace: query.namespace, App: query.app}, func(m api.WatchMessage) error {
				select {
				case changed <- struct{}{}:
				default:
				}
				return nil
			})
		}()
		defer func() { stop(); <-watchDone }()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	told := shown{last: map[string]string{}}
	for first := true; ; first = false {
		items, err := list(ctx)
		if interrupted(ctx) {
			return nil
		}
		var problem *skerry.Error
		if err != nil && !(errors.As(err, &problem) && problem.Code == skerry.CodeNotFound && !first) {
			return err
		}
		if err := printChanged(cmd, res, flags, items, &told); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			// What comes together is shown together.
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return nil
			}
		case <-tick.C:
		case err := <-watchDone:
			watchDone <- nil
			if interrupted(ctx) {
				return nil
			}
			return err
		}
	}
}

// shown is what a watch has printed.
type shown struct {
	last   map[string]string // what each item looked like
	widths []int             // of the columns
}

// printChanged prints the items that look different from last time.
func printChanged(cmd *cobra.Command, res *resource, flags *getFlags, items []item, told *shown) error {
	last := told.last
	var news []item
	seen := map[string]bool{}
	for _, i := range items {
		seen[i.name] = true
		cells := withoutAge(res, i.cells)
		if flags.output != "" && flags.output != formatTable { // the others show more than a narrow table
			cells = slices.Concat(cells, i.wide)
		}
		key := strings.Join(cells, "\t")
		if last[i.name] != key {
			last[i.name] = key
			news = append(news, i)
		}
	}
	for name := range last {
		if !seen[name] {
			delete(last, name)
			if flags.output == "" || flags.output == formatTable || flags.output == formatWide {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s %s is deleted\n", res.singular(), name)
			}
		}
	}
	switch flags.output {
	case formatJSON, formatYAML:
		for _, i := range news {
			if _, err := printValue(cmd.OutOrStdout(), flags.output, i.value); err != nil {
				return err
			}
		}
	case formatName:
		for _, i := range news {
			fmt.Fprintln(cmd.OutOrStdout(), res.singular()+"/"+i.name)
		}
	default:
		if len(news) > 0 {
			told.widths = tableOf(res, flags, news).printBelow(cmd.OutOrStdout(), flags.output == formatWide,
				told.widths == nil && !flags.noHeaders, told.widths)
		}
	}
	return nil
}

// withoutAge leaves away what changes by itself.
func withoutAge(r *resource, cells []string) []string {
	var out []string
	for n, c := range cells {
		if h := r.head[n]; h != "AGE" && h != "SINCE" && h != "EXPIRES" && h != "CERTIFICATE" && h != "HEARD" {
			out = append(out, c)
		}
	}
	return out
}

func (a *app) eventsCommand() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{Use: "events [APP]", Short: "Show events", Args: cobra.MaximumNArgs(1),
		Example: "  skerry events shop\n  skerry events -w",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if len(args) == 1 {
				k, err := skerry.ParseAppKey(args[0], a.namespace())
				if err != nil {
					return skerry.Errorf(skerry.CodeInvalid, "%w", err)
				}
				f.app, a.space = k.Name, k.Namespace
			}
			return a.get(cmd, c, &f, []string{"events"})
		})}
	outputFlag(cmd, &f.output)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "keep running and show new events")
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "in all namespaces")
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "omit the heading")
	return cmd
}
