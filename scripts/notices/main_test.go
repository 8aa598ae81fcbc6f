package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const gpl = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public
License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version.`

const mit = `Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
`

// What is linked into the program has licences that are allowed, and each of them is repeated.
func TestLinked(t *testing.T) {
	dashboard := "../../web"
	if _, err := os.Stat(filepath.Join(dashboard, "node_modules")); err != nil {
		t.Log("the dashboard's packages are not installed: its licences are not looked at")
		dashboard = ""
	}
	var b strings.Builder
	platforms := []string{"linux/amd64", "linux/riscv64", "darwin/arm64", "windows/arm64"}
	if err := run(&b, "skerry.dev/skerry/cmd/skerry", dashboard, platforms); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Go's standard library go1.", "modernc.org/sqlite v1.", "golang.zx2c4.com/wireguard v", // from every system
		"github.com/inconshreveable/mousetrap v",           // linked on Windows alone
		"github.com/klauspost/compress", "snapref/LICENSE", // of a folder within a module
		"Copyright (c) 2009 The Go Authors",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the notices do not contain %q", want)
		}
	}
	if strings.Contains(b.String(), "github.com/google/licensecheck") {
		t.Error("the notices name what is not linked")
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // in the error; empty if it is allowed
	}{
		"a known one":               {map[string]string{"LICENSE": mit}, ""},
		"its text in another file":  {map[string]string{"COPYING.txt": mit}, ""},
		"with a notice":             {map[string]string{"LICENSE": mit, "NOTICE": "Made by somebody."}, ""},
		"none":                      {map[string]string{"README": mit}, "has no licence"},
		"a notice alone":            {map[string]string{"NOTICE": mit}, "has no licence"},
		"an unknown one":            {map[string]string{"LICENSE": "All rights are mine. Ask me for a price."}, "unknown: LICENSE"},
		"a second one that differs": {map[string]string{"LICENSE": mit, "LICENSE-2": gpl}, "GPL"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p := part{name: "example.org/thing", version: "v1"}
			if err := p.readDir(dir, dir, map[string]bool{}); err != nil {
				t.Fatal(err)
			}
			err := p.check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Packages of npm count if they are part of what is built, by the text that they bring, or by the name that they give.
func TestPackages(t *testing.T) {
	dir := t.TempDir()
	lock := `{"packages": {"": {"license": "Apache-2.0"},
		"node_modules/a": {"version": "1.0.0", "license": "MIT"},
		"node_modules/a/node_modules/@s/b": {"version": "2.0.0", "license": "ISC"},
		"node_modules/tool": {"version": "3.0.0", "license": "GPL-3.0-only", "dev": true}}}`
	files := map[string]string{"package-lock.json": lock, "node_modules/a/LICENSE": mit, "node_modules/a/node_modules/@s/b/index.js": ""}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := packages(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := write(&b, parts); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  @s/b 2.0.0: ISC\n", "  a 1.0.0: MIT\n", "\na 1.0.0, LICENSE\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
	if len(parts) != 2 {
		t.Errorf("%d packages: %v", len(parts), parts)
	}
	if err := os.RemoveAll(filepath.Join(dir, "node_modules/a")); err != nil {
		t.Fatal(err)
	}
	if _, err := packages(dir); err == nil || !strings.Contains(err.Error(), "npm ci") {
		t.Errorf("what is not installed: %v", err)
	}
}
