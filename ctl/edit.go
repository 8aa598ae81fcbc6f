package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
)

func (a *app) editCommand() *cobra.Command {
	var waiting waitFlags
	cmd := &cobra.Command{Use: "edit APP", Short: "Edit the manifest of an application, and apply it", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeKind("app"),
		Long: `Edit the manifest of an application in an editor ($VISUAL, $EDITOR, or vi), and apply what was saved. A manifest that is
refused is shown again with the reasons above it; saved unchanged, it ends the command and stays as a file. Nothing is applied if the
application was changed meanwhile.
` + exitHelp,
		Example: "  skerry edit shop\n  EDITOR=nano skerry edit app/shop",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			if len(args) == 2 {
				if res, err := findResource(args[0]); err != nil || res.singular() != "app" {
					return skerry.Errorf(skerry.CodeUnsupported, "only applications can be edited").WithHint("write skerry edit APP")
				}
			}
			keys, err := a.appKeys(args[len(args)-1:])
			if err != nil {
				return err
			}
			return a.edit(cmd, client, keys[0], &waiting)
		})}
	waiting.add(cmd)
	return cmd
}

// edit has the manifest edited until it is accepted, unchanged or given up.
func (a *app) edit(cmd *cobra.Command, client *api.Client, key skerry.AppKey, waiting *waitFlags) error {
	shown, err := client.App(cmd.Context(), key)
	if err != nil {
		return err
	}
	manifest, err := writtenManifest(&shown, a.namespace())
	if err != nil {
		return err
	}
	// A directory of its own: what an editor leaves beside the file goes with it, and is nobody else's to read.
	dir, err := os.MkdirTemp("", "skerry-edit-*")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, key.Name+".yaml")
	doc := document{file: "app/" + a.short(key), n: 1, of: 1, yaml: manifest, line: 1}
	opt := api.ApplyOptions{Expect: shown.Gen}
	var refused error // what was saved last
	for {
		before := doc.yaml
		if err := editFile(cmd, path, before); err != nil && refused == nil {
			os.RemoveAll(dir)
			return err
		} else if err != nil {
			break
		}
		if doc.yaml, err = os.ReadFile(path); err != nil {
			refused = err
			break
		}
		if bytes.Equal(doc.yaml, before) || blank(doc.yaml) {
			break
		}
		if refused = a.tryDocument(cmd, client, &doc, key, opt); refused == nil {
			if refused = a.apply(cmd, client, []document{doc}, opt, &waitFlags{noWait: true}, ""); refused == nil {
				os.RemoveAll(dir)
				if waiting.waits() {
					return a.follow(cmd, client, []skerry.AppKey{key}, waiting.timeout, "")
				}
				return nil
			}
		}
		var problem *skerry.Error
		if !errors.As(refused, &problem) || problem.Code != skerry.CodeInvalid {
			break // nothing that the editor could mend
		}
		doc.yaml = append(refusal(refused), withoutRefusal(doc.yaml)...)
	}
	if refused == nil {
		os.RemoveAll(dir)
		fmt.Fprintf(cmd.OutOrStdout(), "app/%s was not changed\n", a.short(key))
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "what you wrote is in %s\n", path)
	return refused
}

// tryDocument has the server check a document that is to be applied.
func (a *app) tryDocument(cmd *cobra.Command, client *api.Client, doc *document, key skerry.AppKey, opt api.ApplyOptions) error {
	if err := doc.check(); err != nil {
		return err
	}
	if named, err := doc.key(a.namespace()); err == nil && named != key {
		return skerry.Errorf(skerry.CodeInvalid, "%s cannot become %s: an application keeps its name and its namespace", key, named).
			WithHint("`skerry apply` makes another")
	}
	opt.DryRun = true
	if _, err := client.Apply(cmd.Context(), doc.inNamespace(a.namespace()), opt); err != nil {
		return doc.at(err)
	}
	return nil
}

// refusalMark begins the lines that say why a manifest was refused.
const refusalMark = "#! "

func refusal(err error) []byte {
	var text, out bytes.Buffer
	console.PrintError(&text, err)
	for line := range strings.Lines(text.String()) {
		out.WriteString(refusalMark + strings.TrimRight(line, "\n") + "\n")
	}
	return out.Bytes()
}

func withoutRefusal(text []byte) []byte {
	for bytes.HasPrefix(text, []byte(refusalMark)) {
		_, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
	}
	return text
}

// editFile has a text edited in a file.
func editFile(cmd *cobra.Command, path string, text []byte) error {
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	editor := []string{"vi"}
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if words := strings.Fields(os.Getenv(name)); len(words) > 0 {
			editor = words
			break
		}
	}
	run := exec.CommandContext(cmd.Context(), editor[0], append(editor[1:], path)...)
	run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "the editor %s: %w", editor[0], err).WithHint("EDITOR names another; nothing was changed")
	}
	return nil
}
