package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wasmcode"
)

const fine = `{"scores":{"a":0.1,"b":0.9},"out":{"c":"too far"}}`

// TestMisbehaviour: whatever a plugin does, the answer comes in time, and says why it was skipped.
func TestMisbehaviour(t *testing.T) {
	loop := func(do string) string { return "while read -r q; do " + do + "; done" }
	modules := map[string]struct {
		m    wasmcode.Module
		more string
		want string
	}{
		"hangs":        {wasmcode.Module{Body: wasmcode.Hang}, "timeout: 50ms", "no answer in 50ms"},
		"crashes":      {wasmcode.Module{Body: wasmcode.Crash}, "", "it crashed: wasm error: unreachable"},
		"silent":       {wasmcode.Module{}, "", "it answered nothing"},
		"nonsense":     {says("hello"), "", "nonsense: not valid JSON"},
		"nan":          {says(`{"scores":{"a":NaN}}`), "", "nonsense: not valid JSON"},
		"infinite":     {says(`{"scores":{"a":1e999}}`), "", "nonsense: scores.a must be a number"},
		"range":        {says(`{"scores":{"a":1.5}}`), "", "the score of a is 1.5; a score is a number from 0 to 1"},
		"stranger":     {says(`{"scores":{"z":1}}`), "", `scores names "z", which is no candidate`},
		"memory":       {wasmcode.Module{Body: slices.Concat(wasmcode.Grow, wasmcode.Print), Text: fine}, "", "it crashed"},
		"begins-large": {wasmcode.Module{Pages: 16384, Body: wasmcode.Print, Text: fine}, "", "it does not load"},
		"flood":        {wasmcode.Module{Body: wasmcode.Forever(wasmcode.Print), Text: strings.Repeat("x", 4000)}, "", "it answered more than 1 MiB"},
		"deep":         {wasmcode.Module{Body: wasmcode.Deep}, "", "it crashed: stack overflow"},
		"foreign":      {wasmcode.Module{Body: wasmcode.Print, Text: fine, From: "env"}, "", "it imports fd_write from env"},
		"library":      {wasmcode.Module{Body: wasmcode.Print, Text: fine, Start: "run"}, "", "it has no _start"},
	}
	programs := map[string]struct{ script, more, want string }{
		"x-hangs":    {"read q; sleep 1000", "timeout: 50ms", "no answer in"},
		"x-later":    {loop("echo '" + fine + "'; sleep 1000"), "timeout: 50ms", "no answer in "},
		"x-ends":     {"exit 3", "", "it ended (exit status 3) without an answer"},
		"x-nonsense": {loop("echo hello"), "", "nonsense: not valid JSON"},
		"x-stranger": {loop(`echo '{"out":{"z":"no"}}'`), "", `out names "z", which is no candidate`},
		"x-flood":    {"read q; exec cat /dev/zero", "", "it answered more than 1 MiB"},
		"x-memory":   {`read q; exec perl -e 'push @x, "x" x (1 << 20) while @x < 1024'`, "timeout: 1s\nmemory: 16Mi", "it was ended because it wanted more than its memory (16Mi)"},
		"x-absent":   {"", "", "does not exist"},
	}
	slow, quick := newSite(t), newSite(t) // quick holds those that never answer
	quick.opt.slack = 0
	siteOf := func(more string) *site {
		if strings.Contains(more, "50ms") {
			return quick
		}
		return slow
	}
	for name, c := range modules {
		s := siteOf(c.more)
		s.write(name+".wasm", string(c.m.Encode()))
		if c.more == "" {
			c.more = "timeout: 1s"
		}
		s.write(name+".yaml", "kind: wasm\nfile: "+name+".wasm\n"+c.more)
	}
	for name, c := range programs {
		s := siteOf(c.more)
		if c.more == "" {
			c.more = "timeout: 1s"
		}
		s.write(name+".sh", "#!/bin/sh\n"+c.script+"\n")
		s.write(name+".yaml", "kind: exec\nfile: "+name+".sh\n"+c.more)
	}
	if err := os.Remove(filepath.Join(slow.dir, "x-absent.sh")); err != nil {
		t.Fatal(err)
	}
	h, never := slow.open(), quick.open()
	check := func(h *Host, name, want string) {
		t.Run(name, func(t *testing.T) {
			a := ask(t, h, name)
			if a.Skipped == "" { // the first answer of x-later is good
				a = ask(t, h, name)
			}
			if !strings.Contains(a.Skipped, want) || a.Scores != nil || a.Out != nil {
				t.Errorf("%+v; want %q", a, want)
			}
		})
	}
	hostOf := func(more string) *Host {
		if siteOf(more) == quick {
			return never
		}
		return h
	}
	for name, c := range modules {
		check(hostOf(c.more), name, c.want)
	}
	for name, c := range programs {
		check(hostOf(c.more), name, c.want)
	}
	if a := ask(t, h, "nobody"); a.Skipped != "it is gone" {
		t.Errorf("%+v", a)
	}
}

