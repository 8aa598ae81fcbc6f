package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
)

// notOurs gives a *FileError in the terms of the commands.
func notOurs(err error) error {
	var file *artifact.FileError
	if errors.As(err, &file) {
		return skerry.Errorf(skerry.CodeInvalid, "%w", err).WithHint("%s", file.Do)
	}
	if errors.Is(err, os.ErrNotExist) {
		return skerry.Errorf(skerry.CodeNotFound, "%w", err)
	}
	return err
}

func imageImport() *cobra.Command {
	var name string
	cmd := &cobra.Command{Use: "import FILE|DIR|-", Short: "Import images from an archive or a directory", Args: cobra.ExactArgs(1),
		Long: `Import images into this user's store: an archive in OCI or docker save format, which may be compressed, or a directory with
an OCI layout. A tar with a root file system is built: "skerry image build".`,
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			if name != "" {
				var err error
				if name, err = fullName(name); err != nil {
					return err
				}
			}
			names, err := importFrom(cmd, st, args[0], name)
			for _, n := range names {
				fmt.Fprintln(cmd.OutOrStdout(), shortName(n))
			}
			return err
		})}
	cmd.Flags().StringVarP(&name, "tag", "t", "", "name for an image that has none in the archive")
	return cmd
}

// importFrom takes in images that come as a file, a directory or the standard input ("-").
func importFrom(cmd *cobra.Command, st *artifact.Store, from, name string) ([]string, error) {
	if from == "-" {
		return st.Import(cmd.Context(), cmd.InOrStdin(), name)
	}
	what, err := artifact.Recognize(cmd.Context(), from)
	switch {
	case err != nil:
		return nil, notOurs(err)
	case what == artifact.LayoutFolder:
		return artifact.ImportLayout(cmd.Context(), st, from, name)
	case what == artifact.RootArchive:
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s is a root file system, without the name, command and environment of an image",
			from).
			WithHint("skerry image build %s -t NAME", from)
	}
	return importFile(cmd.Context(), st, from, name)
}

func importFile(ctx context.Context, st *artifact.Store, from, name string) ([]string, error) {
	f, err := os.Open(from)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeNotFound, "%w", err)
	}
	defer f.Close()
	return st.Import(ctx, f, name)
}

func (a *app) imagePush() *cobra.Command {
	var reg registryFlags
	var platform string
	var quiet bool
	cmd := &cobra.Command{Use: "push NAME|FILE|DIR|- [DESTINATION]", Short: "Push an image to the built-in registry or to another one",
		Long: `Push an image of this user's store, or one that comes as a file: an archive in OCI or docker save format, a directory with an
OCI layout, or the root file system of an image as a tar (devices in it are left out), which may be compressed. Images keep
the names that they have there; DESTINATION is another one, or the one of an image that has none. An argument that begins
with / or . is a file; another is, if the store has no image of this name.`,
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: completeImages,
		Example: "  skerry image push shop/front:1\n" +
			"  skerry image push shop/front:1 registry.example.com/shop/front:1\n  skerry image push ./front.tar\n" +
			"  docker save front:1 | skerry image push -\n  skerry image push rootfs.tar.gz shop/base:1",
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			to := ""
			if len(args) == 2 {
				var err error
				if to, err = fullName(args[1]); err != nil {
					return err
				}
			}
			if isFile(st, args[0]) {
				return a.pushFile(cmd, st, &reg, args[0], to, platform, quiet)
			}
			if platform != "" {
				return skerry.Errorf(skerry.CodeInvalid, "--platform is only for the root file system of an image as a tar")
			}
			from, err := stored(st, args[0])
			if err != nil {
				return err
			}
			if to == "" {
				if to, err = fullName(args[0]); err != nil {
					return err
				}
			}
			return a.push(cmd, st, &reg, from, to, quiet)
		})}
	reg.add(cmd)
	cmd.Flags().StringVar(&platform, "platform", "",
		"of a root file system: OS/ARCH[/VARIANT] or ARCH (default the platform of its programs)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "say less")
	return cmd
}

// isFile reports whether an argument is a file or a directory, and not the name of an image.
func isFile(st *artifact.Store, arg string) bool {
	if arg == "-" || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return true
	}
	if _, err := os.Stat(arg); err != nil {
		return false
	}
	full, err := stored(st, arg)
	if err != nil {
		return true
	}
	ref, err := imageref.Parse(full)
	if err != nil {
		return true
	}
	_, here := st.Lookup(ref)
	return !here
}

