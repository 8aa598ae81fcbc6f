package ctl

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/ctl/console"
)

// builtIn is the registry that every root and cluster has; names without a registry mean it.
const builtIn = "skerry.local"

// fullName gives a name its registry. In the built-in one a name may have a single part.
func fullName(name string) (string, error) {
	first, _, several := strings.Cut(name, "/")
	if !several || !strings.ContainsAny(first, ".:") && first != "localhost" {
		name = builtIn + "/" + name
	}
	r, err := imageref.Parse(name)
	if err != nil {
		return "", skerry.Errorf(skerry.CodeInvalid, "%q is not the name of an image: %w", name,
			err).WithHint("write repository:tag or registry/repository:tag")
	}
	return r.String(), nil
}

// shortName is what people write.
func shortName(name string) string { return strings.TrimPrefix(name, builtIn+"/") }

// imageDir is where the images of this user are.
func imageDir() (string, error) {
	if d := os.Getenv("SKERRY_IMAGES"); d != "" {
		return d, nil
	}
	if d := os.Getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "skerry", "images"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", skerry.Errorf(skerry.CodeInvalid, "no location for the image store: %w", err).
			WithHint("set the environment variable SKERRY_IMAGES")
	}
	return filepath.Join(home, ".local", "share", "skerry", "images"), nil
}

// withImages runs a function with the image store.
func withImages(fn func(cmd *cobra.Command, st *artifact.Store, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		dir, err := imageDir()
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		st, err := artifact.Open(dir, artifact.Options{})
		if err != nil {
			return fmt.Errorf("image store %s: %w", dir, err)
		}
		defer st.Close()
		return fn(cmd, st, args)
	}
}

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Aliases: []string{"img"}, Short: "Build images and push them to registries",
		Long: `Build images and push them to registries. Images are kept in this user's store ($SKERRY_IMAGES, by default
~/.local/share/skerry/images). A name without a registry refers to the built-in registry of the context's server.`}
	cmd.AddCommand(a.imageBuild(), a.imagePush(), imageList(), imageRemove(), imageTag(), imageImport(), imageExport(), imagePrune(),
		a.imagePull(), a.imageSign(), a.imageVerify())
	return cmd
}

// registryFlags say how to speak to registries other than the built-in one.
type registryFlags struct {
	config string
	plain  []string
}

func (f *registryFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "registry-config", "", "credentials for registries (default ~/.docker/config.json, if it exists)")
	cmd.Flags().StringSliceVar(&f.plain, "plain-http", nil, "registry (host:port) to use without TLS; may be repeated")
}

// source gives the way to the registry of an image.
func (a *app) source(flags *registryFlags, name string) (*artifact.Source, func(), error) {
	if strings.HasPrefix(name, builtIn+"/") {
		c, err := a.client()
		if err != nil {
			return nil, nil, err
		}
		return &artifact.Source{BaseURL: c.Server(), Transport: c.Transport()}, c.Close, nil
	}
	src := &artifact.Source{PlainHTTP: flags.plain}
	path, given := flags.config, flags.config != ""
	if !given {
		if home, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(home, ".docker", "config.json")
		}
	}
	if _, err := os.Stat(path); given || err == nil {
		cred, err := artifact.DockerConfig(path)
		if err != nil {
			return nil, nil, err
		}
		src.Credentials = cred
	}
	return src, func() {}, nil
}

