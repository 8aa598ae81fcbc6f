package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"skerry.dev/skerry"
)

// MaxManifest is the largest manifest accepted, in bytes.
const MaxManifest = 1 << 20

// laterFields are fields that the format will have and this version refuses by name, because a field that is ignored
// is a promise that is broken.
var laterFields = map[string]string{
	"kernel": "a service brings no kernel; the worker has one for its small virtual machines",
}

// otherNames are names under which people look for a field, with the one that it has here.
var otherNames = map[string]string{"cpuPinning": "exclusiveCPUs", "serviceIP": "addresses", "serviceIPs": "addresses",
	"exports": "export", "ingresses": "ingress"}

// saidElsewhere are fields of other descriptors (Oakestra's SLA, among others) for which there is something else here.
var saidElsewhere = map[string]string{
	"namespace":              "a service is in the namespace of its application: metadata.namespace",
	"microservice_namespace": "a service is in the namespace of its application: metadata.namespace",
	"microservice_name":      "write name",
	"application_namespace":  "write metadata.namespace",
	"application_desc":       "write metadata.description",
	"rr_ip":                  "write addresses.roundRobin",
	"rr_ip_v6":               "write addresses.roundRobin, with an address of fd30:5ce7::/96",
	"closest_ip":             "write addresses.closest",
	"closest_ip_v6":          "write addresses.closest, with an address of fd30:5ce7::/96",
	"sla_violation_strategy": "placement.rigidness says how soon a violation leads to another place; with 0 it is only reported",
	"onViolation":            "placement.rigidness says how soon a violation leads to another place; with 0 it is only reported",
	"connectivity":           "write links",
	"constraints":            "write placement, and limits at links",
	"convergence_time":       "write convergenceTime, in placement or at a link",
	"threshold":              "write maxLatency or maxDistance",
	"vcpus":                  "write resources.cpu",
	"vgpus":                  "write resources.gpus",
	"vtpus":                  "write resources.tpus",
	"bandwidth_in":           "write resources.bandwidthIn",
	"bandwidth_out":          "write resources.bandwidthOut",
	"target_microservice_id": "write service, in links",
	"virtualization":         "write runtime, and isolation",
	"addons":                 "an add-on of a site is an application of its own: apply it at the cluster",
}

// DecodeApplication reads a manifest from JSON strictly: unknown fields are problems with a suggestion, and every
// problem found is named with its path. It does not set defaults.
func DecodeApplication(data []byte) (*Application, error) {
	if len(data) > MaxManifest {
		return nil, skerry.Errorf(skerry.CodeTooLarge, "the manifest has %d bytes; at most %d are accepted", len(data), MaxManifest).
			WithHint("put large files into an image instead of config")
	}
	if !utf8.Valid(data) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the manifest is not valid UTF-8").WithHint("save the file as UTF-8")
	}
	var app Application
	if problems := DecodeStrict(data, &app); len(problems) > 0 {
		return nil, invalid("the manifest is not valid", problems)
	}
	for i := range app.Spec.Services {
		withoutServers(&app.Spec.Services[i]) // an application that was printed has them
	}
	return &app, nil
}

func invalid(msg string, problems []skerry.Problem) *skerry.Error {
	return &skerry.Error{Code: skerry.CodeInvalid, Message: msg, Problems: problems,
		Hint: "the manifest reference lists every field; `skerry explain --schema` prints the JSON Schema"}
}

// DecodeStrict fills into, a pointer to a struct, from JSON. Unlike encoding/json it matches names exactly, refuses
// unknown fields with a suggestion, and collects every problem instead of the first.
func DecodeStrict(data []byte, into any) []skerry.Problem {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return []skerry.Problem{{Path: "", Message: "not valid JSON: " + err.Error()}}
	}
	if dec.More() {
		return []skerry.Problem{{Path: "", Message: "there is more than one document",
			Hint: "apply them one by one, or separate YAML documents with ---"}}
	}
	d := decoder{}
	d.value("", raw, reflect.ValueOf(into).Elem(), 0)
	return d.problems
}

// addrType and prefixType are the types of addresses and networks, which are written as text.
var (
	addrType   = reflect.TypeFor[netip.Addr]()
	prefixType = reflect.TypeFor[netip.Prefix]()
)

type decoder struct{ problems []skerry.Problem }

func (d *decoder) add(path, hint, format string, args ...any) {
	if len(d.problems) < 50 {
		d.problems = append(d.problems, skerry.Problem{Path: strings.TrimPrefix(path, "."), Message: fmt.Sprintf(format, args...), Hint: hint})
	}
}

// unmarshaler is what types implement that read themselves.
var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// strict is what types implement that take less from people than from programs.
type strict interface{ UnmarshalStrict([]byte) error }