// TestGood: what a plugin says comes back as it is.
func TestGood(t *testing.T) {
	s := newSite(t)
	s.wasm("module", says(fine), "all: true")
	s.wasm("table", wasmcode.Module{Tables: []byte{1, 0x70, 0, 1}, Body: slices.Concat(wasmcode.GrowTable, wasmcode.Print), Text: fine})
	s.wasm("chatty", wasmcode.Module{Body: slices.Concat(wasmcode.Warn, wasmcode.Print), Text: fine + "\n"})
	s.shell("program", `echo started >&2; while read -r q; do echo '`+fine+`'; done`, "onFailure: reject")
	s.write("command.json", `{"kind":"exec","command":["sh","-c","while read -r q; do echo $REPLY; done"],"env":{"REPLY":"{}"}}`)
	h := s.open()
	for _, n := range []string{"module", "table", "chatty", "program", "program"} {
		a := good(t, h, n)
		if a.Scores["a"] != 0.1 || a.Scores["b"] != 0.9 || len(a.Scores) != 2 || a.Out["c"] != "too far" || len(a.Out) != 1 {
			t.Errorf("%s: %+v", n, a)
		}
	}
	if a := good(t, h, "command"); a.Scores != nil || a.Out != nil {
		t.Errorf("%+v", a)
	}
	want := []Info{{"chatty", false, false}, {"command", false, false}, {"module", true, false}, {"program", false, true}, {"table", false, false}}
	if got := h.List(); !slices.Equal(got, want) {
		t.Errorf("list: %+v", got)
	}
	if !strings.Contains(s.log.String(), "a plugin writes: started") || !strings.Contains(s.log.String(), "a plugin writes: {") {
		t.Errorf("log:\n%s", s.log.String())
	}
	for _, st := range h.Status() {
		if st.State != "works" || st.Calls == 0 || st.Memory == 0 || len(st.Isolation) == 0 {
			t.Errorf("%+v", st)
		}
	}
	// All at once, in the order asked for.
	names := []string{"program", "module", "program", "table"}
	for i, a := range h.Ask(t.Context(), names, query()) {
		if a.Plugin != names[i] || a.Skipped != "" {
			t.Errorf("%+v", a)
		}
	}
}

