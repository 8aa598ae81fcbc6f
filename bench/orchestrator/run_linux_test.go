package orchestrator

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
)

// fake writes an adapter that keeps a line for each call in NAME.calls; body has what it does in the branches of a case.
func fake(t *testing.T, dir, name, body string) string {
	t.Helper()
	file := filepath.Join(dir, name+".sh")
	script := "#!/bin/sh\necho \"$*\" >>'" + filepath.Join(dir, name+".calls") + "'\ncase \"$1\" in\n" + body + "\nversion) echo 'fake 1' ;;\nprocesses) echo \"control $PPID\" ;;\nesac\n"
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func calls(t *testing.T, dir, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name+".calls"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func count1(list []string, verb string) (n int) {
	for _, line := range list {
		if strings.HasPrefix(line, verb+" ") {
			n++
		}
	}
	return n
}

// Adapters of all manners, run for real: the test's own process stands for the orchestrator's.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	later := func(then string) string { // the first deployment is the warm-up
		return "deploy) [ $(grep -c ^deploy '" + dir + "'/$(basename $0 .sh).calls) -lt 2 ] || { " + then + "; } ;;"
	}
	o := Options{Image: "image:1", Rounds: 2, Sizes: []int{1, 3}, Watch: 20 * time.Millisecond, Timeout: time.Second, Adapters: []string{
		fake(t, dir, "good", ""),
		fake(t, dir, "fails", later("echo broke >&2; exit 3")),
		fake(t, dir, "cannot", "version) echo 'no kernel for it' >&2; exit 64 ;;"),
		fake(t, dir, "small", "deploy) [ $4 -lt 3 ] || { echo 'no room' >&2; exit 64; } ;;\nprocesses) echo 'nothing here' >&2; exit 64 ;;"),
		fake(t, dir, "hangs", later("[ $4 -lt 3 ] || [ -e '"+dir+"/hung' ] || { touch '"+dir+"/hung'; sleep 60 & sleep 60; }")),
		fake(t, dir, "chatty", "deploy) echo done ;;"),
		fake(t, dir, "stays", "delete) echo 'it is held' >&2; exit 1 ;;"),
	}}
	kept := 0
	o.Keep = func(*report.Report) error { kept++; return nil }
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Rounds != 2 || kept != 2 || r.Unfinished || r.Baseline != "good" {
		t.Errorf("%d rounds, %d kept, unfinished %v, against %s", r.Rounds, kept, r.Unfinished, r.Baseline)
	}
	told := map[string]report.Place{}
	for _, a := range r.Places {
		told[a.Name] = a
	}
	for name, want := range map[string]string{"good": "", "fails": "", "small": "", "hangs": "", "cannot": "no kernel for it", "chatty": "its first deployment: deploy printed", "stays": "it could not delete bench-"} {
		if a := told[name]; !strings.HasPrefix(a.Skip, want) || want == "" && (a.Skip != "" || a.Text != "fake 1") {
			t.Errorf("%+v", a)
		}
	}
	if !slices.Contains(r.Notes, "Not measured: processes of small: nothing here") {
		t.Errorf("%q", r.Notes)
	}
	// Each deployment was waited for and deleted, with the name that it was made with.
	good := calls(t, dir, "good")
	if d, w, g := count1(good, "deploy"), count1(good, "wait"), count1(good, "delete"); d != 5 || w != 5 || g != 5 {
		t.Errorf("%d deployed, %d waited for, %d deleted", d, w, g)
	}
	var names []string
	for _, line := range good {
		if f := strings.Fields(line); f[0] == "deploy" {
			if names = append(names, f[1]); slices.Index(names, f[1]) != len(names)-1 || f[2] != "image:1" || !slices.Contains(good, "delete "+f[1]) || !slices.Contains(good, "wait "+f[1]+" "+f[3]+" 1") {
				t.Errorf("%s in %q", line, good)
			}
		}
	}
	if n := count1(calls(t, dir, "small"), "deploy"); n != 1+2+1 { // what it cannot do is asked for once
		t.Errorf("the small one deployed %d times", n)
	}
	failures := map[string]int{}
	for _, f := range r.Failed {
		failures[f.Place+": "+f.By]++
	}
	if len(failures) != 2 || failures["fails: deploy: exit status 3: broke"] != 4 || failures["hangs: deploy did not end within 1s"] != 1 || r.Find(size(3), "ready", "small").Skip != "no room" {
		t.Errorf("%v, %+v", failures, r.Find(size(3), "ready", "small"))
	}
	if a := r.Find(size(3), "ready", "good"); a == nil || a.Value.N != 2 || a.Value.Value <= 0 {
		t.Errorf("%+v", a)
	}
	if a := r.Find(size(0), "idle.memory.control", "good"); a == nil || a.Value.Value < 1 {
		t.Errorf("the memory of this process was measured as %+v", a)
	}
	if b := r.Find(size(3), "ready", "hangs"); b == nil || b.Value.N != 1 || b.Against == nil {
		t.Errorf("%+v", b)
	}
	// Nothing of what hung is left.
	if out, _ := exec.Command("pgrep", "-f", dir).Output(); len(out) > 0 {
		t.Errorf("left: %s", out)
	}
}

