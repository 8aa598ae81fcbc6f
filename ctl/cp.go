package ctl

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/execstream"
)

func (a *app) cpCommand() *cobra.Command {
	var container string
	cmd := &cobra.Command{Use: "cp SOURCE DESTINATION", Short: "Copy files to or from an instance", Args: cobra.ExactArgs(2),
		Long: `Copy a file or a directory to or from an instance. One of both is INSTANCE:PATH or APP/SERVICE:PATH, which means a ready
instance. A DESTINATION that is a directory, or one that ends in a slash, gets the copy below its name. The instance needs a tar in
its image. Copied files belong to who copies. Of links, only those that stay within what is copied are taken over; other links and
special files are left out, and named. Where SOURCE itself is one, that is an error.`,
		Example: "  skerry cp shop/front:/var/log/app.log .\n  skerry cp -c proxy certs/ shop/front:/etc/proxy/",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			fromName, fromPath, fromThere := remotePath(args[0])
			toName, toPath, toThere := remotePath(args[1])
			if fromThere == toThere {
				return skerry.Errorf(skerry.CodeInvalid, "one of both must be in an instance").
					WithHint("write it as INSTANCE:PATH or APP/SERVICE:PATH; a local path with a colon as ./a:b")
			}
			name := fromName
			if toThere {
				name = toName
			}
			inst, err := a.oneInstance(cmd.Context(), client, name)
			if err != nil {
				return err
			}
			if toThere {
				return copyInto(cmd, client, inst.ID, container, fromPath, toPath)
			}
			return copyOut(cmd, client, inst.ID, container, fromPath, toPath)
		})}
	containerFlag(cmd, &container)
	return cmd
}

// remotePath reads NAME:PATH. What begins with a dot or a slash is a local path.
func remotePath(s string) (name, file string, remote bool) {
	name, file, remote = strings.Cut(s, ":")
	if !remote || name == "" || s[0] == '.' || s[0] == '/' {
		return "", s, false
	}
	return name, file, true
}

// tarIn runs tar in an instance, and returns its exit status. What it reads, and what it writes, are the caller's.
func tarIn(cmd *cobra.Command, client *api.Client, id skerry.InstanceID, container string, args []string, in io.Reader,
	out, errOut io.Writer) (int, error) {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	opt := api.ExecOptions{Command: append([]string{"tar"}, args...), Container: container, Stdin: in != nil}
	conn, closer, err := client.Exec(ctx, id, opt)
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	stop := context.AfterFunc(ctx, func() { closer.Close() })
	defer stop()
	var failed error // of what is sent; read when sent is closed
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if in == nil {
			return
		}
		if _, failed = io.Copy(conn.Writer(execstream.Stdin), in); failed == nil {
			_ = conn.Write(execstream.StdinEOF, nil) // it may have ended at the end of the archive
		} else {
			closer.Close() // tar would take what it has for the whole
		}
	}()
	res, err := readExec(conn, out, errOut)
	closer.Close() // whoever ends before it has read all keeps nobody waiting
	<-sent
	if err != nil && failed != nil {
		return 0, failed
	}
	if failed != nil && res.Error == "" && res.Code == 0 {
		return 0, skerry.Errorf(skerry.CodeUnavailable, "tar in %s ended before it had read all: %w", id, failed)
	}
	if res.Error != "" {
		return 0, skerry.Errorf(skerry.CodeUnsupported, "tar could not be run in %s: %s", id, res.Error).
			WithHint("the image needs a tar for that")
	}
	if err == nil && res.Code != 0 {
		return res.Code, nil
	}
	return 0, ended(cmd.Context(), id, res, err)
}

// copied returns an error if tar ended with one.
func copied(id skerry.InstanceID, status int, err error) error {
	if err == nil && status != 0 {
		return skerry.Errorf(skerry.CodeInvalid, "tar in %s ended with status %d", id, status)
	}
	return err
}

// isDirectory reports whether a path is a directory in an instance: tar can pack that alone.
func isDirectory(cmd *cobra.Command, client *api.Client, id skerry.InstanceID, container, file string) (bool, error) {
	status, err := tarIn(cmd, client, id, container, []string{"cf", "-", "--no-recursion", "-C", file, "."}, nil, io.Discard, io.Discard)
	return err == nil && status == 0, err
}