// TestCage looks from inside of a program's cage.
func TestCage(t *testing.T) {
	s := newSite(t)
	s.shell("cage", `while read -r q; do
	net=$(grep -c : /proc/net/dev)
	procs=$(ls -d /proc/[0-9]* | wc -l)
	touch /tmp/skerry-plugin-was-here 2>/dev/null && wrote=yes || wrote=no
	privs=$(grep NoNewPrivs /proc/self/status | tr -d '\t')
	group=$(grep -c skerry-plugins /proc/self/cgroup)
	echo "{\"out\":{\"a\":\"$(id -u) $(id -g) net=$net procs=$procs wrote=$wrote $privs grouped=$([ $group -gt 0 ] && echo yes) env=$(env | grep -c SKERRY)\"}}"
done`)
	h := s.open()
	got := good(t, h, "cage").Out["a"]
	// One interface, loopback, which is down; the shell, and ls or wc.
	want := "65534 65534 net=1 procs=3 wrote=no NoNewPrivs:1 grouped=yes env=0"
	if got != want && got != strings.Replace(want, "procs=3", "procs=4", 1) {
		t.Errorf("%s\nwant %s", got, want)
	}
	t.Log(h.Status()[0].Isolation)
}

// TestOneProcess: a program stays, is replaced when it ends, and one that speaks unasked is ended.
func TestOneProcess(t *testing.T) {
	s := newSite(t)
	s.shell("counts", `n=0; while read -r q; do n=$((n+1)); echo "{\"out\":{\"a\":\"$n\"}}"; [ $n = 3 ] && exit; done; exit`)
	s.shell("talks", `while read -r q; do echo '{}'; echo '{}'; done`)
	h := s.open()
	var got []string
	for range 5 {
		got = append(got, good(t, h, "counts").Out["a"])
	}
	if !slices.Equal(got, []string{"1", "2", "3", "1", "2"}) {
		t.Error(got)
	}
	good(t, h, "talks")
	if a := ask(t, h, "talks"); a.Skipped != "" && a.Skipped != "it wrote without being asked" {
		t.Errorf("%+v", a)
	}
}

