package plugin

import (
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
)

// query asks about workers a, b and c.
func query() sched.PluginQuery {
	q := Sample()
	for i, n := range []string{"a", "b", "c"} {
		q.Candidates[i].Name = n
	}
	return q
}

func TestParseDescription(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"kind: wasm\nfile: a.wasm", ""},
		{"kind: exec\nfile: a.sh\ntimeout: 1s\nmemory: 1Gi\nonFailure: reject\nall: true\nenv: {A: b}", ""},
		{"kind: exec\ncommand: [python3, a.py]", ""},
		{"", `kind: "" is no kind of plugin (use wasm or exec)`},
		{"kind: wasm", "file: a module is missing"},
		{"kind: exec", "file: a program is missing"},
		{"kind: exec\nfile: a\ncommand: [b]", "command: there is a file and a command"},
		{"kind: exec\ncommand: ['']", "command[0]: the program is missing"},
		{"kind: wasm\nfile: a\ncommand: [b]", "command: a WebAssembly module has no command"},
		{"kind: wasm\nfile: a\ntimeout: 2s", "timeout: must be more than 0 and at most 1s, not 2s"},
		{"kind: wasm\nfile: a\nmemory: 2Gi", "memory: must be from 1Mi to 1Gi, not 2Gi"},
		{"kind: wasm\nfile: a\nonFailure: ignore", `onFailure: "ignore" is not known`},
		{"kind: wasm\nfile: a\nenv: {'A=B': c}", `env: "A=B" is no variable`},
		{"kind: wasm\nfile: a\nkind: exec", "already"},
		{"kind: wasm\nfile: a\nAll: true", `All: unknown field (did you mean "all"?)`},
		{"[a]", "must be a mapping"},
		{"kind: [", "not valid YAML"},
		{strings.Repeat("#", maxDescription+1), "at most 65536 are accepted"},
	} {
		d, err := ParseDescription([]byte(c.text))
		if c.want == "" {
			if err != nil || d.Timeout == 0 || d.Memory == 0 || d.OnFailure == "" {
				t.Errorf("%q: %+v %v", c.text, d, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestParseReply(t *testing.T) {
	q := query()
	for _, c := range []struct{ text, want string }{
		{`{}`, ""},
		{` {"scores":{"a":0,"b":1},"out":{"a":"x"}} ` + "\n", ""},
		{`{"scores":null}`, ""},
		{``, "it answered nothing"},
		{"\n", "it answered nothing"},
		{`[]`, "must be a mapping"},
		{`{} {}`, "more than one document"},
		{`{"scores":{"a":null}}`, "the score of a is null"},
		{`{"scores":{"a":-0.1}}`, "the score of a is -0.1"},
		{`{"scores":{"a":"1"}}`, "scores.a must be a number"},
		{`{"scores":{"a":NaN}}`, "not valid JSON"},
		{`{"scores":{"a":1e999}}`, "scores.a must be a number"},
		{`{"score":{"a":1}}`, `did you mean "scores"?`},
		{`{"scores":{"z\u001b[31m":1}}`, `scores names "z [31m", which is no candidate`},
		{`{"out":{"":"x"}}`, `out names "", which is no candidate`},
		{`{"scores":` + strings.Repeat("[", 20000), "nonsense"},
		{strings.Repeat(" ", MaxReply) + "{}", "more than 1048576 bytes"},
	} {
		r, err := ParseReply([]byte(c.text), &q)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%.60q: %+v %v\nwant %q", c.text, r, err, c.want)
		case err != nil && (r.Scores != nil || r.Out != nil):
			t.Errorf("%.60q: refused, but %+v", c.text, r)
		}
	}
	r, err := ParseReply([]byte(`{"out":{"a":"`+strings.Repeat("ä", 300)+`","b":"\u0007\u202e"}}`), &q)
	if err != nil || len(r.Out["a"]) > maxReason+3 || r.Out["b"] != "it gives no reason" {
		t.Errorf("%+v %v", r, err)
	}
}

func FuzzParseReply(f *testing.F) {
	q := query()
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseReply(data, &q)
		if err != nil {
			return
		}
		for name, s := range r.Scores {
			if !(s >= 0 && s <= 1) || name != "a" && name != "b" && name != "c" {
				t.Errorf("score of %q: %g", name, s)
			}
		}
		for name, why := range r.Out {
			if why == "" || len(why) > maxReason+len("…") || name != "a" && name != "b" && name != "c" {
				t.Errorf("out %q: %q", name, why)
			}
		}
	})
}

func FuzzParseDescription(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := ParseDescription(data)
		if err != nil {
			return
		}
		if d.timeout() <= 0 || d.timeout() > MaxTimeout || d.Memory < MinMemory || d.Memory > MaxMemory {
			t.Errorf("%+v", d)
		}
		if d.File == "" && len(d.Command) == 0 || d.Kind != KindWasm && d.Kind != KindExec {
			t.Errorf("%+v", d)
		}
	})
}