// copyInto sends a file or a directory into an instance.
func copyInto(cmd *cobra.Command, client *api.Client, id skerry.InstanceID, container, from, to string) error {
	if to == "" {
		return skerry.Errorf(skerry.CodeInvalid, "the path in the instance is missing").WithHint("write it after the colon")
	}
	if _, err := os.Stat(from); err != nil {
		return err
	}
	abs, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	// Without that, tar would replace an empty directory by a file.
	if there, err := isDirectory(cmd, client, id, container, to); err != nil {
		return err
	} else if there {
		to += "/"
	}
	dir, name := path.Split(to)
	if name == "" || name == "." {
		name = filepath.Base(abs)
	}
	archive, packing := io.Pipe()
	go func() { packing.CloseWithError(pack(packing, abs, name, cmd.ErrOrStderr())) }()
	if dir == "" {
		dir = "."
	}
	status, err := tarIn(cmd, client, id, container, []string{"xf", "-", "-C", dir}, archive, io.Discard, cmd.ErrOrStderr())
	archive.Close()
	return copied(id, status, err)
}

// pack writes a file, or a directory with all that is below it, as an archive in which it has another name.
func pack(into io.Writer, from, name string, told io.Writer) error {
	out := tar.NewWriter(into)
	err := filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if file == from {
			info, err = os.Stat(file) // what is named may be a link
		}
		if err != nil {
			return err
		}
		if file == from && !info.IsDir() && !info.Mode().IsRegular() {
			return skerry.Errorf(skerry.CodeUnsupported, "%s is no file and no directory", from)
		}
		return packOne(out, file, path.Join(name, filepath.ToSlash(rel)), info, told)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func packOne(out *tar.Writer, file, name string, info fs.FileInfo, told io.Writer) error {
	link := ""
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.IsDir():
	case mode&fs.ModeSymlink != 0:
		to, err := os.Readlink(file)
		if err != nil {
			return err
		}
		if !staysWithin(name, filepath.ToSlash(to)) {
			fmt.Fprintf(told, "warning: %s is left out: it is a link to %s, elsewhere\n", file, to)
			return nil
		}
		link = filepath.ToSlash(to)
	default:
		fmt.Fprintf(told, "warning: %s is left out: it is no file\n", file)
		return nil
	}
	head, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	head.Name, head.Uid, head.Gid, head.Uname, head.Gname = name, 0, 0, "", ""
	if info.IsDir() {
		head.Name += "/"
	}
	if err := out.WriteHeader(head); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(out, f)
	return err
}

// staysWithin reports whether a link under a name leads to what is copied, too. What a target has after .. follows from where the link is;
// a .. after a name need not, because that name may be a link as well.
func staysWithin(name, to string) bool {
	first, _, below := strings.Cut(name, "/")
	rest := to
	for rest == ".." || strings.HasPrefix(rest, "../") {
		rest = strings.TrimPrefix(rest[2:], "/")
	}
	if slices.Contains(strings.Split(rest, "/"), "..") {
		return false
	}
	at := path.Join(path.Dir(name), to)
	return below && !path.IsAbs(to) && (at == first || strings.HasPrefix(at, first+"/"))
}

// copyOut takes a file or a directory out of an instance.
func copyOut(cmd *cobra.Command, client *api.Client, id skerry.InstanceID, container, from, to string) error {
	from = path.Clean(from)
	dir, name := path.Split(from)
	if name == "" || name == "." || name == ".." {
		return skerry.Errorf(skerry.CodeInvalid, "%q names no file or directory", from).WithHint("write INSTANCE:/path/to/it")
	}
	parent, as := filepath.Dir(to), filepath.Base(to)
	if info, err := os.Stat(to); strings.HasSuffix(to, "/") || err == nil && info.IsDir() {
		parent, as = to, name
	}
	root, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	defer root.Close()
	if dir == "" {
		dir = "."
	}
	archive, packing := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := unpack(root, archive, name, as, cmd.ErrOrStderr())
		archive.CloseWithError(err)
		unpacked <- err
	}()
	status, err := tarIn(cmd, client, id, container, []string{"cf", "-", "-C", dir, "./" + name}, nil, packing, cmd.ErrOrStderr())
	err = copied(id, status, err)
	packing.CloseWithError(err)
	if problem := <-unpacked; problem != nil && !errors.Is(problem, err) {
		return problem
	}
	return err
}

