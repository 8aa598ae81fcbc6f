package ctl

import (
	"errors"
	"fmt"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// Exit statuses of diff, as those of diff(1).
const (
	exitDiffers = 1
	exitTrouble = 2
)

func (a *app) diffCommand() *cobra.Command {
	var files []string
	var how foreign
	cmd := &cobra.Command{Use: "diff FILE... | diff -f FILE", Short: "Show what an apply would change in the manifests of applications",
		Long: `Show what "skerry apply" would change: the differences between the manifests that the server has and those of the files, both
without defaults. "skerry plan" shows where instances would be placed. A tag whose image has changed is no difference; "skerry
restart --pull" looks tags up again.

Exit status: 0 if there is no difference, 1 if there is one, 2 for an error.`,
		Example: "  skerry diff shop.yaml\n  skerry diff -f compose.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			differs := false
			err := a.run(func(cmd *cobra.Command, client *api.Client, args []string) (err error) {
				differs, err = a.diff(cmd, client, append(files, args...), &how)
				return err
			})(cmd, args)
			if err != nil {
				return &console.Exit{Code: exitTrouble, Err: err}
			}
			if differs {
				return &console.Exit{Code: exitDiffers}
			}
			return nil
		}}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &console.Exit{Code: exitTrouble, Err: console.FlagError(cmd, err)}
	})
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "file, directory or - for standard input; may be repeated")
	how.add(cmd)
	return cmd
}

// diff prints how the manifests of files differ from those of the server.
func (a *app) diff(cmd *cobra.Command, client *api.Client, files []string, how *foreign) (differs bool, err error) {
	docs, err := readDocuments(files, cmd.InOrStdin())
	if err == nil {
		how.options.Namespace = a.namespace()
		docs, err = how.native(cmd, docs)
	}
	if err != nil {
		return false, err
	}
	for _, doc := range docs {
		want, err := doc.manifestOf(a.namespace())
		if err != nil {
			return false, err
		}
		is, err := client.App(cmd.Context(), want.Key())
		var problem *skerry.Error
		var old *view.AppView
		switch {
		case errors.As(err, &problem) && problem.Code == skerry.CodeNotFound:
		case err != nil:
			return false, err
		default:
			old = &is
		}
		text, err := a.difference(old, want, doc.where())
		if err != nil {
			return false, err
		}
		if text != "" {
			differs = true
			fmt.Fprint(cmd.OutOrStdout(), text)
		}
	}
	return differs, nil
}

// difference shows how a manifest differs from the application that there is, if there is one, both without defaults.
func (a *app) difference(is *view.AppView, want *spec.Application, where string) (string, error) {
	var old []byte
	var err error
	if is != nil {
		if old, err = writtenManifest(is, a.namespace()); err != nil {
			return "", err
		}
	}
	fresh, err := writtenManifest(&view.AppView{Key: want.Key(), Manifest: want}, a.namespace())
	if err != nil {
		return "", err
	}
	name := "app/" + a.short(want.Key())
	return udiff.Unified(name+" (server)", name+" ("+where+")", string(old), string(fresh)), nil
}
