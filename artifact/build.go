package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// BuildOptions for Build. Source and Tag are needed.
type BuildOptions struct {
	// Source is a folder, which becomes the root of the image, or a static Linux executable or a WebAssembly module,
	// which becomes /NAME beside /etc/passwd, /etc/group and an empty /tmp, or a kernel for a machine of its own, which
	// becomes /NAME alone, or a disk with a system of its own (qcow2, or raw with a boot sector), which becomes
	// /disk/NAME alone, or a tar of a root file system, which keeps its owners and times.
	Source string
	// Skipped is told of devices and pipes in a tar, which are left out; nil tells nobody.
	Skipped func(name string)
	Tag     string // name of the image; it must not have a digest
	// Platform is needed for a folder without executables; zero takes what the executables are built for.
	Platform     Platform
	Entrypoint   []string // for an executable, itself unless given
	Cmd          []string
	Env          []string // KEY=VALUE
	User         string
	Labels       map[string]string
	Workdir      string
	ExposedPorts []string // "8080" or "8080/udp"
	StopSignal   string
	// CACertificates is a PEM file put at /etc/ssl/certs/ca-certificates.crt of an image made from an executable; empty
	// puts none.
	CACertificates string
	// Index adds the image to those that Tag has for other platforms, instead of replacing them.
	Index bool
}

// Build makes an image of one layer and names it. The same content and options give the same digest: names are sorted,
// times fixed, owners root. Unless the options say more, file modes are kept.
func (s *Store) Build(ctx context.Context, o BuildOptions) (Image, error) {
	img, err := s.build(ctx, o)
	if err != nil {
		return Image{}, fmt.Errorf("build %s: %w", o.Tag, diskError(err))
	}
	return img, nil
}

func (s *Store) build(ctx context.Context, o BuildOptions) (Image, error) {
	ref, err := imageref.Parse(o.Tag)
	if err != nil {
		return Image{}, err
	}
	if ref.Digest != "" {
		return Image{}, errors.New("the name has a digest, which only the content decides; leave it away")
	}
	conf, err := o.config()
	if err != nil {
		return Image{}, err
	}
	layer, diffID, platform, err := o.layerOf(ctx, s, &conf)
	if err != nil {
		return Image{}, err
	}
	defer s.pin(layer.Digest)()
	epoch := time.Unix(0, 0).UTC()
	raw := mustJSON(ocispec.Image{Created: &epoch, Platform: ocispec.Platform{OS: platform.OS, Architecture: platform.Arch,
		Variant: platform.Variant}, Config: conf, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{diffID}},
		History: []ocispec.History{{Created: &epoch, CreatedBy: "skerry image build"}}})
	confDigest, err := s.putBlob(raw, "")
	if err != nil {
		return Image{}, err
	}
	defer s.pin(confDigest)()
	manifest, err := parseManifest(mustJSON(ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: confDigest, Size: int64(len(raw))},
		Layers:    []ocispec.Descriptor{layer}}))
	if err != nil {
		return Image{}, err
	}
	if _, err := s.putBlob(manifest.raw, ""); err != nil {
		return Image{}, err
	}
	defer s.pin(manifest.desc.Digest)()
	for _, sum := range []digest.Digest{layer.Digest, confDigest} { // or a store that may ask others would ask for them
		if err := s.proofs.note(ref, sum); err != nil {
			return Image{}, err
		}
	}
	top := manifest.desc.Digest
	if o.Index {
		if top, err = s.addToIndex(ref, manifest, platform); err != nil {
			return Image{}, err
		}
	}
	if err := s.setName(ref, top); err != nil {
		return Image{}, err
	}
	img, err := s.image(manifest.desc.Digest)
	img.Ref, img.Digest = ref, top
	return img, err
}