// unpack writes what is below a name of an archive into a directory, under another name, and nothing elsewhere: who made the archive is
// not trusted.
func unpack(root *os.Root, sent io.Reader, name, as string, told io.Writer) error {
	archive := tar.NewReader(sent)
	found := false
	var inside *os.Root // of a directory that is copied: its links lead nowhere else, not even to what is beside it
	defer func() {
		if inside != nil {
			inside.Close()
		}
	}()
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		below, ok := belowName(head.Name, name)
		if !ok {
			return skerry.Errorf(skerry.CodeInvalid, "the instance sent %q, which nobody asked for", head.Name)
		}
		found = true
		at, file := root, as
		if below != "" {
			if inside == nil {
				if inside, err = root.OpenRoot(as); err != nil {
					return err
				}
			}
			at, file = inside, below
		}
		switch kind := head.Typeflag; {
		case below == "" && kind != tar.TypeReg && kind != tar.TypeDir:
			return skerry.Errorf(skerry.CodeUnsupported, "%s is no file and no directory in the instance", name).
				WithHint("of a link, name what it leads to")
		case kind == tar.TypeLink:
			to, ok := belowName(head.Linkname, name)
			if !ok || !linkOne(at, filepath.FromSlash(to), filepath.FromSlash(file)) {
				fmt.Fprintf(told, "warning: %s is left out: it is another name of %s, which is not copied\n", path.Join(as, below),
					head.Linkname)
			}
			continue
		}
		if err := unpackOne(at, archive, head, file, path.Join(as, below), told); err != nil {
			return err
		}
	}
	if !found {
		return skerry.Errorf(skerry.CodeNotFound, "there was nothing to copy")
	}
	_, err := io.Copy(io.Discard, sent) // what pads the archive
	return err
}

// belowName gives the rest of a path in an archive that is the name or below it.
func belowName(file, name string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path.Clean(file)+"/", name+"/")
	return strings.TrimSuffix(rest, "/"), ok && !strings.HasPrefix(rest, "../")
}

// linkOne gives a file another name. It must be a file: a link would lead elsewhere from there.
func linkOne(root *os.Root, file, name string) bool {
	info, err := root.Lstat(file)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if there, err := root.Lstat(name); err == nil {
		if os.SameFile(there, info) {
			return true
		}
		if !there.Mode().IsRegular() || root.Remove(name) != nil {
			return false
		}
	}
	return root.Link(file, name) == nil || copyOne(root, file, name) == nil
}

// copyOne is for file systems where a file has one name.
func copyOne(root *os.Root, file, name string) error {
	from, err := root.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// unpackOne writes an entry to a file below a directory; name is that of the file in messages.
func unpackOne(root *os.Root, archive io.Reader, head *tar.Header, file, name string, told io.Writer) error {
	file = filepath.FromSlash(file)
	mode := head.FileInfo().Mode().Perm()
	switch head.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(file, mode|0o700)
	case tar.TypeReg:
		if info, err := root.Lstat(file); err == nil && !info.Mode().IsRegular() {
			return skerry.Errorf(skerry.CodeConflict, "%s is there, and no file", name)
		}
		f, err := root.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode|0o200)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, archive)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		if !staysWithin(name, head.Linkname) || belowLink(root, file) {
			fmt.Fprintf(told, "warning: %s is left out: it is a link to %s, elsewhere\n", name, head.Linkname)
			return nil
		}
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(filepath.FromSlash(head.Linkname), file)
	}
	fmt.Fprintf(told, "warning: %s is left out: it is no file\n", name)
	return nil
}

// belowLink reports whether a file is reached by a link: then it is not where its name says.
func belowLink(root *os.Root, file string) bool {
	for dir := filepath.Dir(file); dir != "."; dir = filepath.Dir(dir) {
		if info, err := root.Lstat(dir); err == nil && !info.IsDir() {
			return true
		}
	}
	return false
}
