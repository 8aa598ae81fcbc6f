package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

func (a *app) setCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "set", Short: "Change the image, environment or resources of a service, and apply that"}
	cmd.AddCommand(a.setImage(), a.setEnv(), a.setResources())
	return cmd
}

// changeApp applies the manifest of an application with a change; it fails if somebody else changed it meanwhile.
func (a *app) changeApp(cmd *cobra.Command, client *api.Client, key skerry.AppKey, waiting *waitFlags,
	change func(*spec.Application) error) error {
	shown, err := client.App(cmd.Context(), key)
	if err != nil {
		return err
	}
	manifest, err := shortManifest(&shown, a.namespace())
	if err != nil {
		return err
	}
	if err := change(manifest); err != nil {
		return err
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	doc := document{file: "app/" + a.short(key), n: 1, of: 1, yaml: data}
	return a.apply(cmd, client, []document{doc}, api.ApplyOptions{Expect: shown.Gen}, waiting, "")
}

// changeService is changeApp for one service, or one of its containers.
func (a *app) changeService(cmd *cobra.Command, client *api.Client, name, container string, waiting *waitFlags,
	change func(*spec.ServiceSpec, *spec.Container) error) error {
	key, err := a.serviceKey(name)
	if err != nil {
		return err
	}
	return a.changeApp(cmd, client, key.App, waiting, func(app *spec.Application) error {
		service := app.Spec.Service(key.Service)
		if service == nil {
			var known []string
			for i := range app.Spec.Services {
				known = append(known, app.Spec.Services[i].Name)
			}
			return skerry.Errorf(skerry.CodeNotFound, "application %s has no service %q", key.App, key.Service).
				WithHint("%s", spec.Suggest(key.Service, known))
		}
		if container == "" {
			return change(service, &service.Container)
		}
		var known []string
		for _, list := range [][]spec.SideContainer{service.Init, service.Sidecars} {
			for i := range list {
				if list[i].Name == container {
					return change(service, &list[i].Container)
				}
				known = append(known, list[i].Name)
			}
		}
		return skerry.Errorf(skerry.CodeNotFound, "service %s has no init or sidecar container %q", name, container).
			WithHint("%s", spec.Suggest(container, known))
	})
}

func containerFlag(cmd *cobra.Command, container *string) {
	cmd.Flags().StringVarP(container, "container", "c", "", "init or sidecar container, instead of the main one")
}

func (a *app) setImage() *cobra.Command {
	var waiting waitFlags
	var container string
	cmd := &cobra.Command{Use: "image APP/SERVICE IMAGE", Short: "Change the image of a service", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeKind("service"), Long: "Change the image of a service, which is updated to it.\n" + exitHelp,
		Example: "  skerry set image shop/front shop/front:2",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			name, image, both := strings.Cut(args[0], "=") // as kubectl writes it
			if len(args) == 2 && !both {
				image = args[1]
			} else if len(args) == 2 || !both {
				return skerry.Errorf(skerry.CodeInvalid, "write a service and an image").
					WithHint("such as `skerry set image shop/front shop/front:2`")
			}
			return a.changeService(cmd, client, name, container, &waiting, func(_ *spec.ServiceSpec, c *spec.Container) error {
				c.Image = image
				return nil
			})
		})}
	containerFlag(cmd, &container)
	waiting.add(cmd)
	return cmd
}

func (a *app) setEnv() *cobra.Command {
	var waiting waitFlags
	var container string
	cmd := &cobra.Command{Use: "env APP/SERVICE NAME=VALUE|NAME-...", Short: "Set or remove environment variables of a service",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeKind("service"),
		Long:    "Set environment variables of a service, or with NAME- remove them. The service is updated.\n" + exitHelp,
		Example: "  skerry set env shop/front LOG_LEVEL=debug CACHE-",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			return a.changeService(cmd, client, args[0], container, &waiting, func(_ *spec.ServiceSpec, c *spec.Container) error {
				env, err := amended(c.Env, args[1:])
				if err == nil {
					c.Env = env
				}
				return err
			})
		})}
	containerFlag(cmd, &container)
	waiting.add(cmd)
	return cmd
}

// amended gives a map with NAME=VALUE set, and without NAME of NAME-.
func amended(old map[string]string, changes []string) (map[string]string, error) {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]string{}
	}
	for _, change := range changes {
		if name, value, ok := strings.Cut(change, "="); ok && name != "" {
			out[name] = value
		} else if name, ok := strings.CutSuffix(change, "-"); ok && name != "" {
			if _, there := out[name]; !there {
				return nil, skerry.Errorf(skerry.CodeNotFound, "there is no %s to remove", name).
					WithHint("there are: %s", orDash(strings.Join(slices.Sorted(maps.Keys(old)), ", ")))
			}
			delete(out, name)
		} else {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%q is neither NAME=VALUE nor NAME-", change)
		}
	}
	return out, nil
}

