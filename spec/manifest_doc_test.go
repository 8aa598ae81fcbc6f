package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// schema1 maps the SLA descriptor of the Oakestra paper (Schema 1) to fields of a manifest.
var schema1 = [][3]string{
	{"memory", "resources.memory", "Reserved on the worker and enforced."},
	{"vcpus", "resources.cpu", "Cores or millicores instead of whole virtual CPUs; reserved and enforced."},
	{"vgpus", "resources.gpus", "Reserved, and handed in where the worker has a class of devices for them."},
	{"vtpus", "resources.tpus", "Reserved, and handed in where the worker has a class of devices for them."},
	{"bandwidth_in", "resources.bandwidthIn", "Bytes per second; reserved and enforced."},
	{"bandwidth_out", "resources.bandwidthOut", "Bytes per second; reserved and enforced."},
	{"latency", "links[].maxLatency, placement.maxLatency", "Round trip to another service, or to users with an address."},
	{"area", "placement.area", "Name of an area that the operator gives workers."},
	{"location", "placement.location", "Degrees, as lat and lon."},
	{"threshold", "links[].maxDistance, placement.maxDistance", "Kilometres, as the counterpart of area and location."},
	{"rigidness", "placement.rigidness, links[].rigidness", "0 to 1."},
	{"convergence_time", "placement.convergenceTime, links[].convergenceTime", "A duration."},
	{"virtualization", "runtime, isolation", "How the code runs and how it is isolated are two separate fields."},
}

// types lists the struct types of a manifest, in the order in which they are met.
func types(t reflect.Type, seen *[]reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == addrType || t == prefixType || slices.Contains(*seen, t) {
		return
	}
	*seen = append(*seen, t)
	for _, f := range manifestFields(t) {
		types(f.Type, seen)
	}
}

func typeText(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[skerry.Bytes]():
		return "bytes"
	case reflect.TypeFor[skerry.MilliCPU]():
		return "cores"
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[PortRef]():
		return "name or number"
	case addrType:
		return "address"
	case prefixType:
		return "network"
	case reflect.TypeFor[OnDisconnect]():
		return "run, or {stopAfter: duration}"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeText(t.Elem())
	case reflect.Slice:
		return "list of " + typeText(t.Elem())
	case reflect.Map:
		return "names to " + typeText(t.Elem())
	case reflect.Struct:
		return fmt.Sprintf("[%s](#%s)", t.Name(), strings.ToLower(t.Name()))
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "number"
	}
	return "whole number"
}

func manifestReference() []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, "# Manifest reference\n\nA manifest is YAML or JSON. This page is generated from the types that parse it (`go test ./spec -run ManifestReference -update`).\n"+
		"Every server offers the JSON Schema at `/schema/application.json`, and so does `skerry explain --schema`.\n\n"+
		"An unknown field is an error with a suggestion, and a repeated key is an error: nothing is ignored.\n\n"+
		"| written as | examples |\n|---|---|\n"+
		"| bytes | `64Mi`, `1.5Gi` (powers of 1024), `2G` (powers of 1000), `1048576` |\n"+
		"| cores | `0.5`, `2`, `250m` (thousandths) |\n"+
		"| duration | `500ms`, `30s`, `5m`, `1h30m` |\n"+
		"| name | lower-case letters, digits and inner hyphens, beginning with a letter, at most 63 |\n\n"+
		"The smallest manifest:\n\n```yaml\napiVersion: skerry/v1\nkind: Application\nmetadata:\n  name: hello\nspec:\n  services:\n  - name: web\n    image: hello:1\n```\n")
	var list []reflect.Type
	types(reflect.TypeFor[Application](), &list)
	for _, t := range list {
		fmt.Fprintf(&b, "\n## %s\n\n| field | type | meaning |\n|---|---|---|\n", t.Name())
		for _, f := range manifestFields(t) {
			doc := f.Tag.Get("doc")
			if e := fieldEnum(f); len(e) > 0 {
				doc += " One of: `" + strings.Join(e, "`, `") + "`."
			}
			if lo, hi := f.Tag.Get("min"), f.Tag.Get("max"); lo != "" && hi != "" {
				doc += fmt.Sprintf(" From %s to %s.", lo, hi)
			} else if lo != "" {
				doc += fmt.Sprintf(" At least %s.", lo)
			}
			name := "`" + jsonName(f) + "`"
			if fieldRequired(f) {
				name += " (needed)"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", name, typeText(f.Type), strings.ReplaceAll(doc, "|", `\|`))
		}
	}
	fmt.Fprint(&b, "\n## Schema 1 of the Oakestra paper\n\nThe fields of the SLA descriptor and their counterparts:\n\n| Schema 1 | here | remark |\n|---|---|---|\n")
	for _, r := range schema1 {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r[0], "`"+strings.ReplaceAll(r[1], ", ", "`, `")+"`", r[2])
	}
	fmt.Fprint(&b, "\n## Fields of later versions\n\nThese are rejected by name, because an ignored field is a broken promise:\n\n| field | why |\n|---|---|\n")
	for _, k := range sortedKeys(laterFields) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", k, laterFields[k])
	}
	return b.Bytes()
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the types give; look at what changed, then run the test with -update", file)
	}
}

func TestManifestReference(t *testing.T) {
	golden(t, "../docs/MANIFEST.md", manifestReference())
	var list []reflect.Type
	types(reflect.TypeFor[Application](), &list)
	for _, typ := range list {
		for _, f := range manifestFields(typ) {
			if f.Tag.Get("doc") == "" {
				t.Errorf("%s.%s has no doc tag", typ.Name(), f.Name)
			}
		}
	}
}