// stored gives the name by which the store has an image. One without a registry means the built-in one first, and then
// docker.io, as in a manifest: archives of docker call their images so.
func stored(st *artifact.Store, name string) (string, error) {
	full, err := fullName(name)
	if err != nil || full == name {
		return full, err
	}
	ref, err := imageref.Parse(full)
	if err != nil {
		return "", err
	}
	if _, here := st.Lookup(ref); here {
		return full, nil
	}
	if hub, err := imageref.Parse(name); err == nil {
		if _, here := st.Lookup(hub); here {
			return hub.String(), nil
		}
	}
	return full, nil
}

// pushFile pushes what comes as a file, under its own names or as to.
func (a *app) pushFile(cmd *cobra.Command, st *artifact.Store, reg *registryFlags, from, to, platform string, quiet bool) error {
	what := artifact.ImageArchive
	if from != "-" {
		var err error
		if what, err = artifact.Recognize(cmd.Context(), from); err != nil && platform == "" {
			return notOurs(err)
		}
	}
	if platform != "" && isFolder(from) {
		return skerry.Errorf(skerry.CodeInvalid, "--platform is only for the root file system of an image as a tar, and %s is a directory", from).
			WithHint("a layout has its platforms in it; pack a root file system: skerry image build %s -t NAME --platform %s", from, platform)
	}
	if what == artifact.RootArchive || platform != "" {
		return a.pushRoot(cmd, st, reg, from, to, platform, quiet)
	}
	names, err := importFrom(cmd, st, from, to)
	if err != nil {
		return err
	}
	if to != "" {
		return a.push(cmd, st, reg, to, to, quiet)
	}
	var targets []string
	for _, n := range names {
		target, err := ownName(n)
		if err != nil {
			return err
		}
		targets = append(targets, target)
	}
	for i, n := range names {
		if err := a.push(cmd, st, reg, n, targets[i], quiet); err != nil {
			return err
		}
	}
	return nil
}

func isFolder(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

// ownName gives the name at the built-in registry of an image that came as a file. One that names another registry means
// that one, and would be looked for there.
func ownName(name string) (string, error) {
	for _, prefix := range []string{"docker.io/library/", "docker.io/", "localhost/"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return fullName(rest)
		}
	}
	if strings.HasPrefix(name, builtIn+"/") {
		return name, nil
	}
	registry, rest, _ := strings.Cut(name, "/")
	return "", skerry.Errorf(skerry.CodeInvalid, "the archive calls its image %s, and workers look for that at %s", name, registry).
		WithHint("the image is in your store now; push it under another name, and use that in the manifest: skerry image push %s %s",
			name, rest)
}

func (a *app) pushRoot(cmd *cobra.Command, st *artifact.Store, reg *registryFlags, from, to, platform string, quiet bool) error {
	if from == "-" || to == "" {
		return skerry.Errorf(skerry.CodeInvalid, "a root file system has no name, and is read from a file").
			WithHint("name it: skerry image push FILE NAME")
	}
	opt := artifact.BuildOptions{Source: from, Tag: to}
	if platform != "" {
		var err error
		if opt.Platform, err = artifact.ParsePlatform(platform); err != nil {
			return skerry.Errorf(skerry.CodeInvalid, "--platform: %w", err)
		}
	}
	left := skippedTo(cmd, quiet, &opt)
	_, err := st.Build(cmd.Context(), opt)
	left()
	if err != nil {
		return notOurs(err)
	}
	return a.push(cmd, st, reg, to, to, quiet)
}

// skippedTo has the devices that a root file system loses counted; the function it gives says how many there were.
func skippedTo(cmd *cobra.Command, quiet bool, opt *artifact.BuildOptions) func() {
	var first string
	n := 0
	opt.Skipped = func(name string) {
		if n++; n == 1 {
			first = name
		}
	}
	return func() {
		if n > 0 && !quiet {
			skipped(cmd.ErrOrStderr(), n, first)
		}
	}
}

func skipped(w io.Writer, n int, first string) {
	if n == 1 {
		fmt.Fprintf(w, "left out: %s is a device or a pipe; an instance has its own\n", first)
		return
	}
	fmt.Fprintf(w, "left out: %s and %d more are devices or pipes; an instance has its own\n", first, n-1)
}
