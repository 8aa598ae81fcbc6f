package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/store"
)

func runTests(m *testing.M) int {
	return testenv.Main(m, testenv.Options{NetNS: true, Cgroup: cgroupParent("*")})
}

// plain makes a directory with a skerry that runs roles by this test binary, with the race detector if it was built so, and all other
// commands by the program as it is shipped: most of what hundreds of short commands take is to start, which takes several times as long
// with the detector.
func plain(t *testing.T) string {
	self, err := exec.LookPath("skerry") // testscript's
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\ncase \"$1 $2\" in 'up '* | 'root --'* | 'cluster --'*) exec %s \"$@\" ;; esac\nexec %s \"$@\"\n",
		self, testenv.Program(t))
	if err := os.WriteFile(filepath.Join(dir, "skerry"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// cgroupParent names the cgroup of a worker in this run of the tests.
func cgroupParent(dir string) string {
	return fmt.Sprintf("skerry-up-%d-%s", os.Getpid(), filepath.Base(dir))
}

// All roles in one process, and a real container: `skerry up` as a user starts it.
// quit has a role that hangs say where: its goroutines are in its log.
func quit(dir string) {
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, cwd := range cwds {
		at, _ := os.Readlink(cwd)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(cwd), "cmdline"))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(cwd)))
		program, args, _ := strings.Cut(string(line), "\x00")
		if at == dir && filepath.Base(program) == "skerry" && strings.HasPrefix(args, "up\x00") && pid > 0 {
			syscall.Kill(pid, syscall.SIGQUIT)
			time.Sleep(2 * time.Second)
		}
	}
}

func TestUp(t *testing.T) {
	bin := t.TempDir()
	for name, pkg := range map[string]string{"catalog": "skerry.dev/skerry/examples/shop/catalog", "tool": "./testdata/tool"} {
		for _, arch := range []string{"", "riscv64"} {
			out := filepath.Join(bin, name+arch)
			cmd := exec.Command("go", "build", "-trimpath", "-o", out, pkg)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if arch != "" {
				cmd.Env = append(cmd.Env, "GOARCH="+arch)
			}
			if msg, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("build %s: %v\n%s", pkg, err, msg)
			}
		}
	}
	program, commands := plain(t), scriptCommands()
	commands["terminal"] = terminal
	files, err := filepath.Glob("testdata/up/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no scripts: %v", err)
	}
	// One after the other: each has a worker w1, and there is one of a name in a network.
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			testscript.Run(t, testscript.Params{Files: []string{file}, Setup: func(env *testscript.Env) error { return setUp(t, env, program, bin) },
				Cmds: commands, UpdateScripts: *update})
		})
	}
}

// setUp prepares a script that runs `skerry up`, and takes away what that leaves.
func setUp(t *testing.T, env *testscript.Env, program, bin string) error {
	setHome(env, program)
	env.Setenv("BIN", bin)
	data := filepath.Join(env.WorkDir, "data")
	cgroup := cgroupParent(env.WorkDir)
	run := filepath.Join(env.WorkDir, "run")
	env.Setenv("SKERRY_DATA", data)
	env.Setenv("SKERRY_RUN_DIR", run)
	env.Setenv("SKERRY_CGROUP_PARENT", cgroup)
	env.Defer(func() {
		if t, ok := env.T().(interface{ Failed() bool }); ok && t.Failed() {
			quit(env.WorkDir)
			logs, _ := filepath.Glob(filepath.Join(env.WorkDir, "*.log"))
			for _, file := range logs {
				text, _ := os.ReadFile(file)
				env.T().Log(filepath.Base(file)+" ends with:\n", string(text[max(0, len(text)-60000):]))
			}
		}
		// Whatever happened, nothing of the worker stays on the machine.
		cfg := node.WorkerConfig{Common: node.Common{Dir: filepath.Join(data, "worker")}, Join: node.Join{Name: "w1"}}
		if _, err := os.Stat(cfg.Dir); err != nil {
			return
		}
		// The agent of a script that failed runs on until after this.
		var st role.Status
		if role.CallLocal(context.Background(), cfg.Dir, "GET", "/status", nil, &st) == nil {
			syscall.Kill(st.Pid, syscall.SIGTERM)
		}
		err := node.CleanMachine(context.Background(), cfg)
		for n := 0; n < 5 && errors.Is(err, store.ErrInUse); n++ {
			err = node.CleanMachine(context.Background(), cfg)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return nil
}
