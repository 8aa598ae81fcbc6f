package artifact

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Contents is what Recognize found in a file or directory.
type Contents int

// What a file or directory can hold.
const (
	ImageArchive Contents = iota + 1 // a tar with an OCI layout or of docker save, for Import
	LayoutFolder                     // a directory with an OCI layout, for ImportLayout
	RootArchive                      // a tar with a root file system, for Build
)

// FileError says why a file or directory is not taken for an image, and what makes one of it. It is an ErrInvalid.
type FileError struct {
	Path string
	Why  string
	Do   string // "" if nothing helps
}

func (e *FileError) Error() string { return e.Path + " holds no image: " + e.Why }

// Unwrap gives ErrInvalid.
func (e *FileError) Unwrap() error { return ErrInvalid }

// Recognize finds out by content in which form a file or a directory holds images. A *FileError gives the reason if it
// holds none. Tars may be compressed with gzip, zstd or bzip2.
func Recognize(ctx context.Context, file string) (Contents, error) {
	st, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	switch {
	case st.IsDir():
		return recognizeFolder(file)
	case !st.Mode().IsRegular():
		return 0, &FileError{file, "it is neither a file nor a directory", ""}
	}
	in, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	begin := bufio.NewReader(in)
	if why := otherFormat(begin, file); why != nil {
		return 0, why
	}
	t, done, err := openTar(ctx, begin)
	if err != nil {
		return 0, err
	}
	defer done()
	return recognizeTar(t, file)
}

func recognizeFolder(dir string) (Contents, error) {
	if _, err := os.Lstat(filepath.Join(dir, ocispec.ImageLayoutFile)); err == nil {
		raw, err := os.ReadFile(filepath.Join(dir, ocispec.ImageLayoutFile))
		if err != nil {
			return 0, err
		}
		if !bytes.Contains(raw, []byte(`"`+ocispec.ImageLayoutVersion+`"`)) {
			return 0, &FileError{dir, "its OCI layout is of another version than " + ocispec.ImageLayoutVersion, ""}
		}
		return LayoutFolder, nil
	}
	if name := Recipe(dir); name != "" {
		return 0, &FileError{dir, "its " + name + " has yet to be built", "build it: skerry image build " + dir + " -t NAME --push"}
	}
	return 0, &FileError{dir, "it has no OCI layout (" + ocispec.ImageLayoutFile + ")",
		"if it is the root file system of an image, pack it: skerry image build " + dir + " -t NAME --push"}
}

// Recipe is the name of the file in a directory that tells docker or buildah how to build an image, or "".
func Recipe(dir string) string {
	for _, name := range []string{"Dockerfile", "Containerfile"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// otherFormat names what a file is that people may take for an image, or gives nil.
func otherFormat(in *bufio.Reader, file string) error {
	head, err := in.Peek(8)
	if err != nil && err != io.EOF {
		return err
	}
	build := "skerry image build " + file + " -t NAME --push"
	for magic, what := range map[string]FileError{
		"\x7fELF":            {Why: "it is a program", Do: "make an image of it: " + build},
		"\x00asm":            {Why: "it is a WebAssembly module", Do: "make an image of it: " + build},
		"QFI\xfb":            {Why: "it is a disk (qcow2)", Do: "make an image of it: " + build + " --platform amd64"},
		"\xfd7zXZ\x00":       {Why: "it is compressed with xz, which is not read", Do: "decompress it: xz -d " + file},
		"PK\x03\x04":         {Why: "it is a zip file", Do: "write the image as a tar, such as with `docker save`"},
		"hsqs":               {Why: "it is a squashfs file system", Do: "write the root file system as a tar"},
		"7z\xbc\xaf\x27\x1c": {Why: "it is a 7z file", Do: "write the image as a tar, such as with `docker save`"},
	} {
		if bytes.HasPrefix(head, []byte(magic)) {
			what.Path = file
			return &what
		}
	}
	if len(head) == 0 {
		return &FileError{file, "it is empty", ""}
	}
	return nil
}

// recognizeTar reads as far as it has to. A program outside the blobs of a layout makes it a root file system.
func recognizeTar(archive *tar.Reader, file string) (Contents, error) {
	var total int64
	for n := 0; ; n++ {
		header, err := archive.Next()
		switch {
		case err == io.EOF && n == 0:
			return 0, &FileError{file, "it is an empty tar", ""}
		case err == io.EOF:
			return 0, &FileError{file, "it is a tar with neither index.json nor manifest.json, as images have, nor a program, as a root file " +
				"system has",
				"write it with `docker save`, `skerry image export` or `docker export`"}
		case err != nil && n == 0 && !errors.Is(err, ErrTooLarge):
			return 0, &FileError{file, "it is no tar", "write it with `docker save`, `skerry image export` or `docker export`"}
		case err != nil:
			return 0, tarError(err)
		}
		if total += header.Size; n >= maxRootFiles || total > maxArchiveBytes {
			return 0, fmt.Errorf("archive: %w", ErrTooLarge)
		}
		name, err := cleanArchive(header.Name)
		if err != nil {
			return 0, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if name == ocispec.ImageIndexFile || name == "manifest.json" {
			return ImageArchive, nil
		}
		if header.FileInfo().Mode()&0o111 == 0 || strings.HasPrefix(name, "blobs/") {
			continue
		}
		var head [20]byte
		if k, _ := io.ReadFull(archive, head[:]); k == len(head) {
			if _, ok := headPlatform(head); ok {
				return RootArchive, nil
			}
		}
	}
}

// headPlatform reads from the beginning of a Linux executable what it is built for.
func headPlatform(head [20]byte) (Platform, bool) {
	if string(head[:4]) != elf.ELFMAG {
		return Platform{}, false
	}
	class, machine, kind := elf.Class(head[elf.EI_CLASS]), uint16(head[18])|uint16(head[19])<<8, uint16(head[16])|uint16(head[17])<<8
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		machine, kind = uint16(head[19])|uint16(head[18])<<8, uint16(head[17])|uint16(head[16])<<8
	}
	if t := elf.Type(kind); t != elf.ET_EXEC && t != elf.ET_DYN {
		return Platform{}, false
	}
	return machinePlatform(elf.Machine(machine), class)
}

// openTar opens a tar that may be compressed. What it unpacks to is bounded in proportion to what it has: an image
// shrinks to a third, and a file of nothing but zeros to a thousandth, which would fill a disk.
func openTar(ctx context.Context, in io.Reader) (t *tar.Reader, done func() error, err error) {
	packed := &countReader{r: &ctxReader{ctx, in}}
	plain, err := decompress(packed)
	if err != nil {
		return nil, nil, err
	}
	return tar.NewReader(&ratioReader{r: plain, packed: packed}), plain.Close, nil
}

// How much a compressed archive may unpack to: so much in any case, and so many times its size above that.
const (
	freeRatio = 256 << 20
	maxRatio  = 200
)

type countReader struct {
	r io.Reader
	n int64
}

func (c *countReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

type ratioReader struct {
	r      io.Reader
	packed *countReader
	n      int64
}

func (r *ratioReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if r.n += int64(n); r.n > freeRatio && r.n/maxRatio > r.packed.n {
		return 0, fmt.Errorf("archive: %w: it unpacks to more than %d times its size", ErrTooLarge, maxRatio)
	}
	return n, err
}

// tarError tells a broken archive from one that is too large.
func tarError(err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, context.Canceled) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: the archive is no tar or is damaged: %w", ErrInvalid, err)
}

// sparse reports whether an entry has fewer bytes in the archive than it stands for.
func sparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}