func (a *app) imageBuild() *cobra.Command {
	var opt artifact.BuildOptions
	var platform string
	var labels []string
	var push, quiet bool
	var reg registryFlags
	var from recipe
	cmd := &cobra.Command{Use: "build DIR|FILE -t NAME",
		Short: "Build an image from a Dockerfile, a directory, a static executable or a WebAssembly module", Args: cobra.ExactArgs(1),
		Long: `Build an image from a directory with a Dockerfile or Containerfile. The first of buildah, podman and docker that is installed
builds it; its cache stays with it.

Without a Dockerfile, build an image with one layer from a directory or a tar (which becomes the image's root), a static Linux
executable, a WebAssembly module (platform wasip1/wasm), a unikernel (platforms none/amd64, none/arm64 and so on), or a
bootable disk (qcow2 or raw; set the machine with --platform). The same content and options give the same digest.`,
		Example: "  skerry image build . -t shop/web:1 --push\n" +
			"  CGO_ENABLED=0 go build -o front ./front && skerry image build front -t shop/front:1 --push\n" +
			"  skerry image build rootfs -t base:1 --platform arm64 --entrypoint /bin/sh\n" +
			"  GOOS=wasip1 GOARCH=wasm go build -o greet ./greet && skerry image build greet -t shop/greet:1 --push",
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			var err error
			opt.Source = args[0]
			if opt.Tag == "" {
				return skerry.Errorf(skerry.CodeInvalid, "the name of the image is missing").WithHint("name it with -t, such as -t shop/front:1")
			}
			if opt.Tag, err = fullName(opt.Tag); err != nil {
				return err
			}
			if platform != "" {
				if opt.Platform, err = artifact.ParsePlatform(platform); err != nil {
					return skerry.Errorf(skerry.CodeInvalid, "--platform: %w", err)
				}
			}
			if opt.Labels, err = keyValues("--label", labels); err != nil {
				return err
			}
			written, err := from.applies(cmd, opt.Source)
			if err != nil {
				return err
			}
			var img artifact.Image
			if written {
				from.platform, from.labels = platform, labels
				img, err = from.build(cmd, st, opt.Tag, quiet)
			} else {
				left := skippedTo(cmd, quiet, &opt)
				img, err = st.Build(cmd.Context(), opt)
				left()
			}
			if err != nil {
				return err
			}
			if push {
				return a.push(cmd, st, &reg, opt.Tag, opt.Tag, quiet)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", img.Digest)
			if !quiet {
				fmt.Fprintf(cmd.ErrOrStderr(), "built %s for %s, %s\n", shortName(opt.Tag), img.Platform, size(skerry.Bytes(img.Size)))
			}
			return nil
		})}
	fs := cmd.Flags()
	fs.StringVarP(&opt.Tag, "tag", "t", "", "name of the image, as repository:tag")
	fs.StringVar(&platform, "platform", "", "OS/ARCH[/VARIANT] or ARCH (default the platform of the executables)")
	fs.StringArrayVar(&opt.Entrypoint, "entrypoint", nil, "program; repeat to add arguments")
	fs.StringArrayVar(&opt.Cmd, "cmd", nil, "default argument; may be repeated")
	fs.StringArrayVar(&opt.Env, "env", nil, "environment variable NAME=VALUE; may be repeated")
	fs.StringVar(&opt.User, "user", "", "user, or user:group")
	fs.StringVar(&opt.Workdir, "workdir", "", "working directory of the program")
	fs.StringArrayVar(&labels, "label", nil, "label KEY=VALUE; may be repeated")
	fs.StringSliceVar(&opt.ExposedPorts, "expose", nil, "port that the program listens on, such as 8080 or 53/udp")
	fs.StringVar(&opt.StopSignal, "stop-signal", "", "signal that asks the program to stop")
	fs.StringVar(&opt.CACertificates, "ca-certificates", "", "PEM file with certificate authorities, for a static executable")
	fs.BoolVar(&opt.Index, "add-platform", false, "keep the name's images for other platforms")
	from.flags(fs)
	fs.BoolVar(&push, "push", false, "also push the image")
	fs.BoolVarP(&quiet, "quiet", "q", false, "say less")
	reg.add(cmd)
	return cmd
}

func keyValues(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%s %q is not KEY=VALUE", flag, s)
		}
		m[k] = v
	}
	return m, nil
}

func (a *app) push(cmd *cobra.Command, st *artifact.Store, reg *registryFlags, from, to string, quiet bool) error {
	return a.pushTelling(cmd, cmd.OutOrStdout(), st, reg, from, to, quiet)
}

