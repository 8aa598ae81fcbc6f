package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"skerry.dev/skerry/internal/testenv"
)

// scriptPatience is how long a script waits for something that should take moments.
const scriptPatience = 60 * time.Second

func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){"wait-for": waitFor, "http": httpGet, "until": until}
}

// waitFor waits until a file holds a pattern: wait-for FILE PATTERN [VARIABLE]. The first group goes into the variable.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: wait-for FILE PATTERN [VARIABLE]")
	}
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	for began := time.Now(); ; testenv.Pause(began) {
		data, _ := os.ReadFile(ts.MkAbs(args[0]))
		if m := re.FindSubmatch(data); m != nil {
			if len(args) == 3 {
				ts.Setenv(args[2], string(m[len(m)-1]))
			}
			return
		}
		if time.Since(began) > scriptPatience {
			ts.Fatalf("%s never held %q:\n%s", args[0], args[1], data)
		}
	}
}

// until runs a command of skerry again and again until what it prints holds a pattern: until PATTERN skerry ARG... What it
// printed last is the script's stdout.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "skerry" {
		ts.Fatalf("usage: until PATTERN skerry ARG...")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	self := program(ts)
	for began := time.Now(); ; testenv.Pause(began) {
		cmd := exec.Cmd{Path: self, Args: args[1:], Env: scriptEnv(ts), Dir: ts.MkAbs(".")}
		out, err := cmd.CombinedOutput()
		if re.Match(out) {
			ts.Stdout().Write(out)
			return
		}
		if time.Since(began) > scriptPatience {
			ts.Fatalf("%s never gave %q; last (%v):\n%s", strings.Join(args[1:], " "), args[0], err, out)
		}
	}
}

// program is the skerry that a script finds.
func program(ts *testscript.TestScript) string {
	return filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "skerry") // setHome has put it first
}

// scriptEnv is the part of a script's environment that skerry reads.
func scriptEnv(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TZ", "NO_COLOR", "GORACE", "SKERRY_TEST_RUN", "SKERRY_CONFIG", "SKERRY_IMAGES", "SKERRY_CONTEXT",
		"SKERRY_DATA", "SKERRY_RUN_DIR", "SKERRY_CGROUP_PARENT"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// httpGet gets a URL and compares the body: http URL PATTERN.
func httpGet(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: http URL PATTERN")
	}
	c := http.Client{Timeout: 10 * time.Second}
	res, err := c.Get(args[0])
	if err != nil {
		if !neg {
			ts.Fatalf("%v", err)
		}
		return
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	ts.Check(err)
	if ok, err := regexp.MatchString(args[1], string(data)); err != nil || ok == neg {
		ts.Fatalf("%s answers %q", args[0], strings.TrimSpace(string(data)))
	}
}
