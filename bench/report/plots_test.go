package report

import (
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
)

// plotsOf gives what a command has with its flags set.
func plotsOf(t *testing.T, args ...string) *Plots {
	t.Helper()
	var p Plots
	fs := pflag.NewFlagSet("plots", pflag.ContinueOnError)
	p.Add(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &p
}

// A PNG has the drawing's size and colours where the drawing has them.
func TestPNG(t *testing.T) {
	if _, err := exec.LookPath("rsvg-convert"); err != nil {
		t.Skip(&testenv.Unsupported{What: "plots as PNG", Why: "rsvg-convert is not installed; scripts/deps installs it"})
	}
	dir := filepath.Join(t.TempDir(), "plots")
	p := plotsOf(t, "--png", dir, "--svg", dir)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	c := Chart{Title: "Title", Note: "note", YLabel: "unit", Ticks: []string{"only"},
		Series: []Series{{Name: "x", Bars: true, Points: [][2]float64{{0, 5}}}}}
	if err := p.Write(t.Context(), map[string]string{"bars": c.SVG()}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "bars.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() != PNGZoom*chartWidth || b.Dy() != PNGZoom*chartHeight {
		t.Errorf("it is %d x %d", b.Dx(), b.Dy())
	}
	at := func(x, y float64) color.RGBA {
		return color.RGBAModel.Convert(img.At(int(PNGZoom*x), int(PNGZoom*y))).(color.RGBA)
	}
	if c := at(4, 4); c != (color.RGBA{255, 255, 255, 255}) {
		t.Errorf("the ground is %v", c)
	}
	if c := at(leftMargin+plotWidth/2, topMargin+plotHeight-10); c != (color.RGBA{0x1f, 0x6f, 0x8b, 255}) {
		t.Errorf("the bar is %v", c)
	}
	dark := 0 // the title's letters
	for x := leftMargin; x < leftMargin+60; x += 0.5 {
		for y := 10.0; y < 28; y += 0.5 {
			if c := at(x, y); c.R < 100 {
				dark++
			}
		}
	}
	if dark < 50 {
		t.Errorf("%d pixels of the title are dark", dark)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Error(files, err)
	}
	if err := p.Write(t.Context(), map[string]string{"bad": "<svg"}); err == nil {
		t.Error("what is no drawing became one")
	}
}

// Where nothing makes PNG, that is said before anything is measured, with the package.
func TestNoPNG(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := filepath.Join(t.TempDir(), "plots")
	err := plotsOf(t, "--png", dir).Check()
	if e := skerry.AsError(err); err == nil || e.Code != skerry.CodeUnsupported || e.Hint == "" {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
	if err := plotsOf(t, "--svg", dir).Check(); err != nil {
		t.Error(err)
	}
}
