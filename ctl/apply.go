package ctl

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/decide/apps"
)

// waitFlags say whether and how long to wait for what was asked.
type waitFlags struct {
	noWait  bool
	wait    bool // the default; there for scripts that want to say it
	timeout time.Duration
}

func (f *waitFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", true, "wait until everything is ready, and show the progress")
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "return as soon as the manifests are accepted")
	f.timeout = 2 * time.Minute
	cmd.Flags().Var(spanValue{&f.timeout}, "timeout", "how long to wait")
}

func (f *waitFlags) waits() bool { return f.wait && !f.noWait }

const exitHelp = `
Exit status: 0 if everything is ready, 2 if the manifests are accepted but an instance could not be placed in time (Skerry
keeps trying), 1 for an error, such as a version that failed and was rolled back, or a job that failed. Of a job that has run
for two seconds it is only known that it has begun: "skerry wait APP --for completed" waits for its end, and exits with 1 if it
failed. Ctrl-C ends the view, not the deployment.`

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var opt api.ApplyOptions
	var waiting waitFlags
	var how foreign
	var output string
	var expect uint64
	dryRun := ""
	cmd := &cobra.Command{Use: "apply FILE... | apply -f FILE", Short: "Create or update applications from manifests",
		Long: `Create or update applications from manifests. FILE is a file, a directory, or - for standard input; a file may hold
several manifests, separated by ---. Files of Compose, Kubernetes, Nomad and Oakestra are converted first (skerry convert).
Services of a Compose file that only say how their image is built are built and pushed (skerry image build).
` + exitHelp,
		Example: "  skerry apply -f shop.yaml\n  skerry apply -f . --no-wait\n  skerry apply -f shop.yaml --register && skerry deploy shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			opt.Expect = skerry.Generation(expect)
			docs, err := readDocuments(append(files, args...), cmd.InOrStdin())
			how.options.Namespace, how.options.Builds = a.namespace(), dryRun == "" || dryRun == "none"
			if err == nil {
				docs, err = how.native(cmd, docs)
			}
			if err != nil {
				return err
			}
			switch dryRun {
			case "", "none":
				if err := a.buildImages(cmd, how.builds); err != nil {
					return err
				}
			case "server":
				opt.DryRun = true
			case "client":
				return a.checkOnly(cmd, docs)
			default:
				return skerry.Errorf(skerry.CodeInvalid, "--dry-run %q", dryRun).WithHint("it is server, client or none")
			}
			return a.run(func(cmd *cobra.Command, c *api.Client, _ []string) error {
				return a.apply(cmd, c, docs, opt, &waiting, output)
			})(cmd, nil)
		}}
	fs := cmd.Flags()
	fs.StringSliceVarP(&files, "file", "f", nil, "file, directory or - for standard input; may be repeated")
	fs.BoolVar(&opt.Register, "register", false, "store only; deploy later with skerry deploy")
	fs.StringVar(&dryRun, "dry-run", "", "check, tell what an apply would do, and change nothing: by the server, or without asking it: client")
	fs.Lookup("dry-run").NoOptDefVal = "server"
	fs.Uint64Var(&expect, "expect-generation", 0, "fail unless the application is at this generation")
	how.add(cmd)
	fs.BoolVar(&how.options.Build, "build", false, "of a Compose file, build and push also images that are named beside their build")
	outputFlag(cmd, &output)
	waiting.add(cmd)
	return cmd
}

// checkOnly says of each manifest whether it is valid, as far as that can be said without a server.
func (a *app) checkOnly(cmd *cobra.Command, docs []document) error {
	var errs []error
	for _, doc := range docs {
		app, err := doc.manifestOf(a.namespace())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "app/%s is valid (the server was not asked)\n", a.short(app.Key()))
	}
	return joinErrors(cmd, errs)
}

// appliedDoc is what became of one document.
type appliedDoc struct {
	apps.Applied
	DryRun bool `json:"dryRun,omitempty"`
}