// tellAbsent says which platforms of an image were left out of what was made of it.
func tellAbsent(cmd *cobra.Command, st *artifact.Store, name string) {
	absent, err := artifact.Absent(st, name)
	if err != nil || len(absent) == 0 { // it was there a moment ago
		return
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "warning: of %s, what is for %s is not in this store and was left out; pull it with --platform first\n",
		shortName(name), strings.Trim(fmt.Sprint(absent), "[]"))
}

// pushTelling pushes an image and writes what it is called there.
func (a *app) pushTelling(cmd *cobra.Command, out io.Writer, st *artifact.Store, reg *registryFlags, from, to string, quiet bool) error {
	src, done, err := a.source(reg, to)
	if err != nil {
		return err
	}
	defer done()
	show, copies := progressTo(cmd.ErrOrStderr(), "pushed", quiet), ""
	d, err := st.Push(cmd.Context(), from, to, src, func(p artifact.Progress) {
		if p.Copies != "" {
			copies = p.Copies
		} else if show != nil {
			show(p)
		}
	})
	if err != nil {
		return fmt.Errorf("push %s: %w", shortName(to), err)
	}
	tellAbsent(cmd, st, from)
	if have, of, ok := strings.Cut(copies, "/"); ok && have != of {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s machines that stand by have the image so far; "+
			"`skerry get images -o wide` shows when the others do\n", have, of)
	}
	fmt.Fprintf(out, "%s@%s\n", shortName(to), d)
	return nil
}

func (a *app) imagePull() *cobra.Command {
	var reg registryFlags
	var platform string
	var quiet bool
	cmd := &cobra.Command{Use: "pull NAME", Short: "Pull an image into the store", Args: cobra.ExactArgs(1),
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			name, err := fullName(args[0])
			if err != nil {
				return err
			}
			p := artifact.Platform{OS: "linux", Arch: runtime.GOARCH}
			if platform != "" {
				if p, err = artifact.ParsePlatform(platform); err != nil {
					return skerry.Errorf(skerry.CodeInvalid, "--platform: %w", err)
				}
			}
			src, done, err := a.source(&reg, name)
			if err != nil {
				return err
			}
			defer done()
			img, err := st.Pull(cmd.Context(), name, p, progressTo(cmd.ErrOrStderr(), "fetched", quiet), src)
			if err != nil {
				return fmt.Errorf("pull %s: %w", shortName(name), err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", shortName(name), img.Digest)
			return nil
		})}
	cmd.Flags().StringVar(&platform, "platform", "", "OS/ARCH[/VARIANT] or ARCH (default this machine's architecture)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "say less")
	reg.add(cmd)
	return cmd
}

// progressTo shows how far a transfer is, on a terminal only.
func progressTo(w io.Writer, verb string, quiet bool) func(artifact.Progress) {
	f := console.Terminal(w)
	if quiet || f == nil {
		return nil
	}
	var last time.Time
	return func(p artifact.Progress) {
		if now := time.Now(); now.Sub(last) > 100*time.Millisecond || p.Done == p.Total {
			last = now
			fmt.Fprintf(f, "\r\x1b[K%s %s of %s", verb, size(skerry.Bytes(p.Done)), size(skerry.Bytes(p.Total)))
			if p.Done == p.Total {
				fmt.Fprint(f, "\r\x1b[K")
			}
		}
	}
}

func imageList() *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the images in this user's store", Args: cobra.NoArgs,
		Long: "List the images in this user's store. `skerry get images` lists those of the built-in registry.",
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, _ []string) error {
			list := st.List()
			t := table{head: []string{"NAME", "DIGEST", "PLATFORMS", "SIZE", "ADDED"}, wide: []string{"CREATED", "LAST-USED"}}
			now := time.Now()
			for _, e := range list {
				var ps []string
				for _, p := range e.Platforms {
					ps = append(ps, p.String())
				}
				platforms := strings.Join(ps, ",")
				if e.Broken != "" {
					platforms = "broken: " + e.Broken
				}
				t.add("image/"+shortName(e.Ref), []string{shortName(e.Ref), shortDigest(string(e.Digest)), platforms, size(skerry.Bytes(e.Size)),
					age(now, e.Added)}, age(now, e.Created), age(now, e.LastUsed))
			}
			return printList(cmd, format, list, &t)
		})}
	outputFlag(cmd, &format)
	return cmd
}

