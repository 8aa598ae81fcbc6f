package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/convert"
)

// foreign says how files of other orchestrators are converted.
type foreign struct {
	options convert.Options
	strict  bool
	all     bool // also the fields that are kept are shown
}

func (how *foreign) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&how.options.Profiles, "profile", nil, "of a Compose file, its services of this profile, too; may be repeated")
	cmd.Flags().BoolVar(&how.strict, "strict", false, "of a file of another orchestrator, refuse what is only approximated, too")
}

func (a *app) convertCommand() *cobra.Command {
	var how foreign
	var report string
	cmd := &cobra.Command{Use: "convert [FILE]", Short: "Convert a Compose file to a manifest", Args: cobra.MaximumNArgs(1),
		Long: `Convert a Compose file, or - for standard input, to a manifest, which is printed. The report on standard error says of each
field what became of it: kept, approximated (how it differs) or refused (why). Nothing is ignored silently. Without FILE it is
compose.yaml or docker-compose.yml in the present directory.

As with docker compose, variables come from the environment and from .env beside the file, and what the file refers to is read:
env_file, extends, include, configs, and small files that are mounted. The content of files goes into the manifest only from
below the directory of the Compose file.

"skerry apply" and "skerry plan" convert such files as well.

Exit status: 1 if a field was refused (the manifest lacks it), or with --strict only approximated.`,
		Example: "  skerry convert > shop.yaml\n  skerry convert docker-compose.yml --name shop --all\n" +
			"  skerry convert compose.yaml --strict --report json > report.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			doc, err := composeFile(name, cmd.InOrStdin())
			if err != nil {
				return err
			}
			result, err := how.convert(cmd.Context(), &doc)
			if result == nil {
				return err
			}
			if report == formatJSON {
				out, e := json.MarshalIndent(result, "", "  ")
				if e != nil {
					return e
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", out)
			} else {
				text, e := result.Manifest()
				if e != nil {
					return e
				}
				cmd.OutOrStdout().Write(text)
				how.tell(cmd.ErrOrStderr(), &doc, result)
			}
			return err
		}}
	how.add(cmd)
	cmd.Flags().StringVar(&how.options.Name, "name", "", "name of the application (default the file's, or that of its directory)")
	cmd.Flags().BoolVar(&how.all, "all", false, "report the fields that are kept, too")
	cmd.Flags().StringVar(&report, "report", "", "json: print the report on standard output in place of the manifest")
	return cmd
}

// composeFile reads a Compose file: the one named, or that of the present directory.
func composeFile(name string, stdin io.Reader) (document, error) {
	names := []string{name}
	if name == "" {
		names = []string{"compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"}
	}
	var first error
	for _, name := range names {
		docs, err := readDocuments([]string{name}, stdin)
		if err != nil {
			if first == nil {
				first = err
			}
			if skerry.AsError(err).Code == skerry.CodeNotFound {
				continue
			}
			return document{}, err
		}
		if len(docs) > 1 {
			err = skerry.Errorf(skerry.CodeInvalid, "%s has %d documents; a Compose file has one", name, len(docs))
		}
		return docs[0], err
	}
	return document{}, first
}

// convert converts a document. With a result, an error says that something of it is refused.
func (how *foreign) convert(ctx context.Context, doc *document) (*convert.Result, error) {
	switch format := convert.Detect(doc.yaml); format {
	case convert.FormatCompose:
	case convert.FormatSkerry:
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s is a manifest of Skerry already", doc.where())
	case convert.FormatKubernetes:
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s is of Kubernetes, which is not converted yet", doc.where())
	default:
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s is no Compose file: it has no services", doc.where())
	}
	options := how.options
	if doc.file != stdinName {
		abs, err := filepath.Abs(doc.file)
		if err != nil {
			return nil, err
		}
		options.Dir = filepath.Dir(abs)
	}
	result, err := convert.Compose(ctx, doc.yaml, options)
	if err != nil {
		return result, doc.at(err)
	}
	refused, differs := result.Count(convert.Refused), result.Count(convert.Approximated)
	if refused > 0 {
		what := counted(refused, "field was refused", "fields were refused")
		return result, skerry.Errorf(skerry.CodeInvalid, "%s: %s", doc.where(), what).
			WithHint("take them out of the file, or convert it (skerry convert) and finish the manifest by hand")
	}
	if how.strict && differs > 0 {
		return result, skerry.Errorf(skerry.CodeInvalid, "%s: %s, and --strict refuses that", doc.where(),
			counted(differs, "field is only approximated", "fields are only approximated"))
	}
	return result, nil
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// tell reports what became of the fields.
func (how *foreign) tell(out io.Writer, doc *document, r *convert.Result) {
	fmt.Fprintf(out, "%s (%s): %d fields kept, %d approximated, %d refused\n", doc.where(), r.Format, r.Count(convert.Kept),
		r.Count(convert.Approximated), r.Count(convert.Refused))
	t := table{head: []string{"  LINE", "FIELD", "BECAME", "HOW"}}
	for _, x := range r.Fields {
		if how.all || x.Verdict != convert.Kept {
			line := "  -"
			if x.Line > 0 {
				line = fmt.Sprintf("  %d", x.Line)
			}
			t.add("", []string{line, clean(x.Path), string(x.Verdict), clean(x.Note)})
		}
	}
	if len(t.rows) > 0 {
		t.print(out, false, true)
	}
}

// names leaves of a document of another orchestrator what says which application it is.
func (how *foreign) names(ctx context.Context, docs []document) error {
	for i := range docs {
		if convert.Detect(docs[i].yaml) != convert.FormatCompose {
			continue
		}
		result, err := how.convert(ctx, &docs[i])
		if result == nil {
			return err
		}
		docs[i].yaml = fmt.Appendf(nil, "metadata: {name: %q}\n", result.App.Metadata.Name)
	}
	return nil
}

// native puts manifests in the place of documents of other orchestrators, and says what became of their fields.
func (how *foreign) native(cmd *cobra.Command, docs []document) error {
	for n := range docs {
		if err := how.nativeOne(cmd, &docs[n]); err != nil {
			return err
		}
	}
	return nil
}

func (how *foreign) nativeOne(cmd *cobra.Command, doc *document) error {
	if convert.Detect(doc.yaml) != convert.FormatCompose {
		return doc.check()
	}
	result, err := how.convert(cmd.Context(), doc)
	if result != nil {
		how.tell(cmd.ErrOrStderr(), doc, result)
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(result.App)
	if err == nil {
		doc.line = 0
		doc.yaml, err = yaml.JSONToYAML(text)
	}
	return err
}
