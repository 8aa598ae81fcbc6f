package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/convert"
)

// foreign says how files of other orchestrators are converted.
type foreign struct {
	options convert.Options
	strict  bool
	all     bool            // also the fields that are kept are shown
	builds  []convert.Build // images that the files that were converted have to be built
}

func (how *foreign) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&how.options.Profiles, "profile", nil, "of a Compose file, its services of this profile, too; may be repeated")
	cmd.Flags().BoolVar(&how.strict, "strict", false, "of a file of another orchestrator, refuse what is only approximated, too")
}

func (a *app) convertCommand() *cobra.Command {
	var how foreign
	var report string
	cmd := &cobra.Command{Use: "convert [FILE...]", Short: "Convert files of Compose, Kubernetes, Nomad or Oakestra to a manifest",
		Long: `Convert files of other orchestrators, directories of them, or - for standard input, to a manifest, which is printed. What they are
is seen from their content: a Compose file, manifests of Kubernetes (also what helm template and kustomize build print), a job of
Nomad, or an SLA of Oakestra. The report on standard error says of each field what became of it: kept, approximated (how it differs)
or refused (why). Nothing is ignored silently. Without FILE it is compose.yaml or docker-compose.yml in the present directory.

All manifests of Kubernetes that are given together become one application: a Service in one file leads to a Deployment in another.
It has the name of their app.kubernetes.io/part-of or instance, else of their namespace, their only workload, or the file.

As with docker compose, variables of a Compose file come from the environment and from .env beside the file, and what the file
refers to is read: env_file, extends, include, configs, and small files that are mounted. The content of files goes into the manifest
only from below the directory of the Compose file.

"skerry apply", "skerry plan" and "skerry delete -f" convert such files as well.

Exit status: 1 if a field was refused (the manifest lacks it), or with --strict only approximated.`,
		Example: "  skerry convert > shop.yaml\n  skerry convert docker-compose.yml --name shop --all\n" +
			"  skerry convert compose.yaml --strict --report json > report.json\n  helm template shop ./chart | skerry convert -",
		RunE: func(cmd *cobra.Command, args []string) error {
			docs, err := foreignFiles(args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			groups := grouped(docs)
			if len(groups) > 1 {
				return skerry.Errorf(skerry.CodeInvalid, "%s and %s are applications of their own", groups[0].where(), groups[1].where()).
					WithHint("convert them one by one")
			}
			how.options.Namespace = a.namespace()
			result, err := how.convert(cmd.Context(), groups[0])
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
				how.tell(cmd.ErrOrStderr(), groups[0], result)
			}
			return err
		}}
	how.add(cmd)
	cmd.Flags().StringVar(&how.options.Name, "name", "", "name of the application (default the file's, or that of its directory)")
	cmd.Flags().BoolVar(&how.all, "all", false, "report the fields that are kept, too")
	cmd.Flags().StringVar(&report, "report", "", "json: print the report on standard output in place of the manifest")
	return cmd
}

