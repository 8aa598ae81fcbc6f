package olddata_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/olddata"
)

// contract compares two descriptions of the API: a client made for the old one works with the new one.
type contract struct {
	old, now map[string]any
	seen     map[[2]string]bool // pairs of references, with the direction, that were compared
	broken   []string
}

func broken(t *testing.T, old, now []byte) []string {
	t.Helper()
	c := contract{seen: map[[2]string]bool{}}
	if err := json.Unmarshal(old, &c.old); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(now, &c.now); err != nil {
		t.Fatal(err)
	}
	paths := object(c.now["paths"])
	for path, item := range object(c.old["paths"]) {
		for method, op := range object(item) {
			if object(op)["responses"] != nil {
				c.operation(strings.ToUpper(method)+" "+path, object(op), object(object(paths[path])[method]))
			}
		}
	}
	slices.Sort(c.broken)
	return slices.Compact(c.broken)
}

func object(v any) map[string]any { m, _ := v.(map[string]any); return m }
func list(v any) []any            { l, _ := v.([]any); return l }

func (c *contract) add(at, why string) { c.broken = append(c.broken, at+": "+why) }

func (c *contract) operation(at string, old, now map[string]any) {
	if now == nil {
		c.add(at, "is gone")
		return
	}
	had, has := parameters(old), parameters(now)
	for name, p := range had {
		q, ok := has[name]
		if !ok {
			c.add(at+" "+name, "is gone")
			continue
		}
		if q["required"] == true && p["required"] != true {
			c.add(at+" "+name, "has become required")
		}
		c.schema(at+" "+name, p["schema"], q["schema"], true)
	}
	for name, q := range has {
		if had[name] == nil && q["required"] == true {
			c.add(at+" "+name, "is new and required")
		}
	}
	body, newer := object(old["requestBody"]), object(now["requestBody"])
	if newer["required"] == true && body["required"] != true {
		c.add(at+" body", "has become required")
	}
	c.content(at+" body", body, newer, true)
	responses := object(now["responses"])
	for status, r := range object(old["responses"]) {
		if responses[status] == nil {
			c.add(at+" "+status, "is gone")
			continue
		}
		was, _ := resolve(c.old, r)
		is, _ := resolve(c.now, responses[status])
		c.content(at+" "+status, was, is, false)
	}
}

func parameters(op map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, p := range list(op["parameters"]) {
		m := object(p)
		in, _ := m["in"].(string)
		name, _ := m["name"].(string)
		out[in+" "+name] = m
	}
	return out
}

func (c *contract) content(at string, old, now map[string]any, request bool) {
	types := object(now["content"])
	for media, m := range object(old["content"]) {
		if types[media] == nil {
			c.add(at+" "+media, "is gone")
			continue
		}
		c.schema(at, object(m)["schema"], object(types[media])["schema"], request)
	}
}

// resolve follows a reference.
func resolve(doc map[string]any, v any) (schema map[string]any, ref string) {
	schema = object(v)
	if ref, _ = schema["$ref"].(string); ref == "" {
		return schema, ""
	}
	at := any(doc)
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = object(at)[part]
	}
	return object(at), ref
}

// schema compares what a client sends (request) or gets. A request may be allowed more than before, and an answer may say more.
func (c *contract) schema(at string, was, is any, request bool) {
	old, from := resolve(c.old, was)
	now, to := resolve(c.now, is)
	if from != "" {
		direction := " answered"
		if request {
			direction = " sent"
		}
		if pair := [2]string{from + direction, to}; c.seen[pair] {
			return
		} else {
			c.seen[pair] = true
		}
		at = strings.TrimPrefix(from, "#/components/schemas/") + direction
	}
	if old == nil || now == nil {
		if old != nil {
			c.add(at, "is gone")
		}
		return
	}
	for _, kind := range kinds(old["type"]) {
		if kind == "null" && !request { // who could take it needs it not
			continue
		}
		if now["type"] != nil && !slices.Contains(kinds(now["type"]), kind) && !(kind == "integer" && request && slices.Contains(kinds(now["type"]), "number")) {
			c.add(at, "is no longer of type "+fmt.Sprint(kind))
		}
	}
	if request {
		allowed := list(now["enum"])
		for _, v := range list(old["enum"]) {
			if allowed != nil && !slices.Contains(allowed, v) {
				c.add(at, "no longer takes a value of its list")
			}
		}
		if allowed != nil && old["enum"] == nil {
			c.add(at, "takes only some values now")
		}
		for _, name := range list(now["required"]) {
			if !slices.Contains(list(old["required"]), name) {
				c.add(at, name.(string)+" has become required")
			}
		}
	} else {
		for _, v := range list(old["enum"]) {
			if now["enum"] != nil && !slices.Contains(list(now["enum"]), v) {
				c.add(at, "a value of its list is gone")
			}
		}
		for _, name := range list(old["required"]) {
			if !slices.Contains(list(now["required"]), name) {
				c.add(at, name.(string)+" may be missing now")
			}
		}
	}
	fields := object(now["properties"])
	for name, p := range object(old["properties"]) {
		if fields[name] == nil {
			c.add(at, name+" is gone")
			continue
		}
		c.schema(at+"."+name, p, fields[name], request)
	}
	for _, part := range []string{"items", "additionalProperties"} {
		if object(old[part]) != nil {
			c.schema(at+"[]", old[part], now[part], request)
		}
	}
	if now["additionalProperties"] == false && old["additionalProperties"] != false && request {
		c.add(at, "takes no further fields now")
	}
	for _, part := range []string{"oneOf", "anyOf", "allOf"} {
		for n, o := range list(old[part]) {
			if choices := list(now[part]); n < len(choices) {
				c.schema(at, o, choices[n], request)
			} else {
				c.add(at, "a choice is gone")
			}
		}
	}
}