// TestSchema1IsCovered looks each field of the mapping up, and in the doc tags.
func TestSchema1IsCovered(t *testing.T) {
	for _, r := range schema1 {
		for _, path := range strings.Split(r[1], ", ") {
			typ := reflect.TypeFor[ServiceSpec]()
			for _, part := range strings.Split(strings.ReplaceAll(path, "[]", ""), ".") {
				found := false
				for _, f := range manifestFields(typ) {
					if jsonName(f) == part {
						found, typ = true, f.Type
						for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
							typ = typ.Elem()
						}
						break
					}
				}
				if !found {
					t.Fatalf("%s: there is no field %s", r[0], path)
				}
			}
		}
	}
}

// check is a small validator for the keywords that ApplicationSchema uses, written apart from what makes the schema.
func check(root, schema map[string]any, v any, path string) (problems []string) {
	if ref, ok := schema["$ref"].(string); ok {
		return check(root, root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any), v, path)
	}
	kinds := []string{}
	switch k := schema["type"].(type) {
	case string:
		kinds = append(kinds, k)
	case []any:
		for _, x := range k {
			kinds = append(kinds, x.(string))
		}
	}
	kind := map[bool]string{true: "integer", false: "number"}
	is := ""
	switch x := v.(type) {
	case string:
		is = "string"
		if p, ok := schema["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(x) {
			problems = append(problems, path+": pattern")
		}
	case bool:
		is = "boolean"
	case float64:
		is = kind[x == float64(int64(x))]
		if lo, ok := schema["minimum"].(float64); ok && x < lo {
			problems = append(problems, path+": minimum")
		}
		if hi, ok := schema["maximum"].(float64); ok && x > hi {
			problems = append(problems, path+": maximum")
		}
	case []any:
		is = "array"
		for i, item := range x {
			if s, ok := schema["items"].(map[string]any); ok {
				problems = append(problems, check(root, s, item, fmt.Sprintf("%s[%d]", path, i))...)
			}
		}
	case map[string]any:
		is = "object"
		props, _ := schema["properties"].(map[string]any)
		for _, k := range sortedKeys(x) {
			if s, ok := props[k].(map[string]any); ok {
				problems = append(problems, check(root, s, x[k], path+"."+k)...)
			} else if s, ok := schema["additionalProperties"].(map[string]any); ok {
				problems = append(problems, check(root, s, x[k], path+"."+k)...)
			} else {
				problems = append(problems, path+"."+k+": unknown")
			}
		}
		need, _ := schema["required"].([]any)
		for _, k := range need {
			if _, ok := x[k.(string)]; !ok {
				problems = append(problems, path+"."+k.(string)+": needed")
			}
		}
	}
	if !slices.Contains(kinds, is) && !(is == "integer" && slices.Contains(kinds, "number")) {
		problems = append(problems, path+": type "+is)
	}
	if e, ok := schema["enum"].([]any); ok && !slices.Contains(e, v) {
		problems = append(problems, path+": enum")
	}
	return problems
}

// TestApplicationSchema holds manifests against the schema.
func TestApplicationSchema(t *testing.T) {
	golden(t, "testdata/application.schema.json", ApplicationSchema())
	var root map[string]any
	if err := json.Unmarshal(ApplicationSchema(), &root); err != nil {
		t.Fatal(err)
	}
	full := `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"shop","labels":{"a":"b"}},"spec":{"services":[{"name":"web","image":"web:1",
		"replicas":2,"env":{"A":"b"},"resources":{"cpu":0.5,"memory":"64Mi","gpus":1},"ports":[{"port":80,"hostPort":-1,"protocol":"tcp"}],
		"links":[{"service":"db","maxLatency":"20ms"}],"probes":{"readiness":{"http":{"port":80},"interval":"1m30s"}},"terminationGrace":"0s",
		"init":[{"name":"prepare","image":"x","resources":{"cpu":"100m"}}],"placement":{"location":{"lat":48.1,"lon":11.5},"rigidness":0.3}},{"name":"db","image":"db"}]}}`
	app, err := DecodeApplication([]byte(full))
	if err == nil {
		err = app.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	app.SetDefaults()
	withDefaults, err := json.Marshal(app)
	if err != nil {
		t.Fatal(err)
	}
	const head = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"shop"},"spec":{"services":[`
	for text, want := range map[string]string{
		full: "", string(withDefaults): "",
		`{"kind":"Application","metadata":{"name":"a"},"spec":{"services":[]}}`: ".apiVersion: needed",
		head + `{"name":"A B"}]}}`:                         ".spec.services[0].name: pattern",
		head + `{"name":"a","replica":1}]}}`:               ".spec.services[0].replica: unknown",
		head + `{"name":"a","replicas":-1}]}}`:             ".spec.services[0].replicas: minimum",
		head + `{"name":"a","replicas":1.5}]}}`:            ".spec.services[0].replicas: type number",
		head + `{"name":"a","mode":"daemon"}]}}`:           ".spec.services[0].mode: enum",
		head + `{"name":"a","terminationGrace":"soon"}]}}`: ".spec.services[0].terminationGrace: pattern",
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(check(root, root, v, ""), "\n"); got != want {
			t.Errorf("%.120s\n got %q\nwant %q", text, got, want)
		}
	}
}