// foreignFiles reads the files that are named, or the Compose file of the present directory.
func foreignFiles(names []string, stdin io.Reader) ([]document, error) {
	if len(names) > 0 {
		return readDocuments(names, stdin)
	}
	var first error
	for _, name := range []string{"compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"} {
		docs, err := readDocuments([]string{name}, stdin)
		if err == nil || skerry.AsError(err).Code != skerry.CodeNotFound {
			return docs, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// group is what becomes one application: a document, or all those of Kubernetes.
type group struct {
	format convert.Format
	docs   []document
}

// grouped puts documents of Kubernetes together, in the place of the first.
func grouped(docs []document) (out []*group) {
	var kube *group
	for _, doc := range docs {
		one := &group{format: convert.Detect(doc.yaml), docs: []document{doc}}
		if one.format == convert.FormatKubernetes && kube != nil {
			kube.docs = append(kube.docs, doc)
			continue
		}
		if one.format == convert.FormatKubernetes {
			kube = one
		}
		out = append(out, one)
	}
	return out
}

// several reports whether the documents are in more than one file.
func (g *group) several() bool { return g.docs[len(g.docs)-1].file != g.docs[0].file }

// where names the documents in messages.
func (g *group) where() string {
	first, files := g.docs[0], map[string]bool{}
	for _, doc := range g.docs {
		files[doc.file] = true
	}
	switch {
	case len(files) > 1:
		return fmt.Sprintf("%s and %s", first.file, counted(len(files)-1, "other file", "other files"))
	case len(g.docs) > 1:
		return first.file
	}
	return first.where()
}

// at gives an error the place of the documents.
func (g *group) at(err error) error {
	whole := document{file: g.where(), of: 1}
	return whole.at(err)
}

// convert converts documents. With a result, an error says that something of them is refused.
func (how *foreign) convert(ctx context.Context, from *group) (*convert.Result, error) {
	options, first := how.options, from.docs[0]
	if first.file != stdinName {
		abs, err := filepath.Abs(first.file)
		if err != nil {
			return nil, err
		}
		options.Dir = filepath.Dir(abs)
		if options.Base = strings.TrimSuffix(filepath.Base(abs), filepath.Ext(abs)); from.several() {
			options.Base = filepath.Base(options.Dir)
		}
	}
	var result *convert.Result
	var err error
	switch from.format {
	case convert.FormatCompose:
		result, err = convert.Compose(ctx, first.yaml, options)
	case convert.FormatKubernetes:
		var docs []convert.Document
		for _, doc := range from.docs {
			one := convert.Document{Line: doc.line, Data: doc.yaml}
			if from.several() {
				one.File = doc.file
			}
			docs = append(docs, one)
		}
		result, err = convert.Kubernetes(docs, options)
	case convert.FormatOakestra:
		result, err = convert.Oakestra(first.yaml, options)
	case convert.FormatNomad:
		result, err = convert.Nomad(first.yaml, options)
	case convert.FormatSkerry:
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s is a manifest of Skerry already", from.where())
	default:
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s is no file of Compose, Kubernetes, Nomad or Oakestra", from.where()).
			WithHint("a Compose file has services; an object of Kubernetes has apiVersion and kind")
	}
	if err != nil {
		return result, from.at(err)
	}
	refused, differs := result.Count(convert.Refused), result.Count(convert.Approximated)
	if refused > 0 {
		what := counted(refused, "field was refused", "fields were refused")
		return result, skerry.Errorf(skerry.CodeInvalid, "%s: %s", from.where(), what).
			WithHint("take them out of the file, or convert it (skerry convert) and finish the manifest by hand")
	}
	if how.strict && differs > 0 {
		return result, skerry.Errorf(skerry.CodeInvalid, "%s: %s, and --strict refuses that", from.where(),
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
func (how *foreign) tell(out io.Writer, g *group, r *convert.Result) {
	fmt.Fprintf(out, "%s (%s): %d fields kept, %d approximated, %d refused\n", g.where(), r.Format, r.Count(convert.Kept),
		r.Count(convert.Approximated), r.Count(convert.Refused))
	t := table{head: []string{"  LINE", "FIELD", "BECAME", "HOW"}}
	for _, x := range r.Fields {
		if how.all || x.Verdict != convert.Kept {
			line := "-"
			if x.Line > 0 {
				line = fmt.Sprint(x.Line)
			}
			if x.File != "" {
				line = clean(x.File) + ":" + line
			}
			t.add("", []string{"  " + line, clean(x.Path), string(x.Verdict), clean(x.Note)})
		}
	}
	if len(t.rows) > 0 {
		t.print(out, false, true)
	}
}

// convertible reports whether documents are of another orchestrator.
func (g *group) convertible() bool {
	return g.format != convert.FormatSkerry && g.format != convert.FormatUnknown
}

// names leaves of documents of another orchestrator what says which application they are.
func (how *foreign) names(ctx context.Context, docs []document) ([]document, error) {
	return how.replace(docs, func(g *group) ([]byte, error) {
		result, err := how.convert(ctx, g)
		if result == nil {
			return nil, err
		}
		return fmt.Appendf(nil, "metadata: {name: %q}\n", result.App.Metadata.Name), nil
	})
}

// native puts manifests in the place of documents of other orchestrators, and says what became of their fields.
func (how *foreign) native(cmd *cobra.Command, docs []document) ([]document, error) {
	return how.replace(docs, func(g *group) ([]byte, error) {
		result, err := how.convert(cmd.Context(), g)
		if result != nil {
			how.tell(cmd.ErrOrStderr(), g, result)
		}
		if err != nil {
			return nil, err
		}
		how.builds = append(how.builds, result.Builds...)
		text, err := json.Marshal(result.App)
		if err != nil {
			return nil, err
		}
		return yaml.JSONToYAML(text)
	})
}

// replace puts what is made of documents of other orchestrators in their place.
func (how *foreign) replace(docs []document, with func(*group) ([]byte, error)) ([]document, error) {
	var out []document
	for _, g := range grouped(docs) {
		doc := g.docs[0]
		if g.convertible() {
			text, err := with(g)
			if err != nil {
				return nil, err
			}
			if doc.yaml, doc.line = text, 0; len(g.docs) > 1 {
				doc.file, doc.of = g.where(), 1
			}
		} else if err := doc.check(); err != nil {
			return nil, err
		}
		out = append(out, doc)
	}
	return out, nil
}