// layerOf writes the one layer, and gives what it is for.
func (o *BuildOptions) layerOf(ctx context.Context, store *Store, conf *ocispec.ImageConfig) (layer ocispec.Descriptor,
	diffID digest.Digest, platform Platform, err error) {
	st, err := os.Stat(o.Source)
	if err != nil {
		return layer, "", platform, fmt.Errorf("source: %w", err)
	}
	if st.Mode().IsRegular() && isTar(ctx, o.Source) {
		return o.rootLayer(ctx, store)
	}
	var files []layerFile
	if st.IsDir() {
		files, err = o.folder()
	} else {
		files, err = o.executable(conf)
	}
	if err != nil {
		return layer, "", platform, err
	}
	if platform, err = o.platform(programs(files)); err != nil {
		return layer, "", platform, err
	}
	layer, diffID, err = writeFiles(ctx, store, files)
	return layer, diffID, platform, err
}

// addToIndex gives the index of what r means now, with m in place of what it had for the same platform.
func (s *Store) addToIndex(ref imageref.Ref, m *manifest, platform Platform) (digest.Digest, error) {
	idx := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	if old, ok := s.Lookup(ref); ok {
		om, err := s.readManifest(old)
		switch {
		case err != nil:
			return "", err
		case om.index != nil:
			idx.Manifests = om.index.Manifests
		default:
			have, err := s.image(old)
			if err != nil {
				return "", err
			}
			d := om.desc
			d.Platform = &ocispec.Platform{OS: have.Platform.OS, Architecture: have.Platform.Arch, Variant: have.Platform.Variant}
			idx.Manifests = []ocispec.Descriptor{d}
		}
	}
	idx.Manifests = slices.DeleteFunc(slices.Clone(idx.Manifests),
		func(d ocispec.Descriptor) bool { return fromSpec(d.Platform) == platform.normal() })
	d := m.desc
	d.Platform = &ocispec.Platform{OS: platform.OS, Architecture: platform.Arch, Variant: platform.Variant}
	idx.Manifests = append(idx.Manifests, d)
	slices.SortFunc(idx.Manifests, func(a, b ocispec.Descriptor) int {
		return strings.Compare(fromSpec(a.Platform).String(), fromSpec(b.Platform).String())
	})
	return s.putBlob(mustJSON(idx), "")
}

func (o *BuildOptions) config() (ocispec.ImageConfig, error) {
	c := ocispec.ImageConfig{User: o.User, Env: o.Env, Entrypoint: o.Entrypoint, Cmd: o.Cmd, WorkingDir: o.Workdir, Labels: o.Labels,
		StopSignal: o.StopSignal}
	for _, e := range o.Env {
		if k, _, ok := strings.Cut(e, "="); !ok || k == "" {
			return c, fmt.Errorf("environment %q is not KEY=VALUE", e)
		}
	}
	if o.Workdir != "" && !path.IsAbs(o.Workdir) {
		return c, fmt.Errorf("working directory %q is not absolute", o.Workdir)
	}
	for _, p := range o.ExposedPorts {
		num, proto, ok := strings.Cut(p, "/")
		if !ok {
			proto = "tcp"
		}
		if !imageref.ValidPort(num) || proto != "tcp" && proto != "udp" && proto != "sctp" {
			return c, fmt.Errorf("port %q is not a number, or a number with /tcp or /udp", p)
		}
		if c.ExposedPorts == nil {
			c.ExposedPorts = map[string]struct{}{}
		}
		c.ExposedPorts[num+"/"+proto] = struct{}{}
	}
	return c, nil
}

// layerFile is one entry of the layer to be.
type layerFile struct {
	name string // in the image, without a leading slash
	mode fs.FileMode
	link string // target of a symbolic link
	path string // where its content is, or
	data []byte // the content itself
	size int64
}

