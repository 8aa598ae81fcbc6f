//go:build linux

package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// vmlinux gives the file of a kernel as Firecracker takes it, and an emulated processor starts it soonest: an ELF file. The image that
// distributions have, a bzImage, holds one that is compressed; it is unpacked once, by the program for its format.
func (d *Driver) vmlinux(ctx context.Context, k kernel) (string, error) {
	path := filepath.Join(d.opts.Dir, "kernel", k.Digest[:16]+".vmlinux")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fail := func(err error, hint string) (string, error) {
		return "", &runtime.StartError{Err: fmt.Errorf("unpack the guest kernel: %w", err), Hint: hint}
	}
	image, err := os.ReadFile(k.Path)
	if err != nil {
		return fail(err, "make it readable")
	}
	image, err = Unpack(ctx, image)
	if e, ok := errors.AsType[*runtime.StartError](err); ok {
		return fail(e.Err, e.Hint)
	}
	if err := keepAlone(path, image); err != nil {
		return fail(err, "free space below "+d.opts.Dir)
	}
	return path, nil
}

func isELF(b []byte) bool { return bytes.HasPrefix(b, []byte("\x7fELF")) }

func packageOf(program string) string {
	if program == "xz" {
		return "xz-utils"
	}
	return program
}

// payload gives the compressed kernel in a bzImage, and the program that unpacks it. The kernel's documentation of the x86 boot protocol
// describes the header.
func payload(image []byte) (program string, packed []byte, err error) {
	const sectors, magic, offset, length, header = 0x1f1, 0x202, 0x248, 0x24c, 0x250
	if len(image) < header || string(image[magic:magic+4]) != "HdrS" {
		return "", nil, errors.New("it is neither an ELF file nor a bzImage")
	}
	setup := uint64(image[sectors])
	if setup == 0 {
		setup = 4
	}
	from := (setup+1)*512 + uint64(binary.LittleEndian.Uint32(image[offset:]))
	size := uint64(binary.LittleEndian.Uint32(image[length:]))
	const trailer = 4 // the size of what is unpacked, which is part of gzip's format alone
	if size < trailer || from+size > uint64(len(image)) {
		return "", nil, errors.New("its header points outside of it")
	}
	packed = image[from : from+size]
	for start, program := range map[string]string{"\x1f\x8b": "gzip", "\xfd7zXZ": "xz", "\x02!L\x18": "lz4", "\x28\xb5\x2f\xfd": "zstd"} {
		if bytes.HasPrefix(packed, []byte(start)) {
			if program != "gzip" {
				packed = packed[:len(packed)-trailer]
			}
			return program, packed, nil
		}
	}
	return "", nil, errors.New("it is compressed in a way that is not known here")
}

// unpack runs the program that unpacks a kernel.
func unpack(ctx context.Context, program string, packed []byte) ([]byte, error) {
	const most = 512 << 20
	cmd := exec.CommandContext(ctx, program, "-dc")
	cmd.Stdin = bytes.NewReader(packed)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	image, err := io.ReadAll(io.LimitReader(out, most))
	if err != nil || len(image) == most {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, errors.Join(errors.New("it cannot be unpacked, or is too large"), err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	if !isELF(image) {
		return nil, errors.New("what it holds is no ELF file")
	}
	return image, nil
}

// Unpack gives the ELF file in a kernel's image, or the image itself if it is one. Its error is a *runtime.StartError.
func Unpack(ctx context.Context, image []byte) ([]byte, error) {
	const instead = "give the worker an uncompressed vmlinux"
	if isELF(image) {
		return image, nil
	}
	program, packed, err := payload(image)
	if err != nil {
		return nil, &runtime.StartError{Err: err, Hint: instead + ", or the image of a distribution"}
	}
	path := monitor.LookPath(program)
	if path == "" {
		return nil, &runtime.StartError{Err: errors.New(program + ", which unpacks it, is not installed"),
			Hint: "apt-get install " + packageOf(program) + ", or " + instead}
	}
	if image, err = unpack(ctx, path, packed); err != nil {
		return nil, &runtime.StartError{Err: err, Hint: instead}
	}
	return image, nil
}

// direct gives the file of a kernel that QEMU enters without its own unpacking, which an emulated processor takes long for; empty: there is
// none, as without a program that unpacks it, and the image that was given is booted.
func (d *Driver) direct(ctx context.Context, k kernel) string {
	if goruntime.GOARCH != "amd64" {
		return ""
	}
	path, err := d.vmlinux(ctx, k)
	if err == nil {
		err = enteredByPVH(path)
	}
	if err != nil {
		d.opts.Log.Debug("emulated guests unpack their kernel themselves", "err", err)
		return ""
	}
	return path
}

// enteredByPVH says why QEMU cannot enter an ELF file; nil: it can.
func enteredByPVH(path string) error {
	const entry, most = 18, 64 << 10 // XEN_ELFNOTE_PHYS32_ENTRY
	image, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer image.Close()
	note := append(binary.LittleEndian.AppendUint32(nil, entry), "Xen\x00"...)
	for _, p := range image.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > most {
			continue
		}
		data := make([]byte, p.Filesz)
		if _, err := p.ReadAt(data, 0); err == nil && bytes.Contains(data, note) {
			return nil
		}
	}
	return errors.New("it has no PVH entry")
}
