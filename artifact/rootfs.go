package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxRootFiles is how many files a tar of a root file system may have.
const maxRootFiles = 1_000_000

// isTar reports whether a file begins as a tar does, compressed or not.
func isTar(ctx context.Context, file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	t, done, err := openTar(ctx, f)
	if err != nil {
		return false
	}
	defer done()
	_, err = t.Next()
	return err == nil
}

// rootLayer writes a tar with a root file system as a layer. Owners, times and extended attributes stay as they are, so
// the same tar gives the same digest.
func (o *BuildOptions) rootLayer(ctx context.Context, store *Store) (layer ocispec.Descriptor, diffID digest.Digest, platform Platform,
	err error) {
	if what, err := Recognize(ctx, o.Source); what == ImageArchive {
		return layer, "", platform, &FileError{o.Source, "it is an archive of images, and no root file system",
			"take it as it is: skerry image push " + o.Source}
	} else if err != nil && o.Platform == (Platform{}) {
		return layer, "", platform, err
	}
	file, err := os.Open(o.Source)
	if err != nil {
		return layer, "", platform, err
	}
	defer file.Close()
	in, done, err := openTar(ctx, file)
	if err != nil {
		return layer, "", platform, err
	}
	defer done()
	found := map[Platform]string{}
	layer, diffID, err = store.writeLayer(func(out *tar.Writer) error {
		var total int64
		for n := 0; ; n++ {
			h, err := in.Next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return tarError(err)
			}
			if total += h.Size; n >= min(maxRootFiles, store.o.MaxEntries) || h.Size < 0 || total > store.o.MaxLayer {
				return fmt.Errorf("root file system: %w", ErrTooLarge)
			}
			if err := o.rootFile(out, h, in, found); err != nil {
				return fmt.Errorf("%.200q: %w", h.Name, err)
			}
		}
	})
	if err != nil {
		return layer, "", platform, err
	}
	if platform, err = o.platform(found); err != nil {
		_ = store.release([]digest.Digest{layer.Digest}) // nobody names it; Prune does it later
	}
	return layer, diffID, platform, err
}

// rootFile writes one entry of a root file system into a layer.
func (o *BuildOptions) rootFile(out *tar.Writer, header *tar.Header, content io.Reader, found map[Platform]string) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleanArchive(header.Name)
	if err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(name), whiteout) {
		return fmt.Errorf("%w: a name that begins with %s would delete a file", ErrInvalid, whiteout)
	}
	to := &tar.Header{Typeflag: header.Typeflag, Name: name, Mode: header.Mode & 0o7777,
		Uid: header.Uid, Gid: header.Gid, ModTime: header.ModTime}
	for k, v := range header.PAXRecords {
		if strings.HasPrefix(k, "SCHILY.xattr.") {
			if to.PAXRecords == nil {
				to.PAXRecords = map[string]string{}
			}
			to.PAXRecords[k] = v
		}
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		to.Typeflag, to.Size = tar.TypeReg, header.Size
	case tar.TypeDir:
		to.Name += "/"
		if name == "" {
			to.Name = "./"
		}
	case tar.TypeSymlink: // wherever it leads, that is inside the instance
		to.Linkname = header.Linkname
	case tar.TypeLink:
		if to.Linkname, err = cleanArchive(header.Linkname); err != nil {
			return err
		}
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if o.Skipped != nil {
			o.Skipped(name)
		}
		return nil
	default:
		return fmt.Errorf("%w: an entry of the unknown type %q", ErrInvalid, header.Typeflag)
	}
	if name == "" && header.Typeflag != tar.TypeDir {
		return fmt.Errorf("%w: the root is no folder", ErrInvalid)
	}
	if err := out.WriteHeader(to); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if to.Typeflag != tar.TypeReg {
		return nil
	}
	var head [20]byte
	size, err := io.ReadFull(content, head[:min(int64(len(head)), header.Size)])
	if err != nil && !errors.Is(err, io.EOF) {
		return tarError(err)
	}
	if p, ok := headPlatform(head); ok && header.Mode&0o111 != 0 {
		found[p] = name
	}
	if strings.HasPrefix(string(head[:size]), "\x00asm\x01\x00\x00\x00") {
		found[WasmPlatform()] = name
	}
	if _, err := out.Write(head[:size]); err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return err
}