// Ctrl-C in a second round leaves the first, and nothing deployed.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := Options{Image: "image:1", Rounds: 5, Sizes: []int{1}, Watch: time.Millisecond, Timeout: time.Minute, Adapters: []string{fake(t, dir, "a", "wait) [ $(grep -c ^wait '"+dir+"/a.calls') -lt 3 ] || sleep 60 ;;")}}
	o.Progress = func(s string) {
		if s == "round 2 of 5: a, 1 replicas" {
			go func() {
				for count1(calls(t, dir, "a"), "wait") < 3 {
					time.Sleep(time.Millisecond)
				}
				stop()
			}()
		}
	}
	r, err := Run(ctx, o)
	if err != nil || r.Rounds != 1 || !r.Unfinished || !slices.Equal(r.Find(size(1), "ready", "a").Rounds, []int{1}) {
		t.Fatalf("%v %+v", err, r)
	}
	list := calls(t, dir, "a")
	if d, g := count1(list, "deploy"), count1(list, "delete"); d != 3 || g != 3 {
		t.Errorf("%d deployed, %d deleted", d, g)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Adapters: []string{"/a/x.sh"}, Image: "i", Rounds: 1, Sizes: []int{1}, Watch: time.Second, Timeout: time.Second}
	for name, change := range map[string]func(*Options){
		"adapters": func(o *Options) { o.Adapters = nil }, "image": func(o *Options) { o.Image = "" }, "rounds": func(o *Options) { o.Rounds = 0 }, "sizes": func(o *Options) { o.Sizes = nil },
		"zero": func(o *Options) { o.Sizes = []int{0} }, "same size": func(o *Options) { o.Sizes = []int{2, 2} }, "watch": func(o *Options) { o.Watch = 0 }, "timeout": func(o *Options) { o.Timeout = time.Millisecond },
		"same name": func(o *Options) { o.Adapters = []string{"/a/x.sh", "/b/x"} },
	} {
		o := good
		change(&o)
		var e *skerry.Error
		if _, err := Run(t.Context(), o); !errors.As(err, &e) || e.Code != skerry.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSpent(t *testing.T) {
	old, same, young := incarnation{Process{Control, 1}, 5}, incarnation{Process{Worker, 2}, 5}, incarnation{Process{Worker, 2}, 9}
	got := spent(counters{old: time.Second, same: time.Minute}, counters{old: 3 * time.Second, young: time.Second / 2})
	if got[Control] != 2 || got[Worker] != 0.5 { // 2 is another process now
		t.Error(got)
	}
	began, used, err := parseStat("7 (a) (b c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 6 7 20 0 1 0 12345 1 2 3")
	if err != nil || began != 12345 || used != 2*time.Second {
		t.Error(began, used, err)
	}
	if _, _, err := parseStat("7 (a"); err == nil {
		t.Error("half a line was read")
	}
}

// The adapters that come with Skerry are scripts that a shell can read, and say what they are for.
func TestScripts(t *testing.T) {
	files, _ := filepath.Glob("../../examples/adapters/*.sh")
	if len(files) == 0 {
		t.Fatal("there are none")
	}
	for _, file := range files {
		if out, err := exec.Command("sh", "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
		var exit *exec.ExitError
		if out, err := exec.Command(file, "dance").CombinedOutput(); !errors.As(err, &exit) || exit.ExitCode() == cannotHere || !strings.HasPrefix(string(out), "usage: ") {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
		// Where there is nothing to speak to, it says so in its own words.
		cmd := exec.Command(file, "version")
		cmd.Env = []string{"PATH=/nothing:/usr/bin:/bin", "HOME=/nothing", "SKERRY=/nothing/skerry", "KUBECTL=/nothing/kubectl", "NOMAD_ADDR=http://127.0.0.1:1", "OAKESTRA_URL=http://127.0.0.1:1"}
		if out, err := cmd.CombinedOutput(); !errors.As(err, &exit) || exit.ExitCode() != cannotHere || reason(string(out)) == "" {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
		list, err := exec.Command(file, "processes").Output()
		if errors.As(err, &exit) && exit.ExitCode() == cannotHere {
			continue // it looks into Docker, which is not here
		}
		if _, perr := ParseProcesses(string(list)); err != nil || perr != nil {
			t.Errorf("%s: %v, %v", file, err, perr)
		}
	}
}

// A deployment that was refused is deleted all the same, and what cannot be asked has deleted nothing.
func TestDeletesWhatIsMissing(t *testing.T) {
	for file, say := range map[string][2]string{
		"swarm": {"docker", "Error: No such service: missing"},
		"nomad": {"nomad", `No job(s) with prefix or ID "missing" found`},
	} {
		dir := t.TempDir()
		fake := "#!/bin/sh\ncase \"$*\" in\n*' missing') echo '" + say[1] + "' >&2; exit 1 ;;\n" +
			"*' silent') echo no answer >&2; exit 1 ;;\nesac\n"
		if err := os.WriteFile(filepath.Join(dir, say[0]), []byte(fake), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, deleted := range map[string]bool{"missing": true, "there": true, "silent": false} {
			cmd := exec.Command("../../examples/adapters/"+file+".sh", "delete", name)
			cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
			if out, err := cmd.CombinedOutput(); (err == nil) != deleted || !deleted && reason(string(out)) != "no answer" {
				t.Errorf("%s, deployment %s: %v\n%s", file, name, err, out)
			}
		}
	}
}