// kinds gives a type, or several, as a list.
func kinds(v any) []any {
	if v == nil {
		return nil
	}
	if l, ok := v.([]any); ok {
		return l
	}
	return []any{v}
}

// corrected are what descriptions said wrongly: no client could work by them.
var corrected = []string{
	"GET /openapi.json 200: is no longer of type string",
	"GET /openapi.yaml 200: is no longer of type string",
	"GET /schema/application.json 200: is no longer of type string",
	"GET /v1/instances/{id}/stats 200: is no longer of type string",
	"GET /v2/ 200: is no longer of type string",
	// Parameters for these headers are ignored by whoever reads a document: types of content say what they do.
	"GET /v1/watch header Accept: is gone",
	"POST /v1/apps header Content-Type: is gone",
	"POST /v1/plan header Content-Type: is gone",
	"OverlayFacts answered.key: is no longer of type string",
	"WireGuardFacts answered.key: is no longer of type string",
	// A watch finds nothing missing: it waits for it.
	"GET /v1/watch 404: is gone",
	// The body was any object. The server never took one that is no manifest.
	"POST /v1/apps body: apiVersion has become required",
	"POST /v1/apps body: kind has become required",
	"POST /v1/apps body: metadata has become required",
	"POST /v1/apps body: spec has become required",
	"POST /v1/apps body: takes no further fields now",
	"POST /v1/plan body: apiVersion has become required",
	"POST /v1/plan body: kind has become required",
	"POST /v1/plan body: metadata has become required",
	"POST /v1/plan body: spec has become required",
	"POST /v1/plan body: takes no further fields now",
}

// TestAPIKeepsItsWord: clients of every version work with this program's API.
func TestAPIKeepsItsWord(t *testing.T) {
	now, err := os.ReadFile(filepath.Join(top, "docs", olddata.OpenAPI))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range olddata.Versions(t) {
		for _, why := range broken(t, olddata.File(t, version, olddata.OpenAPI), now) {
			if slices.Contains(corrected, why) {
				continue
			}
			t.Errorf("clients of %s: %s", version, why)
		}
	}
}

// TestContract: each kind of break is found, and additions are none.
func TestContract(t *testing.T) {
	const base = `{"paths":{"/a":{"get":{"parameters":[{"in":"query","name":"q","schema":{"type":"string","enum":["x","y"]}}],
"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}}}},
"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}},"responses":{"204":{}}}}},
"components":{"schemas":{"A":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"size":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/components/schemas/A"}}}}}}}`
	for _, c := range []struct{ from, to, want string }{
		{`"/a"`, `"/a"`, ""},
		{`"/a"`, `"/b"`, "GET /a: is gone|POST /a: is gone"},
		{`"post"`, `"put"`, "POST /a: is gone"},
		{`"name":"q",`, `"name":"r",`, "GET /a query q: is gone"},
		{`"name":"q",`, `"name":"q","required":true,`, "GET /a query q: has become required"},
		{`["x","y"]`, `["x"]`, "GET /a query q: no longer takes a value of its list"},
		{`["x","y"]`, `["x","y","z"]`, ""},
		{`"size":{"type":"integer"},`, ``, "A answered: size is gone|A sent: size is gone"},
		{`"size":{"type":"integer"},`, `"size":{"type":"integer"},"more":{"type":"string"},`, ""},
		{`"size":{"type":"integer"}`, `"size":{"type":"string"}`, "A answered.size: is no longer of type integer|A sent.size: is no longer of type integer"},
		{`["name"]`, `["name","size"]`, "A sent: size has become required"},
		{`["name"]`, `[]`, "A answered: name may be missing now"},
		{`"204"`, `"205"`, "POST /a 204: is gone"},
		{`"requestBody":{`, `"requestBody":{"required":true,`, "POST /a body: has become required"},
	} {
		now := strings.Replace(base, c.from, c.to, 1)
		if got := strings.Join(broken(t, []byte(base), []byte(now)), "|"); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}
