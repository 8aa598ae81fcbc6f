//go:build linux

package wasm

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"skerry.dev/skerry/runtime"
	imagelayers "skerry.dev/skerry/runtime/internal/layers"
)

// find opens the module in the layers of an image, the topmost first. No link leads out of a layer.
func find(layers []string, name string, env []string) (*os.File, error) {
	names := []string{name}
	if !strings.Contains(name, "/") {
		search := defaultPath
		if i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }); i >= 0 {
			search = env[i][len("PATH="):]
		}
		for dir := range strings.SplitSeq(search, ":") {
			names = append(names, path.Join(dir, name))
		}
	}
	in, err := imagelayers.Open(layers)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	for _, n := range names {
		if f := in.File(n); f != nil {
			return f, nil
		}
	}
	return nil, &runtime.StartError{Field: "args[0]", Hint: "check the path of the module within the image",
		Err: fmt.Errorf("%s: no such file in the image", name)}
}
