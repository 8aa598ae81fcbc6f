package ctl

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/convert"
)

// folder makes a directory with a Dockerfile, and gives a home where nothing else is.
func recipeFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY Dockerfile /\n"), 0o600); err != nil {
		t.Fatalf("write the Dockerfile: %v", err)
	}
	t.Setenv("SKERRY_IMAGES", filepath.Join(t.TempDir(), "images"))
	t.Setenv("SKERRY_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
	return dir
}

func imageCommandRun(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := (&app{}).imageCommand()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(io.MultiWriter(&out, t.Output()))
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Where nothing can build a Dockerfile, that is said, and the directory is not taken for the root of an image.
func TestNoBuilder(t *testing.T) {
	dir := recipeFolder(t)
	t.Setenv("PATH", t.TempDir())
	for _, more := range [][]string{nil, {"--builder", "podman"}} {
		_, err := imageCommandRun(t, append([]string{"build", dir, "-t", "x:1"}, more...)...)
		var problem *skerry.Error
		if !errors.As(err, &problem) || problem.Code != skerry.CodeUnsupported || problem.Hint == "" ||
			!strings.Contains(err.Error(), "installed") {
			t.Errorf("%v: the error is %v, expected one of code unsupported with a hint", more, err)
		}
	}
	err := (&app{}).buildImages((&app{}).imageCommand(), []convert.Build{{Service: "web", Image: "x:1", Dir: dir}})
	if skerry.AsError(err).Code != skerry.CodeUnsupported {
		t.Errorf("a service of a Compose file: %v, expected an error of code unsupported", err)
	}
	if out, _ := imageCommandRun(t, "ls"); strings.Contains(out, "x:1") {
		t.Errorf("there is an image all the same: %s", out)
	}
	if out, err := imageCommandRun(t, "build", dir, "-t", "x:1", "--pack", "--platform", "amd64", "-q"); err != nil {
		t.Errorf("pack it as it is: %v: %s", err, out)
	}
}

// standIn puts a script in the place of a builder, for what the real ones do not do when they are asked.
func standIn(t *testing.T, script string) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "buildah"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatalf("write the stand-in: %v", err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
}

// A builder that fails, that names no image, or that writes none leaves no image, and the reason is said.
func TestBuilderFails(t *testing.T) {
	dir := recipeFolder(t)
	t.Setenv("TMPDIR", t.TempDir())
	for script, want := range map[string]string{
		"exit 3": "exit status 3",
		"exit 0": "named no image",
		`[ "$1" = push ] || printf '../../etc' >"$4"`:                                           "named no image",
		`[ "$1" = push ] && exit 4; printf sha256:%064d 1 >"$4"`:                                "exit status 4",
		`[ "$1" = push ] || printf sha256:%064d 1 >"$4"`:                                        "image.tar",
		`[ "$1" = push ] && { echo no archive >image.tar; exit; }; printf sha256:%064d 1 >"$4"`: "the archive is no tar",
	} {
		standIn(t, script)
		if _, err := imageCommandRun(t, "build", dir, "-t", "x:1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, expected %q", script, err, want)
		}
		if out, _ := imageCommandRun(t, "ls"); strings.Contains(out, "x:1") {
			t.Errorf("%s: there is an image all the same: %s", script, out)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "skerry-build-*")); err != nil || len(left) > 0 {
		t.Errorf("directories are left: %v %v", left, err)
	}
}
