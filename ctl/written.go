package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/convert"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// shortManifest gives the manifest of an application without defaults, fit to be applied again. It says its namespace unless that is
// the default one and in use: an apply takes a manifest that says none for one of the namespace in use.
func shortManifest(v *view.AppView, namespace string) (*spec.Application, error) {
	if v.Manifest == nil {
		return nil, skerry.Errorf(skerry.CodeUnsupported, "the server did not send the manifest of %s", v.Key)
	}
	short := v.Manifest.WithoutDefaults()
	if namespace != spec.DefaultNamespace {
		short.Metadata.Namespace = v.Key.Namespace
	}
	return short, nil
}

// writtenManifest is shortManifest as a person would write it.
func writtenManifest(v *view.AppView, namespace string) ([]byte, error) {
	short, err := shortManifest(v, namespace)
	if err != nil {
		return nil, err
	}
	return convert.Text(short)
}

// printManifests prints the manifests of applications, separated as files have them.
func printManifests(w io.Writer, items []item, namespace string) error {
	for n, i := range items {
		v := i.value.(view.AppView)
		text, err := writtenManifest(&v, namespace)
		if err != nil {
			return err
		}
		if n > 0 {
			fmt.Fprintln(w, "---")
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// manifestOf reads the manifest of a document, with its defaults.
func (d *document) manifestOf(namespace string) (*spec.Application, error) {
	data, err := yaml.YAMLToJSONStrict(d.inNamespace(namespace))
	if err != nil {
		return nil, d.syntax(err)
	}
	app, err := spec.DecodeApplication(data)
	if err == nil {
		app.SetDefaults()
		err = app.Validate()
	}
	if err != nil {
		return nil, d.at(err)
	}
	return app, nil
}

// unwrap takes the manifests out of what `skerry get app -o yaml` or -o json printed, which has them among other things.
func unwrap(docs []document) ([]document, error) {
	var out []document
	for _, doc := range docs {
		if !bytes.Contains(doc.yaml, []byte("manifest")) {
			out = append(out, doc)
			continue
		}
		var shown struct {
			APIVersion string `json:"apiVersion"`
			view.AppView
			Items []view.AppView `json:"items"`
		}
		data, err := yaml.YAMLToJSON(doc.yaml)
		if err != nil || json.Unmarshal(data, &shown) != nil || shown.APIVersion != "" {
			out = append(out, doc)
			continue
		}
		list := shown.Items
		if shown.Manifest != nil {
			list = []view.AppView{shown.AppView}
		}
		found := 0
		for n := range list {
			if list[n].Manifest == nil {
				continue
			}
			text, err := writtenManifest(&list[n], "") // whatever is in use
			if err != nil {
				return nil, doc.at(err)
			}
			found++
			out = append(out, document{file: doc.file, n: found, of: len(list), yaml: text})
		}
		if found == 0 {
			out = append(out, doc)
		}
	}
	return out, nil
}