func (d *decoder) value(path string, raw json.RawMessage, into reflect.Value, depth int) {
	if depth > 32 {
		d.add(path, "", "nested too deeply")
		return
	}
	if string(raw) == "null" {
		return
	}
	if s, ok := into.Addr().Interface().(strict); ok {
		if err := s.UnmarshalStrict(raw); err != nil {
			d.add(path, "", "%s", err)
		}
		return
	}
	if into.Addr().Type().Implements(unmarshaler) {
		if err := into.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(raw); err != nil {
			d.add(path, "", "%s", err)
		}
		return
	}
	if into.Type() == addrType {
		var s string
		ip, err := netip.Addr{}, json.Unmarshal(raw, &s)
		if err == nil && s != "" {
			ip, err = netip.ParseAddr(s)
		}
		if err != nil {
			d.add(path, "", "must be an IP address, not %s", kindOf(raw))
		}
		into.Set(reflect.ValueOf(ip))
		return
	}
	if into.Type() == prefixType {
		var s string
		p, err := netip.Prefix{}, json.Unmarshal(raw, &s)
		if err == nil {
			p, err = netip.ParsePrefix(s)
		}
		if err != nil {
			d.add(path, "write an address and the length of its prefix, as 203.0.113.0/24", "must be a network, not %s", kindOf(raw))
		}
		into.Set(reflect.ValueOf(p))
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, raw, into.Elem(), depth+1)
	case reflect.Struct:
		d.object(path, raw, into, depth)
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			d.add(path, "write a list, each item on its own line beginning with -", "must be a list, not %s", kindOf(raw))
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
		for i, item := range list {
			d.value(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i), depth+1)
		}
	case reflect.Map:
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil {
			d.add(path, "", "must be a mapping of names to values, not %s", kindOf(raw))
			return
		}
		into.Set(reflect.MakeMapWithSize(into.Type(), len(m)))
		for _, k := range sortedKeys(m) {
			e := reflect.New(into.Type().Elem()).Elem()
			d.value(path+"."+k, m[k], e, depth+1)
			into.SetMapIndex(reflect.ValueOf(k).Convert(into.Type().Key()), e)
		}
	default:
		if err := json.Unmarshal(raw, into.Addr().Interface()); err != nil {
			hint := ""
			if into.Kind() == reflect.String {
				hint = "put the value in quotes"
			}
			d.add(path, hint, "must be %s, not %s", kindName(into.Kind()), kindOf(raw))
		}
	}
}

func (d *decoder) object(path string, raw json.RawMessage, value reflect.Value, depth int) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		d.add(path, "", "must be a mapping, not %s", kindOf(raw))
		return
	}
	fields := map[string]reflect.Value{}
	collectFields(value, fields)
	for _, k := range sortedKeys(m) {
		f, ok := fields[k]
		if !ok {
			if why, later := laterFields[k]; later {
				d.add(path+"."+k, "", "is not supported by this version: %s", why)
				continue
			}
			hint := suggest(k, sortedKeys(fields))
			if name := otherNames[k]; fields[name].IsValid() {
				hint = fmt.Sprintf("did you mean %q?", name)
			} else if text := saidElsewhere[k]; text != "" {
				hint = text
			}
			d.add(path+"."+k, hint, "unknown field")
			continue
		}
		d.value(path+"."+k, m[k], f, depth+1)
	}
}

// collectFields lists the settable fields of a struct by their JSON name, embedded structs included.
func collectFields(v reflect.Value, out map[string]reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			collectFields(v.Field(i), out)
			continue
		}
		if name := jsonName(f); name != "" {
			out[name] = v.Field(i)
		}
	}
}

// jsonName gives a field's JSON name, or "" for one that is not part of the format.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "a mapping"
	case '[':
		return "a list"
	case '"':
		if len(raw) > 40 {
			return "a text"
		}
		return "the text " + string(raw)
	case 't', 'f':
		return string(raw)
	}
	return "the number " + string(raw)
}

func kindName(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64, reflect.Float32:
		return "a number"
	}
	return "a whole number"
}

// suggest finds the known name nearest to an unknown one.
func suggest(name string, known []string) string {
	best, dist := "", len(name)/2+1
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return fmt.Sprintf("did you mean %q?", k)
		}
		if len(name) >= 3 && (strings.HasPrefix(k, name) || strings.HasPrefix(name, k) && len(k) >= 3) {
			return fmt.Sprintf("did you mean %q?", k)
		}
		if n := EditDistance(strings.ToLower(name), strings.ToLower(k)); n < dist {
			best, dist = k, n
		}
	}
	if best == "" {
		return "known fields: " + strings.Join(known, ", ")
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// EditDistance is Levenshtein's distance in bytes.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			prev, row[j] = row[j], min(row[j]+1, row[j-1]+1, prev+cost)
		}
	}
	return row[len(b)]
}

// Suggest names the known name that an unknown one was probably meant to be, or lists them.
func Suggest(name string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	known = slices.Clone(known)
	slices.Sort(known)
	return suggest(name, known)
}
