package convert

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry/spec"
)

// TestTextSaysAll: what is written as a person would is read as the same: texts, and what is empty but not the same as none.
func TestTextSaysAll(t *testing.T) {
	app := &spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication}
	seen := map[reflect.Type]bool{}
	var fill func(reflect.Value)
	fill = func(value reflect.Value) {
		for i := range value.NumField() {
			field := value.Field(i)
			if !field.CanSet() {
				continue
			}
			if kind := field.Type(); kind.Kind() == reflect.Pointer && kind.Elem().Kind() == reflect.Struct && !seen[kind] {
				field.Set(reflect.New(kind.Elem()))
			} else if kind.Kind() == reflect.Struct && strings.HasPrefix(kind.PkgPath(), "skerry.dev/") {
				fill(field)
			}
		}
	}
	service, volume := spec.ServiceSpec{Name: "a"}, spec.Volume{Name: "v"}
	fill(reflect.ValueOf(&service).Elem())
	fill(reflect.ValueOf(&volume).Elem())
	service.Volumes = []spec.Volume{volume}
	service.Env = map[string]string{"A": "\t\nx", "B": " \t\nx\n", "C": "yes", "D": "\n a\nb", "E": "a\n\tb", "F": "a\u2028\nb"}
	app.Spec.Services = []spec.ServiceSpec{service}
	text, err := Text(app)
	if err != nil {
		t.Fatalf("write the manifest: %v", err)
	}
	var back spec.Application
	data, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil {
		t.Fatalf("read the manifest: %v\n%s", err, text)
	}
	want, _ := json.Marshal(app)
	if got, _ := json.Marshal(&back); string(got) != string(want) {
		t.Errorf("the manifest became\n%s\nof\n%s", got, want)
	}
}