func imageRemove() *cobra.Command {
	return &cobra.Command{Use: "rm NAME...", Short: "Remove images from the store; prune frees their space", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: completeImages,
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			for _, name := range args {
				full, err := fullName(name)
				if err != nil {
					return err
				}
				if err := st.Remove(full); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s removed\n", shortName(full))
			}
			return nil
		})}
}

func imageTag() *cobra.Command {
	return &cobra.Command{Use: "tag NAME NEW", Short: "Give an image another name", Args: cobra.ExactArgs(2),
		ValidArgsFunction: completeImages,
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			from, err := fullName(args[0])
			if err != nil {
				return err
			}
			to, err := fullName(args[1])
			if err != nil {
				return err
			}
			return st.Tag(from, to)
		})}
}

func imageExport() *cobra.Command {
	var output string
	cmd := &cobra.Command{Use: "export NAME... -o FILE", Short: "Export images as an OCI archive", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: completeImages,
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			var names []string
			for _, n := range args {
				full, err := fullName(n)
				if err != nil {
					return err
				}
				names = append(names, full)
			}
			if output == "-" || output == "" {
				if console.Terminal(cmd.OutOrStdout()) != nil {
					return skerry.Errorf(skerry.CodeInvalid, "refusing to write an archive to a terminal").WithHint("name a file with -o")
				}
				output = ""
			}
			if err := exportTo(cmd, st, output, names); err != nil {
				return err
			}
			for _, name := range names {
				tellAbsent(cmd, st, name)
			}
			return nil
		})}
	cmd.Flags().StringVarP(&output, "output", "o", "-", "file; - is standard output")
	return cmd
}

// exportTo writes an archive of images to a file, which is there only when it is whole; "" is the standard output.
func exportTo(cmd *cobra.Command, st *artifact.Store, file string, names []string) error {
	var unread error
	archive := func(out io.Writer) error {
		to := &sink{Writer: out}
		if err := st.Export(cmd.Context(), to, names...); err != nil && to.err == nil {
			unread = err
		}
		return cmp.Or(to.err, unread)
	}
	where, left, err := file, noNewFile, error(nil)
	if file == "" {
		where, left = standardOutput, unusable
		err = archive(cmd.OutOrStdout())
	} else {
		err = newFile(file, archive)
	}
	if err == nil || unread != nil {
		return unread
	}
	return notWritten("the archive", where, left, err)
}

func imagePrune() *cobra.Command {
	var all bool
	var older time.Duration
	cmd := &cobra.Command{Use: "prune", Short: "Remove unreferenced content", Args: cobra.NoArgs,
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, _ []string) error {
			keep := func(artifact.Entry) bool { return !all }
			p, err := st.Prune(nil, time.Now().Add(-older), keep)
			if err != nil {
				return err
			}
			for _, n := range p.Names {
				fmt.Fprintf(cmd.OutOrStdout(), "%s removed\n", shortName(n))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "freed %s\n", size(skerry.Bytes(p.Bytes)))
			return nil
		})}
	cmd.Flags().BoolVar(&all, "all", false, "also remove names")
	cmd.Flags().Var(spanValue{&older}, "unused-for", "with --all: only names unused for this long, such as 7d")
	return cmd
}

func completeImages(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	dir, err := imageDir()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	st, err := artifact.Open(dir, artifact.Options{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer st.Close()
	var out []string
	for _, e := range st.List() {
		out = append(out, shortName(e.Ref))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
