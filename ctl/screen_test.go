package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// escapes are of one who clears the screen, writes its title, and hides text.
const escapes = "mule\x1b[2J\x1b]0;title\x07 \u009b31m\u202egnp.exe\r\x7f \u2066end"

// spoil puts text with escapes wherever a value has text.
func spoil(v reflect.Value, depth int) {
	if depth > 8 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(escapes)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		spoil(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		spoil(v.Index(0), depth+1)
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf(escapes).Convert(v.Type().Key()), reflect.ValueOf(escapes).Convert(v.Type().Elem()))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Now()))
			return
		}
		for i := range v.NumField() {
			switch v.Type().Field(i).Type {
			case reflect.TypeFor[spec.OnDisconnect](), reflect.TypeFor[spec.IngressTLS](), reflect.TypeFor[spec.PortRef]():
			default:
				spoil(v.Field(i), depth+1)
			}
		}
	}
}

func spoilt[T any]() T {
	var v T
	spoil(reflect.ValueOf(&v).Elem(), 0)
	return v
}

// No command lets a terminal act on what came from a server, whatever format is asked for; what is no terminal gets it as it is.
func TestHostileText(t *testing.T) {
	answer := func(path string) any {
		item := func(v any) any { return map[string]any{"items": []any{v}} }
		switch {
		case path == "/v1/instances":
			return item(spoilt[wire.Instance]())
		case path == "/v1/events":
			return item(spoilt[wire.Event]())
		case path == "/v1/workers":
			return item(spoilt[view.WorkerView]())
		case path == "/v1/apps":
			return item(spoilt[view.AppView]())
		case path == "/v1/plan":
			return spoilt[view.Plan]()
		case strings.HasSuffix(path, "/explain"):
			return spoilt[view.Explanation]()
		case strings.HasPrefix(path, "/v1/workers/"):
			return spoilt[view.WorkerView]()
		case strings.HasPrefix(path, "/v1/apps/default/shop"):
			return spoilt[view.AppView]()
		}
		return nil
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		v := answer(r.URL.Path)
		if v == nil {
			w.WriteHeader(http.StatusConflict)
			v = &skerry.Error{Code: skerry.CodeConflict, Message: escapes, Hint: escapes, Problems: []skerry.Problem{{Path: escapes, Message: escapes, Hint: escapes}}}
		}
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
	}))
	defer srv.Close()
	t.Setenv("SKERRY_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
	if err := os.WriteFile(os.Getenv("SKERRY_CONFIG"), fmt.Appendf(nil, "current: x\ncontexts: [{name: x, server: %q, token: skp1.x}]\n", srv.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(manifest, []byte("apiVersion: skerry/v1\nkind: Application\nmetadata: {name: shop}\nspec: {services: [{name: web, image: \"web:1\"}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(line string, screens bool) (out, errs string) {
		var o, e bytes.Buffer
		s := console.Streams{In: strings.NewReader(""), Out: &o, Err: &e}
		if screens {
			s.Out, s.Err = console.NewScreen(&o), console.NewScreen(&e)
		}
		console.Main(t.Context(), New(Options{}), strings.Fields(line), s)
		return o.String(), e.String()
	}
	for line, shows := range map[string]bool{
		"get instances": true, "get instances -o wide": true, "get instances -o json": true, "get instances -o yaml": true, "get instances -o name": true,
		"get events": true, "get workers -o wide": true, "get devices -o wide": true, "get apps": true,
		"describe instance i": true, "describe worker w": true, "describe app shop": true,
		"explain i": true, "plan -f " + manifest: true, "apply -f " + manifest: true, "delete instance i": true, "get nonsense": false,
	} {
		out, errs := run(line, true)
		for _, text := range []string{out, errs} {
			for _, r := range text {
				if r != '\n' && r != '\t' && console.Moves(r) || !utf8.ValidString(text) {
					t.Errorf("%s: a terminal acts on %q of\n%q", line, r, text)
					break
				}
			}
		}
		if shows && !strings.Contains(out+errs, "mule") {
			t.Errorf("%s shows nothing of it: %s%s", line, out, errs)
		}
	}
	for _, format := range []string{"json", "yaml"} {
		out, errs := run("get instances -o "+format, false)
		var got struct{ Items []wire.Instance }
		if err := yaml.Unmarshal([]byte(out), &got); format == "json" {
			if err := json.Unmarshal([]byte(out), &got); err != nil || got.Items[0].Reason != escapes {
				t.Errorf("a program gets %+v, %v, %s", got.Items, err, errs)
			}
		} else if err != nil || got.Items[0].Reason != escapes {
			t.Errorf("a program gets %+v, %v, %s", got.Items, err, errs)
		}
	}
}
