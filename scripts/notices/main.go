// Notices writes the licences of everything that is linked into the program, on every system for which it is released,
// and of everything that the dashboard is built from. It fails if something has no licence, or one that is not allowed.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licences of what may be part of the program, by their SPDX identifiers: they ask for no more than a
// notice, or, as MPL-2.0 does, for the sources of their own files.
var allowed = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "0BSD", "Unlicense", "CC0-1.0", "Zlib", "Public-Domain"}

// covered is the share of a text, in percent, that has to be known as a licence's: the rest is names, years and addresses.
const covered = 60

// read are files that no program understands, by module and name, with what somebody found who read them. A file that is about
// documents and pictures alone says nothing about the program. A version that changes such a file is to be read again.
var read = map[string]string{
	"github.com/opencontainers/go-digest LICENSE.docs": "", // documents
	"modernc.org/memory LICENSE-LOGO":                  "", // a picture
	"modernc.org/sqlite LICENSE-SQLITE":                "Public-Domain",
	"modernc.org/libc LICENSE-3RD-PARTY.md":            "BSD-3-Clause MIT BSD-2-Clause", // Go, musl and its parts, others
}

// part is something that is not ours: a module of Go, or a package of npm.
type part struct {
	name, version string
	licences      []string // SPDX identifiers, sorted
	texts         []text
}

type text struct{ name, content string }

func main() {
	program := flag.String("program", "./cmd/skerry", "the package of the program")
	dashboard := flag.String("dashboard", "web", "the folder with the dashboard's package-lock.json and node_modules; empty: none")
	flag.Parse()
	if err := run(os.Stdout, *program, *dashboard, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, program, dashboard string, platforms []string) error {
	parts, err := modules(program, platforms)
	if err != nil {
		return err
	}
	if dashboard != "" {
		list, err := packages(dashboard)
		if err != nil {
			return err
		}
		parts = append(parts, list...)
	}
	var failed []error
	for i := range parts {
		if err := parts[i].check(); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	return write(w, parts)
}

// modules lists the modules that the program is linked from on the platforms, such as linux/arm64, and Go itself. Only
// files that stand in or above a package that is linked count.
func modules(program string, platforms []string) ([]part, error) {
	type module struct{ Path, Version, Dir string }
	found := map[string]*part{}
	seen := map[string]bool{} // files
	for _, p := range platforms {
		system, arch, ok := strings.Cut(p, "/")
		if !ok {
			return nil, fmt.Errorf("%q is no platform: write it as linux/arm64", p)
		}
		list := exec.Command("go", "list", "-deps", "-json=Dir,Module", program)
		list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("packages of %s on %s: %w", program, p, err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var pkg struct {
				Dir    string
				Module *module
			}
			if err := d.Decode(&pkg); err != nil {
				return nil, err
			}
			m := pkg.Module
			switch {
			case m == nil:
				continue // the standard library
			case m.Version == "":
				continue // ours
			}
			if found[m.Path] == nil {
				found[m.Path] = &part{name: m.Path, version: m.Version}
			}
			for dir := pkg.Dir; strings.HasPrefix(dir, m.Dir); dir = filepath.Dir(dir) {
				if err := found[m.Path].readDir(dir, m.Dir, seen); err != nil {
					return nil, err
				}
			}
		}
	}
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	std := &part{name: "Go's standard library", version: version}
	if err := std.readDir(root, root, seen); err != nil {
		return nil, err
	}
	parts := []part{*std}
	for _, p := range found {
		parts = append(parts, *p)
	}
	slices.SortFunc(parts[1:], func(a, b part) int { return cmp.Compare(a.name, b.name) })
	return parts, nil
}

// packages lists what the dashboard is built from. What only builds or tests it is not part of it.
func packages(dashboard string) (parts []part, err error) {
	data, err := os.ReadFile(filepath.Join(dashboard, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version, License string
			Dev, DevOptional bool // what only builds or tests it, or gives it types
		}
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, fmt.Errorf("package-lock.json: %w", err)
	}
	for path, p := range lock.Packages {
		if path == "" || p.Dev || p.DevOptional {
			continue
		}
		const folder = "node_modules/" // of packages within packages, too
		name := path
		if i := strings.LastIndex(path, folder); i >= 0 {
			name = path[i+len(folder):]
		}
		one := part{name: name, version: p.Version}
		dir := filepath.Join(dashboard, path)
		if err := one.readDir(dir, dir, map[string]bool{}); err != nil {
			return nil, fmt.Errorf("%s: %w; 'npm ci' installs it", name, err)
		}
		if len(one.licences) == 0 && p.License != "" { // it names its licence and does not repeat its text
			one.licences = strings.Split(strings.Trim(p.License, "()"), " AND ")
		}
		parts = append(parts, one)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version)) })
	return parts, nil
}

// named are the files in which licences, and notices that they ask to repeat, stand.
var named = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-_. ].*)?$`)

// readDir adds the licences that stand in a folder.
func (p *part) readDir(dir, root string, seen map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() || seen[path] || !named.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		seen[path] = true
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		p.add(name, data)
	}
	return nil
}

func (p *part) add(name string, data []byte) {
	p.texts = append(p.texts, text{name, string(data)})
	slices.SortFunc(p.texts, func(a, b text) int { return cmp.Compare(a.name, b.name) })
	base := strings.ToLower(filepath.Base(name))
	if strings.HasPrefix(base, "notice") || strings.HasPrefix(base, "patents") {
		return // it comes beside a licence
	}
	if found, ok := read[p.name+" "+name]; ok {
		p.licences = append(p.licences, strings.Fields(found)...)
		return
	}
	found := licensecheck.Scan(data)
	if found.Percent < covered {
		p.licences = append(p.licences, "unknown: "+name)
	}
	for _, m := range found.Match {
		if !m.IsURL {
			p.licences = append(p.licences, m.ID)
		}
	}
}

func (p *part) check() error {
	slices.Sort(p.licences)
	p.licences = slices.Compact(p.licences)
	if len(p.licences) == 0 {
		return fmt.Errorf("%s %s has no licence", p.name, p.version)
	}
	for _, l := range p.licences {
		if !slices.Contains(allowed, l) {
			return fmt.Errorf("%s %s has a licence that is not allowed: %s; allowed are %s", p.name, p.version, l, strings.Join(allowed, ", "))
		}
	}
	return nil
}

const rule = "================================================================================"

func write(w io.Writer, parts []part) error {
	var b strings.Builder
	b.WriteString("Skerry contains the following software. Its licences are repeated below.\n\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "  %s %s: %s\n", p.name, p.version, strings.Join(p.licences, ", "))
	}
	for _, p := range parts {
		for _, t := range p.texts {
			fmt.Fprintf(&b, "\n%s\n%s %s, %s\n%s\n\n%s\n", rule, p.name, p.version, t.name, rule, strings.TrimRight(t.content, "\n"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
