package artifact

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNotFound = errors.New("image not found")
	ErrPlatform = errors.New("image is not for this platform")
	ErrDigest   = errors.New("content does not match its digest")
	ErrFull     = errors.New("no space left for images; remove some with `skerry image prune`, or free space on the disk")
	ErrDenied   = errors.New("the registry denies access")
	ErrInvalid  = errors.New("not a valid image")
	ErrTooLarge = errors.New("larger than allowed")
	ErrInUse    = errors.New("the image store is in use by another process")
)

// PlatformError names what an image offers instead of what was asked for. It is an ErrPlatform.
type PlatformError struct {
	Ref    string
	Want   Platform
	Offers []Platform
}

func (e *PlatformError) Error() string {
	var offers []string
	for _, p := range e.Offers {
		offers = append(offers, p.String())
	}
	slices.Sort(offers)
	what := "nothing that runs"
	if len(offers) > 0 {
		what = strings.Join(slices.Compact(offers), ", ")
	}
	if wasm := WasmPlatform(); e.Want.normal() == wasm {
		return fmt.Sprintf("image %s holds no WebAssembly module (%s); it offers %s; leave runtime: wasm out, or build it with `skerry image build` from a module", e.Ref, wasm, what)
	} else if len(e.Offers) == 1 && e.Offers[0].normal() == wasm {
		return fmt.Sprintf("image %s holds a WebAssembly module, not a program for %s; write runtime: wasm", e.Ref, e.Want)
	}
	if e.Want.OS == bareOS {
		return fmt.Sprintf("image %s holds no kernel for %s; it offers %s; leave runtime: unikernel out, or build it with `skerry image build` from a kernel", e.Ref, e.Want.Arch, what)
	} else if len(e.Offers) == 1 && e.Offers[0].OS == bareOS {
		return fmt.Sprintf("image %s holds a kernel, not a program for %s; write runtime: unikernel", e.Ref, e.Want)
	}
	return fmt.Sprintf("image %s is not built for %s; it offers %s; build it for %s too, or place the service on a worker of another architecture",
		e.Ref, e.Want, what, e.Want)
}

// Unwrap gives ErrPlatform.
func (e *PlatformError) Unwrap() error { return ErrPlatform }

// NotFoundError is an ErrNotFound that names where was looked.
type NotFoundError struct {
	Ref   string
	Where []string
}

func (e *NotFoundError) Error() string {
	where := ""
	if len(e.Where) > 0 {
		where = " (asked " + strings.Join(e.Where, ", then ") + ")"
	}
	return fmt.Sprintf("image %s does not exist%s; check name and tag, or push it with `skerry image push`", e.Ref, where)
}

// Unwrap gives ErrNotFound.
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// diskError adds ErrFull to errors that mean it.
func diskError(err error) error {
	if err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && !errors.Is(err, ErrFull) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