// apply applies documents one after the other. An error in one does not keep the others back; all are told.
func (a *app) apply(cmd *cobra.Command, client *api.Client, docs []document, opt api.ApplyOptions, waiting *waitFlags,
	output string) error {
	ctx := cmd.Context()
	var results []appliedDoc
	var errs []error
	names := map[skerry.AppKey]string{}
	for _, doc := range docs {
		if k, err := doc.key(a.namespace()); err == nil {
			if first, twice := names[k]; twice {
				errs = append(errs, skerry.Errorf(skerry.CodeInvalid, "%s: application %s is already in %s", doc.where(), k,
					first).WithHint("keep one of them"))
				continue
			}
			names[k] = doc.where()
		}
		res, err := client.Apply(ctx, doc.inNamespace(a.namespace()), opt)
		if interrupted(ctx) {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, doc.at(err))
			continue
		}
		results = append(results, appliedDoc{res, opt.DryRun})
		for _, warning := range res.Warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", res.Key.Name, warning)
		}
		if output == "" || output == formatTable || output == formatWide {
			for _, note := range res.Notes {
				fmt.Fprintf(cmd.OutOrStdout(), "app/%s: %s\n", a.short(res.Key), note)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "app/%s %s\n", a.short(res.Key), verb(res, opt))
		}
	}
	switch output {
	case formatName:
		for _, r := range results {
			fmt.Fprintf(cmd.OutOrStdout(), "app/%s\n", a.short(r.Key))
		}
	default:
		if done, err := printValue(cmd.OutOrStdout(), output, map[string]any{"items": results}); done && err != nil {
			return err
		}
	}
	if err := joinErrors(cmd, errs); err != nil {
		return err
	}
	if opt.Register || opt.DryRun || !waiting.waits() {
		return nil
	}
	var keys []skerry.AppKey
	for _, r := range results {
		keys = append(keys, r.Key)
	}
	return a.follow(cmd, client, keys, waiting.timeout, output)
}

// short leaves the namespace away if it is the one in use.
func (a *app) short(k skerry.AppKey) string {
	if k.Namespace == a.namespace() {
		return k.Name
	}
	return k.String()
}

func verb(r apps.Applied, o api.ApplyOptions) string {
	v := "changed"
	switch {
	case r.Unchanged:
		v = "unchanged"
	case r.Created && o.Register:
		v = "registered"
	case r.Created:
		v = "created"
	}
	if o.DryRun {
		return "would be " + v
	}
	return fmt.Sprintf("%s, generation %d", v, r.Gen)
}

// joinErrors tells of all errors but the last, which it gives.
func joinErrors(cmd *cobra.Command, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	for _, err := range errs[:len(errs)-1] {
		console.PrintError(cmd.ErrOrStderr(), err)
	}
	return errs[len(errs)-1]
}

func (a *app) deployCommand() *cobra.Command {
	var waiting waitFlags
	cmd := &cobra.Command{Use: "deploy APP...", Short: "Deploy registered applications", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeKind("app"),
		Long:              "Deploy applications that were stored with `skerry apply --register`.\n" + exitHelp,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			keys, err := a.appKeys(args)
			if err != nil {
				return err
			}
			for _, k := range keys {
				res, err := c.Deploy(cmd.Context(), k)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "app/%s %s\n", a.short(k),
					map[bool]string{true: "is already deployed", false: "deployed"}[res.Unchanged])
			}
			if !waiting.waits() {
				return nil
			}
			return a.follow(cmd, c, keys, waiting.timeout, "")
		})}
	waiting.add(cmd)
	return cmd
}

// appKeys reads names of applications.
func (a *app) appKeys(args []string) ([]skerry.AppKey, error) {
	var out []skerry.AppKey
	for _, s := range args {
		k, err := skerry.ParseAppKey(trimKind(s, "app"), a.namespace())
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%w", err)
		}
		out = append(out, k)
	}
	return out, nil
}

// notPlaced is how a command ends whose instances found no place in time.
func notPlaced(err error) error { return &console.Exit{Code: console.ExitNotPlaced, Err: err} }

// errDone ends a watch that has seen enough.
var errDone = errors.New("done")