func (o *BuildOptions) executable(c *ocispec.ImageConfig) ([]layerFile, error) {
	st, err := os.Stat(o.Source)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("source %s is neither a folder nor a file", o.Source)
	}
	name := filepath.Base(o.Source)
	disk, err := isDisk(o.Source)
	if err != nil {
		return nil, err
	}
	if disk {
		return []layerFile{{name: DiskDir[1:], mode: fs.ModeDir | 0o755},
			{name: DiskDir[1:] + "/" + name, mode: 0o644, path: o.Source, size: st.Size()}}, nil
	}
	platform, static, err := programPlatform(o.Source)
	bare := platform.OS == bareOS || o.Platform.OS == bareOS
	if err != nil && !bare {
		return nil, fmt.Errorf("source %s is no Linux executable, no WebAssembly module, no kernel and no disk (%w); give one, or a folder",
			o.Source, err)
	}
	if bare {
		if len(c.Entrypoint) == 0 {
			c.Entrypoint = []string{"/" + name}
		}
		return []layerFile{{name: name, mode: 0o755, path: o.Source, size: st.Size()}}, nil
	}
	if !static {
		return nil, fmt.Errorf("source %s needs shared libraries, which the image would not have; link it statically (CGO_ENABLED=0 for Go), or build from a folder with them", o.Source)
	}

	if len(c.Entrypoint) == 0 {
		c.Entrypoint = []string{"/" + name}
	}
	files := []layerFile{
		{name: "etc", mode: fs.ModeDir | 0o755},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnobody:x:65534:\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n")},
		{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{name: name, mode: 0o755, path: o.Source, size: st.Size()},
	}
	if name == "etc" || name == "tmp" {
		return nil, fmt.Errorf("source %s: the name is taken in the image; rename it", o.Source)
	}
	if o.CACertificates != "" {
		pem, err := os.ReadFile(o.CACertificates)
		if err != nil {
			return nil, fmt.Errorf("CA certificates: %w", err)
		}
		if !bytes.Contains(pem, []byte("BEGIN CERTIFICATE")) {
			return nil, fmt.Errorf("CA certificates: %s holds no certificate in PEM form", o.CACertificates)
		}
		files = append(files, layerFile{name: "etc/ssl", mode: fs.ModeDir | 0o755}, layerFile{name: "etc/ssl/certs", mode: fs.ModeDir | 0o755},
			layerFile{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: pem})
	}
	return files, nil
}