func TestBreaker(t *testing.T) {
	var b breaker
	now := time.Unix(0, 0)
	rest := func() time.Duration {
		n := time.Duration(0)
		for b.resting(now) != "" {
			now = now.Add(time.Second)
			n += time.Second
		}
		return n
	}
	var got []time.Duration
	for range 14 {
		b.fail(now, "no")
		got = append(got, rest()/time.Second)
	}
	want := []time.Duration{0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300}
	if !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
	b.ok()
	b.fail(now, "no")
	b.fail(now, "no")
	if rest() != 0 {
		t.Error("it rests after two failures")
	}
	b.fail(now, "no")
	for range 10 { // those under way end, too
		b.fail(now, "no")
	}
	if n := rest(); n != time.Second {
		t.Error("it rests for", n)
	}
}

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := &lines{log: slog.New(slog.NewTextHandler(&out, nil)), name: "p"}
		put := func(s string) {
			if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
				t.Error(n, err)
			}
		}
		put("one\ntw")
		put("o\n\nthree")
		l.flush()
		put(strings.Repeat("x", 10_000) + "\n")
		for range 100 {
			put("again\n")
		}
		if n := strings.Count(out.String(), "again"); n != logLines-4 {
			t.Errorf("%d lines", n)
		}
		if !strings.Contains(out.String(), "writes: two\"") || !strings.Contains(out.String(), "writes: three\"") || strings.Count(out.String(), "too much") != 1 ||
			strings.Contains(out.String(), strings.Repeat("x", logLine+1)) {
			t.Error(out.String())
		}
		time.Sleep(2 * logWindow)
		put("later\n")
		if !strings.Contains(out.String(), "later") {
			t.Error(out.String())
		}
	})
}

// The sample is a query as any other.
func TestSample(t *testing.T) {
	q, text := sampleText()
	if strings.ContainsRune(string(text), '\n') {
		t.Error("it is more than a line")
	}
	var back = Sample()
	back.Service = ""
	if p := spec.DecodeStrict(text, &back); len(p) > 0 || !reflect.DeepEqual(q, back) {
		t.Errorf("%+v\n%+v", p, back)
	}
}

// What the manual shows is what is understood.
func TestManual(t *testing.T) {
	doc, err := os.ReadFile("../docs/PLUGINS.md")
	if err != nil {
		t.Fatal(err)
	}
	var q *sched.PluginQuery
	descriptions, replies := 0, 0
	for n, block := range strings.Split(string(doc), "```") {
		kind, text, _ := strings.Cut(block, "\n")
		switch {
		case n%2 == 0:
		case kind == "yaml":
			descriptions++
			if _, err := ParseDescription([]byte(text)); err != nil {
				t.Error(err)
			}
		case kind == "json" && q == nil:
			q = &sched.PluginQuery{}
			if p := spec.DecodeStrict([]byte(text), q); len(p) > 0 || q.Version != sched.PluginVersion {
				t.Errorf("%+v", p)
			}
		case kind == "json":
			replies++
			if _, err := ParseReply([]byte(text), q); err != nil {
				t.Error(err)
			}
		}
	}
	if descriptions != 2 || replies != 1 {
		t.Errorf("%d descriptions, %d replies", descriptions, replies)
	}
}
