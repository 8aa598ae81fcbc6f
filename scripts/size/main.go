// Size shows what the programs are made of: how large each is, and how much of it each package takes.
//
//	size [-arch amd64] [-n 40]
//
// It exits with 1 when a program is larger than it was, so that none creeps up while its goal is out of reach. A package's
// share is its code and data; what the linker makes of all of them, such as tables for stack traces, has lines of its own.
package main

import (
	"cmp"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// sizes are those of a program on linux/amd64, in MB.
type sizes struct {
	goal float64
	most float64 // what was reached, with some room; lower it when a program gets smaller
}

// programs are what is measured. docs/results/before-reports.md says what they consist of.
var programs = map[string]sizes{"skerry": {48, 52.2}, "skerry-worker": {20, 29}}

func main() {
	arch := flag.String("arch", "amd64", "GOARCH of the programs")
	most := flag.Int("n", 40, "number of packages to show; 0 for all")
	flag.Parse()
	ok, err := run(os.Stdout, *arch, *most)
	if err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(out io.Writer, arch string, most int) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "size-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	names := slices.Sorted(maps.Keys(programs))
	parts := map[string]map[string]uint64{} // by package and program
	ok = true
	for _, name := range names {
		shipped, table := filepath.Join(dir, name), filepath.Join(dir, name+".symbols")
		// With symbols, but for debuggers' tables, it is the same program.
		if err := errors.Join(build(shipped, "-s -w", name, arch), build(table, "-w", name, arch)); err != nil {
			return false, err
		}
		st, err := os.Stat(shipped)
		if err != nil {
			return false, err
		}
		mb := float64(st.Size()) / 1e6
		want := programs[name]
		verdict := "within its goal"
		switch {
		case mb > want.most:
			verdict, ok = fmt.Sprintf("more than the %g MB that it may have, and its goal", want.most), false
		case mb > want.goal:
			verdict = "more than its goal"
		}
		fmt.Fprintf(out, "%s, linux/%s: %.1f MB, %s of %g MB\n", name, arch, mb, verdict, want.goal)
		bytes, err := packages(table)
		if err != nil {
			return false, err
		}
		for pkg, size := range bytes {
			if parts[pkg] == nil {
				parts[pkg] = map[string]uint64{}
			}
			parts[pkg][name] = size
		}
	}
	list := slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		last := names[len(names)-1]
		return cmp.Or(cmp.Compare(parts[b][last], parts[a][last]), cmp.Compare(parts[b][names[0]], parts[a][names[0]]), cmp.Compare(a, b))
	})
	if most > 0 {
		list = list[:min(most, len(list))]
	}
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\n%s\t\tkB of\t\n", strings.Join(names, "\t"))
	for _, pkg := range list {
		for _, name := range names {
			fmt.Fprintf(tw, "%d\t", parts[pkg][name]/1000)
		}
		fmt.Fprintf(tw, "\t%s\t\n", pkg)
	}
	return ok, tw.Flush()
}

func build(to, flags, name, arch string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", flags, "-o", to, "./cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// packages sums what a program's symbols take by package, and the sections that have none.
func packages(file string) (map[string]uint64, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	out, named := map[string]uint64{}, map[elf.SectionIndex]uint64{}
	for _, s := range symbols {
		if int(s.Section) >= len(f.Sections) || f.Sections[s.Section].Type == elf.SHT_NOBITS {
			continue
		}
		out[packageOf(s.Name)] += s.Size
		named[s.Section] += s.Size
	}
	for i, s := range f.Sections {
		if at := elf.SectionIndex(i); s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOBITS && s.Size > named[at] {
			out["("+strings.TrimPrefix(s.Name, ".")+")"] += s.Size - named[at]
		}
	}
	return out, nil
}

// instance is what the compiler adds to the name of a generic function.
var instance = regexp.MustCompile(`\[.*`)

// packageOf gives the package of a symbol: all before the first dot after the last slash.
func packageOf(symbol string) string {
	name := instance.ReplaceAllString(symbol, "")
	for _, kind := range []string{"type:", "go:"} {
		if strings.HasPrefix(name, kind) {
			return "(" + strings.TrimSuffix(kind, ":") + " data)"
		}
	}
	slash := strings.LastIndex(name, "/") + 1
	pkg, _, ok := strings.Cut(name[slash:], ".")
	if !ok {
		return "(other)"
	}
	return strings.ReplaceAll(name[:slash]+pkg, "%2e", ".")
}