func (o *BuildOptions) folder() ([]layerFile, error) {
	var files []layerFile
	err := filepath.WalkDir(o.Source, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(o.Source, p)
		if err != nil || name == "." {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		f := layerFile{name: filepath.ToSlash(name), mode: st.Mode(), path: p, size: st.Size()}
		switch {
		case e.IsDir(), st.Mode().IsRegular():
		case st.Mode()&fs.ModeSymlink != 0:
			if f.link, err = os.Readlink(p); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is a socket, pipe or device, which an image cannot hold", p)
		}
		if base := path.Base(f.name); strings.HasPrefix(base, whiteout) {
			return fmt.Errorf("%s: a name that begins with %s would delete a file", p, whiteout)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

const whiteout = ".wh."

// programs gives what the executables among files are built for, with the name of one.
func programs(files []layerFile) map[Platform]string {
	found := map[Platform]string{}
	for _, f := range files {
		if !f.mode.IsRegular() || f.path == "" || f.mode&0o111 == 0 && !strings.HasSuffix(f.name, ".wasm") {
			continue
		}
		if p, _, err := programPlatform(f.path); err == nil {
			found[p] = f.name
		}
	}
	return found
}

// platform finds out what the executables are built for, and that it is one thing, and the one asked for.
func (o *BuildOptions) platform(found map[Platform]string) (Platform, error) {
	want := o.Platform.normal()
	if want.OS == "" && want.Arch != "" {
		want.OS = "linux"
	}
	ps := slices.Collect(maps.Keys(found))
	switch {
	case want == Platform{} && len(ps) == 1:
		return ps[0], nil
	case want == Platform{} && len(ps) == 0:
		return Platform{}, errors.New("nothing in it tells a platform; name one, such as linux/arm64")
	case want == Platform{}:
		return Platform{}, fmt.Errorf("its executables are for several platforms (%s, %s); name the one that counts", ps[0], ps[1])
	}
	for p, name := range found {
		// Several: the folder may bring some for others, as long as one is for this platform.
		if want.runs(p) > 0 || want.OS == bareOS && p.Arch == want.Arch {
			return want, nil
		}
		if len(found) == 1 {
			return Platform{}, fmt.Errorf("%s is built for %s, not for %s; compile it for that, or name the right platform", name, p, want)
		}
	}
	if len(found) > 1 {
		return Platform{}, fmt.Errorf("none of its executables is built for %s", want)
	}
	return want, nil
}

// programPlatform reads for what an executable or a WebAssembly module is built, and whether it can run alone.
func programPlatform(name string) (p Platform, static bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return p, false, err
	}
	defer f.Close()
	var begin [8]byte
	if _, err := io.ReadFull(f, begin[:]); err == nil && string(begin[:]) == "\x00asm\x01\x00\x00\x00" {
		return WasmPlatform(), true, nil
	}
	if p, ok := kernelPlatform(f); ok {
		return p, true, nil
	}
	return elfPlatform(name)
}

// elfPlatform reads for what an executable is built, and whether it can run alone.
func elfPlatform(name string) (platform Platform, static bool, err error) {
	f, err := elf.Open(name)
	if err != nil {
		return platform, false, err
	}
	defer f.Close()
	platform, known := machinePlatform(f.Machine, f.Class)
	if !known {
		return platform, false, fmt.Errorf("unknown architecture %v", f.Machine)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return platform, false, fmt.Errorf("it is an object file, no executable")
	}
	static = true
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP {
			static = false
		}
	}
	return platform, static, nil
}

// machinePlatform gives what Linux executables for a machine are built for.
func machinePlatform(machine elf.Machine, class elf.Class) (Platform, bool) {
	archs := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_ARM: "arm", elf.EM_386: "386",
		elf.EM_PPC64: "ppc64le", elf.EM_S390: "s390x"}
	if class == elf.ELFCLASS64 {
		archs[elf.EM_RISCV], archs[elf.EM_LOONGARCH] = "riscv64", "loong64"
	}
	return Platform{OS: "linux", Arch: archs[machine]}, archs[machine] != ""
}

// writeFiles writes a layer of files, sorted by name.
func writeFiles(ctx context.Context, store *Store, files []layerFile) (ocispec.Descriptor, digest.Digest, error) {
	slices.SortFunc(files, func(a, b layerFile) int { return strings.Compare(a.name, b.name) })
	return store.writeLayer(func(t *tar.Writer) error {
		for _, f := range files {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f.write(t); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		return nil
	})
}

// writeLayer writes a gzip layer and gives its descriptor and diff ID.
func (s *Store) writeLayer(fill func(*tar.Writer) error) (ocispec.Descriptor, digest.Digest, error) {
	fail := func(err error) (ocispec.Descriptor, digest.Digest, error) { return ocispec.Descriptor{}, "", err }
	w, err := s.newBlob()
	if err != nil {
		return fail(err)
	}
	defer w.discard()
	z, err := gzip.NewWriterLevel(w, gzip.DefaultCompression)
	if err != nil {
		return fail(err)
	}
	h := digest.Canonical.Digester()
	t := tar.NewWriter(io.MultiWriter(z, h.Hash()))
	if err := fill(t); err != nil {
		return fail(err)
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return fail(err)
	}
	d, err := w.commit("")
	if err != nil {
		return fail(err)
	}
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: d, Size: w.n}, h.Digest(), nil
}

func (f *layerFile) write(t *tar.Writer) error {
	header := &tar.Header{Name: f.name, ModTime: time.Unix(0, 0), Mode: int64(f.mode.Perm()), Typeflag: tar.TypeReg}
	for bit, tarBit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if f.mode&bit != 0 {
			header.Mode |= tarBit
		}
	}
	switch {
	case f.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, f.name+"/"
	case f.link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777
	case f.data != nil:
		header.Size = int64(len(f.data))
	default:
		header.Size = f.size
	}
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	if f.data != nil {
		_, err := t.Write(f.data)
		return err
	}
	in, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	n, err := io.Copy(t, in)
	if err == nil && n != f.size || errors.Is(err, tar.ErrWriteTooLong) {
		return errors.New("it changed while it was read; build again")
	}
	return err
}

func readerOf(b []byte) io.Reader { return bytes.NewReader(b) }
