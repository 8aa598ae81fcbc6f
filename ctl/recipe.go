package ctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/ctl/convert"
)

// recipe is a directory with a Dockerfile, and how another program is to build it.
type recipe struct {
	dir, file string // file is "" for the one of the directory
	inline    string // the Dockerfile itself, in place of file
	args      []string
	target    string
	platform  string
	labels    []string
	program   string // "" for the first that is installed
	pack      bool   // it is not to be built, but packed as it is
}

// flags adds those that only a Dockerfile has a use for.
func (r *recipe) flags(fs *pflag.FlagSet) {
	fs.StringVarP(&r.file, "file", "f", "", "Dockerfile (default Dockerfile or Containerfile of the directory)")
	fs.StringArrayVar(&r.args, "build-arg", nil, "of a Dockerfile, argument NAME=VALUE, or NAME from the environment; may be repeated")
	fs.StringVar(&r.target, "target", "", "of a Dockerfile, stage to build (default the last)")
	fs.StringVar(&r.program, "builder", "", "buildah, podman or docker (default the first that is installed)")
	fs.BoolVar(&r.pack, "pack", false, "make an image of the directory as it is, although it has a Dockerfile")
}

// recipeFlags are those of a Dockerfile, and packFlags what it says itself.
func recipeFlags() []string { return []string{"file", "build-arg", "target", "builder"} }
func packFlags() []string {
	return []string{"entrypoint", "cmd", "env", "user", "workdir", "expose", "stop-signal", "ca-certificates", "add-platform"}
}

// applies reports whether a source is built by a Dockerfile, and refuses flags that would have no effect.
func (r *recipe) applies(cmd *cobra.Command, source string) (bool, error) {
	given := func(names []string) string {
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				return name
			}
		}
		return ""
	}
	name := ""
	if isFolder(source) {
		if name = artifact.Recipe(source); r.file != "" {
			name = filepath.Base(r.file)
		}
	}
	switch flag := given(recipeFlags()); {
	case r.pack && flag != "":
		return false, skerry.Errorf(skerry.CodeInvalid, "--pack and --%s exclude each other", flag)
	case r.pack && !isFolder(source):
		return false, skerry.Errorf(skerry.CodeInvalid, "--pack is for a directory, and %s is none", source)
	case r.pack, name == "" && flag == "":
		return false, nil
	case name == "":
		return false, skerry.Errorf(skerry.CodeInvalid, "--%s is for a directory with a Dockerfile, and %s is none", flag, source).
			WithHint("name the Dockerfile, if it is elsewhere: --file")
	}
	if flag := given(packFlags()); flag != "" {
		return false, skerry.Errorf(skerry.CodeInvalid, "--%s is not for %s, whose %s says how its image is made", flag, source, name).
			WithHint("write it into the %s, or pack the directory as it is: --pack", name)
	}
	r.dir = source
	return true, nil
}

// builder is a program that builds a Dockerfile and writes the image as a file.
type builder struct {
	name string
	more []string                 // of build
	save func(id string) []string // writes image.tar in the working directory
}

func builders() []builder {
	return []builder{
		{"buildah", []string{"--layers"}, func(id string) []string { return []string{"push", "--quiet", id, "oci-archive:" + builtImage} }},
		{"podman", nil, func(id string) []string {
			return []string{"save", "--quiet", "--format", "oci-archive", "--output", builtImage, id}
		}},
		{"docker", nil, func(id string) []string { return []string{"save", "--output", builtImage, "sha256:" + id} }},
	}
}

// builtImage is the file that a builder writes.
const builtImage = "image.tar"

// choose gives the program that builds.
func (r *recipe) choose() (builder, error) {
	for _, b := range builders() {
		if r.program != "" && r.program != b.name {
			continue
		}
		_, err := exec.LookPath(b.name)
		if err == nil {
			return b, nil
		}
		if r.program != "" {
			return b, skerry.Errorf(skerry.CodeUnsupported, "%s is not installed", b.name).
				WithHint("install it, or leave --builder out: the first of buildah, podman and docker is taken")
		}
	}
	if r.program != "" {
		return builder{}, skerry.Errorf(skerry.CodeInvalid, "--builder %q", r.program).WithHint("it is buildah, podman or docker")
	}
	return builder{}, skerry.Errorf(skerry.CodeUnsupported,
		"%s has a Dockerfile, and none of buildah, podman and docker is installed to build it", r.dir).
		WithHint("install one (on Debian: apt install buildah), or build it elsewhere, where `docker save NAME | skerry image push - NAME` " +
			"pushes it; --pack makes an image of the directory as it is")
}

