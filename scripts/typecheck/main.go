// Typecheck finds what does not compile for other platforms, in a few seconds of source reading in place of minutes of compiling:
//
//	typecheck [-test] OS/ARCH PACKAGE...
//
// It prints one line per error. What only a compiler or a linker would find (assembly, a missing body, a size) is left to a build.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	tests := flag.Bool("test", false, "check the packages' tests, too")
	flag.Parse()
	system, arch, ok := strings.Cut(flag.Arg(0), "/")
	if !ok || flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: typecheck [-test] OS/ARCH PACKAGE...")
		os.Exit(2)
	}
	failed, err := check(*tests, append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch), flag.Args()[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// check loads packages, and all of the main module that they import, from source. Bodies of functions in other modules are not read.
func check(tests bool, env, patterns []string) (failed bool, err error) {
	cfg := &packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedModule | packages.NeedForTest, Tests: tests, Env: env}
	// All of the main module is named by its root's pattern; of others it is found out.
	var ours []string
	if _, err := os.Stat("go.mod"); err != nil || !slices.Equal(patterns, []string{"./..."}) {
		list, err := packages.Load(cfg, patterns...)
		if err != nil {
			return false, err
		}
		packages.Visit(list, nil, func(p *packages.Package) {
			if p.Module != nil && p.Module.Main && p.ForTest == "" && p.Name != "main" {
				ours = append(ours, p.PkgPath)
			}
		})
	}
	// Without what types know of each expression, and without comments, it takes half the time.
	cfg.Mode |= packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes
	cfg.ParseFile = func(files *token.FileSet, name string, src []byte) (*ast.File, error) {
		return parser.ParseFile(files, name, src, parser.AllErrors|parser.SkipObjectResolution)
	}
	list, err := packages.Load(cfg, append(patterns, ours...)...)
	if err != nil {
		return false, err
	}
	if len(list) == 0 {
		return false, fmt.Errorf("no package matches %v", patterns)
	}
	return packages.PrintErrors(list) > 0, nil
}