// TestReload: new versions take effect, broken ones do not, and what goes is gone.
func TestReload(t *testing.T) {
	s := newSite(t)
	s.wasm("m", says(`{"out":{"a":"one"}}`))
	s.shell("x", `while read -r q; do echo '{"out":{"a":"one"}}'; done`)
	s.write("late.yaml", "kind: wasm\nfile: late.wasm\ntimeout: 1s\n")
	h := s.open()
	is := func(name, want string) func() bool {
		return func() bool { return ask(t, h, name).Out["a"] == want }
	}
	for _, n := range []string{"m", "x"} {
		if a := good(t, h, n); a.Out["a"] != "one" {
			t.Fatalf("%+v", a)
		}
	}
	if a := ask(t, h, "late"); !strings.Contains(a.Skipped, "it does not load") {
		t.Errorf("%+v", a)
	}

	// The samples of a new version name workers of their own.
	s.write("m.wasm", string(says(`{"out":{"hamburg":"two"}}`).Encode()))
	until(t, h, "the new module", func() bool { return strings.Contains(ask(t, h, "m").Skipped, "hamburg") })
	s.write("m.wasm", string(says(`{}`).Encode()))
	until(t, h, "the module after that", func() bool { a := ask(t, h, "m"); return a.Skipped == "" && a.Out == nil })
	s.write("late.wasm", string(says(`{}`).Encode()))
	until(t, h, "the module that was missing", func() bool { return ask(t, h, "late").Skipped == "" })

	// Broken versions change nothing; the watch tells when the next good one is there.
	s.write("m.wasm", "no module")
	s.write("x.sh", "#!/bin/sh\nexit 1\n")
	s.write("late.yaml", "kind: wasn\n")
	s.log.await(t, "a new description of a plugin is not valid; the one before stays", 1)
	s.log.await(t, "a new version of a plugin does not work; the one before stays", 2)
	if a := good(t, h, "m"); a.Out != nil {
		t.Errorf("%+v", a)
	}
	if a := good(t, h, "x"); a.Out["a"] != "one" {
		t.Errorf("%+v", a)
	}
	good(t, h, "late")

	s.write("x.sh", `#!/bin/sh
while read -r q; do case $q in *hamburg*) echo '{}';; *) echo '{"out":{"a":"two"}}';; esac; done
`)
	until(t, h, "the program after the broken one", is("x", "two"))
	s.write("x.yaml", "kind: exec\nfile: x.sh\nall: true\nonFailure: reject\ntimeout: 1s\n")
	until(t, h, "the new description", func() bool { return slices.Contains(h.List(), Info{"x", true, true}) })
	if err := os.Remove(filepath.Join(s.dir, "m.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, h, "the end of a plugin", func() bool { return len(h.List()) == 2 })
	if a := ask(t, h, "m"); a.Skipped != "it is gone" {
		t.Errorf("%+v", a)
	}
}

// TestRest: a plugin that fails three times in a row is not asked for a while.
func TestRest(t *testing.T) {
	s := newSite(t)
	s.wasm("bad", wasmcode.Module{Body: wasmcode.Crash})
	h := s.open()
	for range restAfter {
		if a := ask(t, h, "bad"); !strings.Contains(a.Skipped, "it crashed") {
			t.Errorf("%+v", a)
		}
	}
	if a := ask(t, h, "bad"); !strings.Contains(a.Skipped, "after 3 failures in a row, the last: it crashed") {
		t.Errorf("%+v", a)
	}
	if st := h.Status()[0]; st.State != "rests" || st.Calls != 3 || st.Failures != 3 {
		t.Errorf("%+v", st)
	}
}

// TestOpenRefuses: a configuration that is not valid does not start.
func TestOpenRefuses(t *testing.T) {
	s := newSite(t)
	s.write("a.yaml", "kind: wasm\nfile: a.wasm\n")
	s.write("a.json", `{"kind":"wasm","file":"a.wasm"}`)
	s.write("B.yaml", "kind: wasm\nfile: a.wasm\n")
	s.write("c.yaml", "kind: exec\ntimeOut: 2s\n")
	_, err := Open(t.Context(), s.opt)
	var e *skerry.Error
	if !errors.As(err, &e) || e.Code != skerry.CodeInvalid || len(e.Problems) != 3 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"a.yaml: describes the same plugin as a.json", "B.yaml: ", "c.yaml: timeOut: unknown field (did you mean \"timeout\"?)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	s.opt.Dir = filepath.Join(s.dir, "absent")
	if _, err := Open(t.Context(), s.opt); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestGiveUp: who asks may stop waiting; that is no failure of the plugin's.
func TestGiveUp(t *testing.T) {
	s := newSite(t)
	s.wasm("m", wasmcode.Module{Body: wasmcode.Hang})
	s.shell("x", "read q; sleep 1000")
	h := s.open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, a := range h.Ask(ctx, []string{"m", "x"}, query()) {
		if a.Skipped == "" {
			t.Errorf("%+v", a)
		}
	}
	for _, st := range h.Status() {
		if st.Failures != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// TestCheck tries a directory without running it.
func TestCheck(t *testing.T) {
	s := newSite(t)
	s.wasm("module", says(`{"scores":{"hamburg":1}}`))
	s.shell("program", `while read -r q; do echo '{}'; done`)
	s.shell("wrong", `while read -r q; do echo '{"score":{}}'; done`)
	s.write("broken.yaml", "kind: wasm\n")
	trials, err := Check(t.Context(), s.opt, Sample())
	if err != nil || len(trials) != 4 {
		t.Fatalf("%+v %v", trials, err)
	}
	for _, x := range trials {
		switch x.Name {
		case "broken":
			if !strings.Contains(x.Problem, "a module is missing") {
				t.Errorf("%+v", x)
			}
		case "wrong":
			if !strings.Contains(x.Problem, `did you mean "scores"?`) {
				t.Errorf("%+v", x)
			}
		default:
			if x.Problem != "" || x.Reply == nil || x.First == 0 || x.Memory == 0 || len(x.Isolation) == 0 {
				t.Errorf("%+v", x)
			}
		}
	}
}
