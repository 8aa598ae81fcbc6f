package ctl

import (
	"encoding/json"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/convert"
	"skerry.dev/skerry/spec"
)

// runFlags say what to run, and how.
type runFlags struct {
	image, cpu, memory, runtime string
	env                         []string
	ports                       []int
	replicas                    int
	job, dryRun                 bool
}

func (f *runFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.image, "image", "", "image to run")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable NAME=VALUE; may be repeated")
	fs.IntSliceVarP(&f.ports, "port", "p", nil, "port that it listens on; may be repeated")
	fs.IntVar(&f.replicas, "replicas", 1, "number of instances")
	fs.StringVar(&f.cpu, "cpu", "", "cores that are guaranteed, such as 0.5 or 500m")
	fs.StringVar(&f.memory, "memory", "", "memory that is guaranteed, such as 64Mi")
	fs.StringVar(&f.runtime, "runtime", "", "how it runs (default auto)")
	fs.BoolVar(&f.job, "job", false, "run it once, to its end")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print the manifest; run nothing")
}

// application makes the manifest.
func (f *runFlags) application(name string, command []string) (*spec.Application, error) {
	service := spec.ServiceSpec{Name: name, Runtime: f.runtime}
	service.Image, service.Command = f.image, command
	if f.job {
		service.Mode = spec.ModeJob
	} else if f.replicas != 1 {
		service.Replicas = &f.replicas
	}
	var err error
	if len(f.env) > 0 {
		if service.Env, err = amended(nil, f.env); err != nil {
			return nil, err
		}
	}
	for _, port := range f.ports {
		service.Ports = append(service.Ports, spec.Port{Port: port})
	}
	if f.cpu != "" {
		if service.Resources.CPU, err = skerry.ParseMilliCPU(f.cpu); err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--cpu: %w", err)
		}
	}
	if f.memory != "" {
		if service.Resources.Memory, err = skerry.ParseBytes(f.memory); err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--memory: %w", err)
		}
	}
	return &spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Name: name},
		Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{service}}}, nil
}

func (a *app) runCommand() *cobra.Command {
	var waiting waitFlags
	var flags runFlags
	cmd := &cobra.Command{Use: "run NAME --image IMAGE [-- COMMAND...]", Short: "Run an image as an application with one service",
		Args: cobra.MinimumNArgs(1),
		Long: `Run an image as an application with one service of the same name, or with --job once, to its end. What comes after --
takes the place of the image's command. With --dry-run the manifest is printed, and nothing is run: the beginning of a file for
"skerry apply".
` + exitHelp,
		Example: "  skerry run front --image shop/front:1 --port 8080 --replicas 2\n" +
			"  skerry run migrate --image shop/tools:1 --job -- ./migrate --all\n  skerry run front --image shop/front:1 --dry-run > front.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			app, err := flags.application(args[0], args[1:])
			if err != nil {
				return err
			}
			if flags.dryRun {
				return printNew(cmd, app)
			}
			return a.run(func(cmd *cobra.Command, client *api.Client, _ []string) error {
				return a.create(cmd, client, app, &waiting)
			})(cmd, args)
		}}
	flags.add(cmd.Flags())
	cmd.MarkFlagRequired("image")
	waiting.add(cmd)
	return cmd
}

// create applies the manifest of an application that is not there yet.
func (a *app) create(cmd *cobra.Command, client *api.Client, app *spec.Application, waiting *waitFlags) error {
	key := skerry.AppKey{Namespace: a.namespace(), Name: app.Metadata.Name}
	if _, err := client.App(cmd.Context(), key); err == nil {
		return skerry.Errorf(skerry.CodeConflict, "application %s is there already", key).
			WithHint("change it with `skerry edit %s` or `skerry set`, or delete it first", a.short(key))
	} else if skerry.AsError(err).Code != skerry.CodeNotFound {
		return err
	}
	data, err := json.Marshal(app)
	if err != nil {
		return err
	}
	return a.apply(cmd, client, []document{{file: "the manifest", n: 1, of: 1, yaml: data}}, api.ApplyOptions{}, waiting, "")
}

// printNew prints a manifest that nobody has applied yet, if a server could take it.
func printNew(cmd *cobra.Command, app *spec.Application) error {
	text, err := convert.Text(app)
	if err != nil {
		return err
	}
	doc := document{file: "the manifest", n: 1, of: 1, yaml: text}
	if _, err := doc.manifestOf(spec.DefaultNamespace); err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}
