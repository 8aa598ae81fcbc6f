package device

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed kernels
var kernelSources embed.FS

// toolKernels is the program that is compiled from the kernels on the device.
const toolKernels = "kernels"

// tool is a program that cases run.
type tool struct {
	path, version string
	missing       error
	// module is the same program for WebAssembly, of the kernels alone; empty where noModule says why there is none.
	module   string
	noModule error
}

// known says where a tool may be, what it prints its version by, and which Debian package has it.
var known = map[string]struct {
	paths   []string
	version []string
	pkg     string
}{
	"sysbench":  {[]string{"sysbench"}, []string{"--version"}, "sysbench"},
	"stress-ng": {[]string{"stress-ng"}, []string{"--version"}, "stress-ng"},
	"openssl":   {[]string{"openssl"}, []string{"version"}, "openssl"},
	"fio":       {[]string{"fio"}, []string{"--version"}, "fio"},
	"dd":        {[]string{"dd"}, []string{"--version"}, "coreutils"},
	"x265":      {[]string{"x265"}, []string{"--version"}, "x265"},
	"povray":    {[]string{"povray"}, []string{"--version"}, "povray"},
	"bonnie++":  {[]string{"bonnie++"}, nil, "bonnie++"},                              // tells its version with its results only
	"7za":       {[]string{"/usr/lib/p7zip/7za", "7za"}, []string{"i"}, "p7zip-full"}, // the program, not the script around it
}

// findTools finds the programs of cases, and compiles ours into dir.
func findTools(ctx context.Context, dir string, cases []Case) (map[string]*tool, error) {
	out := map[string]*tool{}
	for _, c := range append([]Case{{Tool: toolKernels}}, cases...) { // what starts is one of ours, whatever the cases are
		if out[c.Tool] != nil {
			continue
		}
		if c.Tool == toolKernels {
			t, err := compile(ctx, dir)
			if err != nil {
				return nil, err
			}
			out[c.Tool] = t
			continue
		}
		t := &tool{missing: fmt.Errorf("%s is not installed: apt install %s", c.Tool, known[c.Tool].pkg)}
		out[c.Tool] = t
		for _, p := range known[c.Tool].paths {
			path, err := exec.LookPath(p)
			if err != nil {
				continue
			}
			if path, err = filepath.EvalSymlinks(path); err != nil {
				return nil, err
			}
			*t = tool{path: path, version: "of an unknown version"}
			if args := known[c.Tool].version; args != nil {
				text, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
				if err != nil {
					t.missing = fmt.Errorf("%s does not run: %w: %s", c.Tool, err, firstLine(text))
					continue
				}
				t.version = versionLine(text)
			}
			break
		}
	}
	return out, nil
}

// versionLine is the line that tells the version: the first that has a figure and no complaint.
func versionLine(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if strings.ContainsAny(line, "0123456789") && !strings.Contains(line, "cannot open") {
			return strings.TrimSpace(line)
		}
	}
	return firstLine(text)
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(line)
}

// compile makes the kernels, statically, so that they run where there are no libraries. Without a compiler their cases are missing.
func compile(ctx context.Context, dir string) (*tool, error) {
	source, path := filepath.Join(dir, "source"), filepath.Join(dir, toolKernels)
	if err := os.CopyFS(source, kernelSources); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(source, "kernels", "*.c"))
	if err != nil {
		return nil, err
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		return &tool{missing: errors.New("gcc, which compiles the kernels, is not installed: apt install gcc libc6-dev")}, nil
	}
	text, err := exec.CommandContext(ctx, cc, append([]string{"-O2", "-static", "-pthread", "-o", path},
		append(files, "-lm")...)...).CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return &tool{missing: fmt.Errorf("the kernels do not compile: %w: %s", err, firstLine(text))}, nil
	}
	version, err := exec.CommandContext(ctx, cc, "--version").Output()
	if err != nil {
		return nil, err
	}
	t := &tool{path: path, version: firstLine(version) + ", -O2 -static"}
	module := path + ".wasm"
	if cc, err = exec.LookPath("clang"); err != nil {
		t.noModule = errors.New("clang, which compiles the kernels to a module, is not installed: apt install clang lld wasi-libc libclang-rt-14-dev-wasm32")
		return t, nil
	}
	text, err = exec.CommandContext(ctx, cc, "--target=wasm32-wasi", "-O2", "-o", module, filepath.Join(source, "kernels", "kernels.c"),
		filepath.Join(source, "kernels", "index.c"), "-lm").CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		t.noModule = fmt.Errorf("the kernels do not compile to a module: %w: %s", err, firstLine(text))
	default:
		t.module = module
	}
	return t, nil
}

// modular says whether a program does something that a module can: what needs no other processes, threads, sockets of
// its own or other tools.
func modular(tool string, args []string) bool {
	if tool != toolKernels || len(args) == 0 {
		return false
	}
	switch args[0] {
	case "primes", "linpack", "index", "malloc", "files", "mixed", "memory", "sleep":
		return true
	case "stream":
		return len(args) > 2 && args[2] == "1" // thread
	}
	return false
}

// makeRoot makes a root file system of the tools with their libraries, at the paths that they have on the host, so that the same files run
// everywhere, and nothing else.
func makeRoot(ctx context.Context, root string, tools map[string]*tool) error {
	for _, d := range []string{"bin", "etc", "tmp", "data", "proc", "sys", "dev", "root", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777); err != nil {
		return err
	}
	files := map[string]string{} // by place inside
	for name, t := range tools {
		if t.missing != nil {
			continue
		}
		files["bin/"+name] = t.path
		if t.module != "" {
			files["bin/"+name+".wasm"] = t.module
		}
		if name == toolKernels {
			continue // static
		}
		libs, err := exec.CommandContext(ctx, "ldd", t.path).Output()
		if err != nil {
			t.missing = fmt.Errorf("the libraries of %s are not known: %w", name, err)
			continue
		}
		for f := range strings.FieldsSeq(string(libs)) {
			if strings.HasPrefix(f, "/") {
				files[strings.TrimPrefix(f, "/")] = f
			}
		}
	}
	if _, err := os.Stat("/etc/ssl/openssl.cnf"); err == nil {
		files["etc/ssl/openssl.cnf"] = "/etc/ssl/openssl.cnf"
		files["usr/lib/ssl/openssl.cnf"] = "/etc/ssl/openssl.cnf"
	}
	for name, list := range inputs() {
		if tools[name] == nil || tools[name].missing != nil {
			continue
		}
		for file, write := range list {
			if err := makeInput(filepath.Join(root, "input", file), write); err != nil {
				return err
			}
		}
	}
	for to, from := range files {
		if err := copyFile(filepath.Join(root, to), from); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
		"etc/hosts": "127.0.0.1 localhost\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func makeInput(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func copyFile(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, st.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
