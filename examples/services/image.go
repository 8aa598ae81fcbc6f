package main

import (
	"bytes"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
)

// The source's size in pixels. A request costs about as much of a processor as in the thesis that this service follows, some 40 ms,
// so that its rates can be used.
const width, height = 320, 240

// source draws the picture that requests derive others from: bands, a disc and a grain that is always the same.
func source() *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	grain := uint32(1)
	for y := range height {
		for x := range width {
			grain = grain*1664525 + 1013904223
			n := int(grain >> 28)
			c := color.RGBA{R: uint8(x * 240 / width), G: uint8(y * 240 / height), B: uint8((x + y) * 240 / (width + height)), A: 255}
			if dx, dy := x-width/2, y-height/2; dx*dx+dy*dy < height*height/9 {
				c.R, c.G, c.B = 240-c.R, 240-c.G, 240-c.B
			}
			c.R, c.G, c.B = c.R+uint8(n), c.G+uint8(n), c.B+uint8(n)
			m.SetRGBA(x, y, c)
		}
	}
	return m
}

// derivation makes one picture of another.
type derivation struct {
	name string
	make func(*image.RGBA) *image.RGBA
}

// derivations are the ten of a request: those of the thesis (section 4.2.1: flip, rotate, filter, grey, resize). They compute with
// integers, so that every machine gives the same pixels.
func derivations() []derivation {
	return []derivation{
		{"flip-horizontal", func(m *image.RGBA) *image.RGBA {
			return move(m, false, func(x, y, w, h int) (int, int) { return w - 1 - x, y })
		}},
		{"flip-vertical", func(m *image.RGBA) *image.RGBA {
			return move(m, false, func(x, y, w, h int) (int, int) { return x, h - 1 - y })
		}},
		{"rotate-90", func(m *image.RGBA) *image.RGBA {
			return move(m, true, func(x, y, w, h int) (int, int) { return h - 1 - y, x })
		}},
		{"rotate-180", func(m *image.RGBA) *image.RGBA {
			return move(m, false, func(x, y, w, h int) (int, int) { return w - 1 - x, h - 1 - y })
		}},
		{"rotate-270", func(m *image.RGBA) *image.RGBA {
			return move(m, true, func(x, y, w, h int) (int, int) { return y, w - 1 - x })
		}},
		{"blur", func(m *image.RGBA) *image.RGBA { return convolve(m, [9]int{1, 2, 1, 2, 4, 2, 1, 2, 1}, 16, 0) }},
		{"contour", func(m *image.RGBA) *image.RGBA { return convolve(m, [9]int{-1, -1, -1, -1, 8, -1, -1, -1, -1}, 1, 255) }},
		{"sharpen", func(m *image.RGBA) *image.RGBA {
			return convolve(m, [9]int{-2, -2, -2, -2, 32, -2, -2, -2, -2}, 16, 0)
		}},
		{"grey", grey},
		{"resize", func(m *image.RGBA) *image.RGBA { return shrink(m, 128, 96) }},
	}
}

// move puts each pixel where to says; turned swaps width and height.
func move(m *image.RGBA, turned bool, to func(x, y, w, h int) (int, int)) *image.RGBA {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	r := image.Rect(0, 0, w, h)
	if turned {
		r = image.Rect(0, 0, h, w)
	}
	out := image.NewRGBA(r)
	for y := range h {
		for x := range w {
			tx, ty := to(x, y, w, h)
			copy(out.Pix[ty*out.Stride+4*tx:][:4], m.Pix[y*m.Stride+4*x:][:4])
		}
	}
	return out
}

// convolve weighs each pixel with its eight neighbours. The border repeats.
func convolve(m *image.RGBA, k [9]int, by, plus int) *image.RGBA {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	out := image.NewRGBA(m.Rect)
	for y := range h {
		for x := range w {
			var sum [3]int
			for j := range 9 {
				sx, sy := min(max(x+j%3-1, 0), w-1), min(max(y+j/3-1, 0), h-1)
				p := m.Pix[sy*m.Stride+4*sx:][:3]
				for c := range sum {
					sum[c] += k[j] * int(p[c])
				}
			}
			p := out.Pix[y*out.Stride+4*x:][:4]
			for c := range sum {
				p[c] = uint8(min(max(sum[c]/by+plus, 0), 255))
			}
			p[3] = 255
		}
	}
	return out
}

func grey(m *image.RGBA) *image.RGBA {
	out := image.NewRGBA(m.Rect)
	for i := 0; i < len(m.Pix); i += 4 {
		p := m.Pix[i:][:4]
		l := uint8((299*int(p[0]) + 587*int(p[1]) + 114*int(p[2])) / 1000)
		copy(out.Pix[i:], []byte{l, l, l, 255})
	}
	return out
}

// shrink takes the mean of the pixels that fall together.
func shrink(m *image.RGBA, w, h int) *image.RGBA {
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			x0, x1, y0, y1 := x*m.Rect.Dx()/w, (x+1)*m.Rect.Dx()/w, y*m.Rect.Dy()/h, (y+1)*m.Rect.Dy()/h
			var sum [4]int
			for sy := y0; sy < y1; sy++ {
				for sx := x0; sx < x1; sx++ {
					for c := range sum {
						sum[c] += int(m.Pix[sy*m.Stride+4*sx+c])
					}
				}
			}
			for c := range sum {
				out.Pix[y*out.Stride+4*x+c] = uint8(sum[c] / ((x1 - x0) * (y1 - y0)))
			}
		}
	}
	return out
}

const sourceName = "source.jpg"

func prepareImage(dir string) error {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, source(), &jpeg.Options{Quality: 90}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sourceName), b.Bytes(), 0o644)
}

// openImage gives what reads and decodes the source, derives ten pictures, and writes them. The sum is of their pixels.
func openImage(dir string) (kernel, error) {
	return func(_ int, place string, loaded func()) (sum uint32, err error) {
		m, err := load(dir)
		if err != nil {
			return 0, err
		}
		loaded()
		for _, d := range derivations() {
			p := d.make(m)
			sum = crc32.Update(sum, crc32.IEEETable, p.Pix)
			var b bytes.Buffer
			if err := jpeg.Encode(&b, p, nil); err != nil {
				return 0, err
			}
			if err := os.WriteFile(filepath.Join(place, d.name+".jpg"), b.Bytes(), 0o644); err != nil {
				return 0, err
			}
		}
		return sum, nil
	}, nil
}

// load reads and decodes the source.
func load(dir string) (*image.RGBA, error) {
	f, err := os.Open(filepath.Join(dir, sourceName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := jpeg.Decode(f)
	if err != nil {
		return nil, err
	}
	out := image.NewRGBA(image.Rect(0, 0, m.Bounds().Dx(), m.Bounds().Dy()))
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			r, g, b, _ := m.At(x, y).RGBA()
			copy(out.Pix[y*out.Stride+4*x:], []byte{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255})
		}
	}
	return out, nil
}
