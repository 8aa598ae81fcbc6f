package report

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
)

// PNGZoom is how many pixels of a PNG there are for each unit of a drawing, in either direction.
const PNGZoom = 2

// Plots writes drawings into directories, as SVG and as PNG: two flags of a command. The SVG needs nothing; what turns
// it into pixels is rsvg-convert, as a program with fonts would be a tenth of Skerry itself.
type Plots struct {
	svg, png, convert string
}

// Add adds the flags.
func (p *Plots) Add(fs *pflag.FlagSet) {
	fs.StringVar(&p.svg, "svg", "", "directory in which to write plots, as SVG")
	fs.StringVar(&p.png, "png", "", "directory in which to write plots, as PNG (with rsvg-convert)")
}

// Check makes the directories and finds what PNG needs, before anything is measured. Without rsvg-convert that is CodeUnsupported.
func (p *Plots) Check() error {
	if p.png != "" {
		var err error
		if p.convert, err = exec.LookPath("rsvg-convert"); err != nil {
			return skerry.Errorf(skerry.CodeUnsupported, "--png needs rsvg-convert, which is not installed").WithHint("install the package librsvg2-bin (Debian, Ubuntu), or write SVG")
		}
	}
	for _, dir := range []string{p.svg, p.png} {
		if dir != "" {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return err
			}
		}
	}
	return nil
}

// Write writes drawings by the names of their files without the ending, where they are asked for.
func (p *Plots) Write(ctx context.Context, drawings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(drawings)) {
		drawing := drawings[name]
		if p.svg != "" {
			if err := os.WriteFile(filepath.Join(p.svg, name+".svg"), []byte(drawing), 0o666); err != nil {
				return err
			}
		}
		if p.png == "" {
			continue
		}
		err := ReplaceFile(filepath.Join(p.png, name+".png"), func(w io.Writer) error {
			cmd := exec.CommandContext(ctx, p.convert, "--format", "png", "--zoom", fmt.Sprint(PNGZoom))
			var wrong bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(drawing), w, &wrong
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%s as PNG: %w: %s", name, err, bytes.TrimSpace(wrong.Bytes()))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