// build has the directory built, and takes the image into the store under a name.
func (r *recipe) build(cmd *cobra.Command, store *artifact.Store, name string, quiet bool) (none artifact.Image, err error) {
	ref, err := imageref.Parse(name)
	if err != nil || ref.Digest != "" {
		return none, skerry.Errorf(skerry.CodeInvalid, "%s cannot be the name of an image that is built", name).
			WithHint("write repository:tag")
	}
	want := artifact.Platform{OS: "linux", Arch: runtime.GOARCH}
	if r.platform != "" {
		if want, err = artifact.ParsePlatform(r.platform); err != nil {
			return none, skerry.Errorf(skerry.CodeInvalid, "platform %q: %w", r.platform, err)
		}
		r.platform = want.String() // a builder wants the whole
	}
	with, err := r.choose()
	if err != nil {
		return none, err
	}
	dir, err := filepath.Abs(r.dir)
	if err != nil {
		return none, err
	}
	work, err := os.MkdirTemp("", "skerry-build-")
	if err != nil {
		return none, err
	}
	defer os.RemoveAll(work)
	args, err := r.arguments(dir, work, quiet)
	if err != nil {
		return none, err
	}
	if err := with.run(cmd, work, append(append([]string{"build"}, with.more...), args...)); err != nil {
		return none, skerry.Errorf(skerry.CodeInvalid, "%s did not build %s: %w", with.name, r.dir, err).
			WithHint("it said why on standard error; --builder chooses another program")
	}
	raw, err := os.ReadFile(filepath.Join(work, "id"))
	if err != nil {
		return none, fmt.Errorf("%s named no image: %w", with.name, err)
	}
	id := strings.TrimPrefix(strings.TrimSpace(string(raw)), "sha256:")
	if strings.Trim(id, "0123456789abcdef") != "" || len(id) < 12 || len(id) > 64 {
		return none, fmt.Errorf("%s named no image: %.100q", with.name, id)
	}
	if err := with.run(cmd, work, with.save(id)); err != nil {
		return none, fmt.Errorf("%s did not write the image of %s: %w", with.name, r.dir, err)
	}
	if _, err := importFile(cmd.Context(), store, filepath.Join(work, builtImage), name); err != nil {
		return none, err
	}
	top, _ := store.Lookup(ref)
	return store.Image(top, want)
}

// arguments are those of build, the same for all builders. The image's ID goes into a file.
func (r *recipe) arguments(dir, work string, quiet bool) ([]string, error) {
	file := r.file
	switch {
	case r.inline != "":
		file = filepath.Join(work, "Dockerfile")
		if err := os.WriteFile(file, []byte(r.inline), 0o600); err != nil {
			return nil, err
		}
	case file == "":
		file = filepath.Join(dir, artifact.Recipe(dir))
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(file); err != nil || !st.Mode().IsRegular() {
		return nil, skerry.Errorf(skerry.CodeNotFound, "%s has no Dockerfile: %s is no file", r.dir, file)
	}
	out := []string{"--iidfile", filepath.Join(work, "id"), "--file", file}
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" {
				out = append(out, flag, v)
			}
		}
	}
	add("--target", r.target)
	add("--platform", r.platform)
	add("--build-arg", r.args...)
	add("--label", r.labels...)
	if quiet {
		out = append(out, "--quiet")
	}
	return append(out, dir), nil
}

// run runs the program, whose output the user sees.
func (b *builder) run(cmd *cobra.Command, dir string, args []string) error {
	ctx := cmd.Context()
	run := exec.CommandContext(ctx, b.name, args...)
	run.Dir, run.Stdout, run.Stderr = dir, cmd.ErrOrStderr(), cmd.ErrOrStderr()
	// It has mounts and containers to take away.
	run.Cancel, run.WaitDelay = func() error {
		if err := run.Process.Signal(syscall.SIGTERM); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		return run.Process.Kill()
	}, 20*time.Second
	err := run.Run()
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// buildImages builds the images that converted files have to be built, and pushes them.
func (a *app) buildImages(cmd *cobra.Command, builds []convert.Build) error {
	if len(builds) == 0 {
		return nil
	}
	return withImages(func(cmd *cobra.Command, store *artifact.Store, _ []string) error {
		for _, one := range builds {
			from := &recipe{dir: one.Dir, file: one.File, inline: one.Inline, target: one.Target, platform: one.Platform}
			for _, name := range slices.Sorted(maps.Keys(one.Args)) {
				from.args = append(from.args, name+"="+one.Args[name])
			}
			for _, name := range slices.Sorted(maps.Keys(one.Labels)) {
				from.labels = append(from.labels, name+"="+one.Labels[name])
			}
			if _, err := os.Stat(from.dir); errors.Is(err, fs.ErrNotExist) {
				return skerry.Errorf(skerry.CodeNotFound, "service %s is built from %s, which is not there", one.Service, from.dir)
			}
			if from.file == "" && from.inline == "" && artifact.Recipe(from.dir) == "" {
				return skerry.Errorf(skerry.CodeNotFound, "service %s is built from %s, which has no Dockerfile", one.Service, from.dir)
			}
			if _, err := from.build(cmd, store, one.Image, false); err != nil {
				return fmt.Errorf("service %s: %w", one.Service, err)
			}
			if err := a.pushTelling(cmd, cmd.ErrOrStderr(), store, &registryFlags{}, one.Image, one.Image, false); err != nil {
				return err
			}
		}
		return nil
	})(cmd, nil)
}
