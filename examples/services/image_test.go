package main

import (
	"fmt"
	"hash/crc32"
	"image/jpeg"
	"os"
	"path/filepath"
	"testing"
)

// The pixels of each picture are known.
func TestDerivations(t *testing.T) {
	m := source()
	if sum := crc32.ChecksumIEEE(m.Pix); fmt.Sprintf("%08x", sum) != "c14c5701" {
		t.Errorf("source %08x", sum)
	}
	want := map[string]string{
		"flip-horizontal": "6344ba15", "flip-vertical": "6e92da70", "rotate-90": "8434eb53", "rotate-180": "82baf800", "rotate-270": "6e95ba0b",
		"blur": "8e59d808", "contour": "0e40f99e", "sharpen": "09011ff3", "grey": "3b4545b3", "resize": "a13dfc61",
	}
	for _, d := range derivations() {
		if sum := fmt.Sprintf("%08x", crc32.ChecksumIEEE(d.make(m).Pix)); sum != want[d.name] {
			t.Errorf("%s: %s", d.name, sum)
		}
	}
	if len(derivations()) != 10 {
		t.Error(len(derivations()))
	}
}

// What undoes itself gives the picture that it began with.
func TestUndone(t *testing.T) {
	m := source()
	by := map[string]derivation{}
	for _, d := range derivations() {
		by[d.name] = d
	}
	for _, pair := range [][2]string{{"flip-horizontal", "flip-horizontal"}, {"flip-vertical", "flip-vertical"}, {"rotate-90", "rotate-270"}, {"rotate-180", "rotate-180"}} {
		if got := by[pair[1]].make(by[pair[0]].make(m)); got.Rect != m.Rect || string(got.Pix) != string(m.Pix) {
			t.Errorf("%v", pair)
		}
	}
	grey := by["grey"].make(m)
	if again := by["grey"].make(grey); string(again.Pix) != string(grey.Pix) {
		t.Error("grey is not grey")
	}
}

// A request leaves ten pictures that can be read, and says the same each time.
func TestImage(t *testing.T) {
	dir, place := t.TempDir(), t.TempDir()
	if err := prepareImage(dir); err != nil {
		t.Fatal(err)
	}
	k, err := openImage(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, err := k.answer(0, place)
	if err != nil || a.Load <= 0 || a.Processing <= 0 || a.Total < a.Load+a.Processing-1e-9 || a.Sum != "79097233" {
		t.Fatalf("%+v %v", a, err)
	}
	if b, err := k.answer(0, place); err != nil || b.Sum != a.Sum {
		t.Errorf("%s, then %s: %v", a.Sum, b.Sum, err)
	}
	for _, d := range derivations() {
		f, err := os.Open(filepath.Join(place, d.name+".jpg"))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := jpeg.DecodeConfig(f); err != nil || c.Width*c.Height == 0 {
			t.Errorf("%s: %v %v", d.name, c, err)
		}
		f.Close()
	}
	if k, err := openImage(t.TempDir()); err == nil {
		if _, err := k.answer(0, place); err == nil {
			t.Error("there was no source")
		}
	}
}