func (a *app) setResources() *cobra.Command {
	var waiting waitFlags
	cmd := &cobra.Command{Use: "resources APP/SERVICE", Short: "Change the resources of a service", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("service"),
		Long: "Change the resources of the instances of a service. Limits of cpu and memory change while they run, if their runtime\n" +
			"can; else the service is updated.\n" + exitHelp,
		Example: "  skerry set resources shop/front --cpu 500m --memory 128Mi --memory-limit 256Mi",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			return a.changeService(cmd, client, args[0], "", &waiting, func(service *spec.ServiceSpec, _ *spec.Container) error {
				res, changed := &service.Resources, false
				cores := map[string]*skerry.MilliCPU{"cpu": &res.CPU, "cpu-limit": &res.Limits.CPU}
				amounts := map[string]*skerry.Bytes{"memory": &res.Memory, "storage": &res.Storage, "memory-limit": &res.Limits.Memory}
				var failed error
				cmd.Flags().Visit(func(flag *pflag.Flag) {
					var err error
					if into := cores[flag.Name]; into != nil {
						*into, err = skerry.ParseMilliCPU(flag.Value.String())
						changed = true
					} else if into := amounts[flag.Name]; into != nil {
						*into, err = skerry.ParseBytes(flag.Value.String())
						changed = true
					}
					if err != nil {
						failed = skerry.Errorf(skerry.CodeInvalid, "--%s: %w", flag.Name, err)
					}
				})
				if failed != nil {
					return failed
				}
				if !changed {
					return skerry.Errorf(skerry.CodeInvalid, "no resource is given").WithHint("such as --memory 128Mi")
				}
				return nil
			})
		})}
	fs := cmd.Flags()
	fs.String("cpu", "", "cores that are guaranteed, such as 0.5 or 500m")
	fs.String("memory", "", "memory that is guaranteed, such as 64Mi")
	fs.String("storage", "", "local storage, such as 1Gi")
	fs.String("cpu-limit", "", "cores that may be used while others leave them idle")
	fs.String("memory-limit", "", "memory that may be used while others leave it idle")
	waiting.add(cmd)
	return cmd
}

func (a *app) labelCommand() *cobra.Command {
	var waiting waitFlags
	cmd := &cobra.Command{Use: "label APP[/SERVICE] NAME=VALUE|NAME-... | label cluster CLUSTER NAME=VALUE|NAME-...",
		Short: "Set or remove labels of an application or a service, or at the root of a cluster",
		Args:  cobra.MinimumNArgs(2), ValidArgsFunction: a.completeKind("app"),
		Long: `Set labels of an application or a service, or with NAME- remove them. Those of an application change nothing that runs;
those of a service are part of its version, so that it is updated. At the root, clusters have labels for placement.clusterLabels
and "get clusters -l"; the cluster itself does not learn of them. When they change, copies of perWorker services start and end
at the cluster; other instances stay where they run. Labels of a worker are given when it starts (skerry worker --label).
` + exitHelp,
		Example: "  skerry label shop team=web\n  skerry label shop/front tier=edge old-\n  skerry label cluster harbour region=west",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			if len(args) > 2 { // as kubectl writes it: label app shop a=b
				if res, err := findResource(args[0]); err == nil && !strings.ContainsAny(args[1], "=") && !strings.HasSuffix(args[1], "-") {
					if res.singular() == "cluster" {
						return labelCluster(cmd, client, trimKind(args[1], "cluster"), args[2:])
					}
					if res.singular() != "app" && res.singular() != "service" {
						return skerry.Errorf(skerry.CodeUnsupported, "%s have no labels that could be changed here", res.plural2()).
							WithHint("labels of a worker are given when it starts: skerry worker --label NAME=VALUE")
					}
					args = args[1:]
				}
			}
			if name := trimKind(args[0], "cluster"); name != args[0] {
				return labelCluster(cmd, client, name, args[1:])
			}
			if strings.Contains(trimKind(args[0], "app"), "/") {
				return a.changeService(cmd, client, args[0], "", &waiting, func(s *spec.ServiceSpec, _ *spec.Container) (err error) {
					s.Labels, err = amended(s.Labels, args[1:])
					return err
				})
			}
			keys, err := a.appKeys(args[:1])
			if err != nil {
				return err
			}
			return a.changeApp(cmd, client, keys[0], &waiting, func(app *spec.Application) (err error) {
				app.Metadata.Labels, err = amended(app.Metadata.Labels, args[1:])
				return err
			})
		})}
	waiting.add(cmd)
	return cmd
}

// labelCluster changes the labels of a cluster.
func labelCluster(cmd *cobra.Command, client *api.Client, name string, changes []string) error {
	change := view.ClusterLabels{Set: map[string]string{}}
	for _, text := range changes {
		if key, value, ok := strings.Cut(text, "="); ok && key != "" {
			change.Set[key] = value
		} else if key, ok := strings.CutSuffix(text, "-"); ok && key != "" {
			change.Remove = append(change.Remove, key)
		} else {
			return skerry.Errorf(skerry.CodeInvalid, "%q is neither NAME=VALUE nor NAME-", text)
		}
	}
	if err := client.LabelCluster(cmd.Context(), name, change); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "cluster/%s is labelled\n", clean(name))
	return nil
}
