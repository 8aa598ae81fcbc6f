package device

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"skerry.dev/skerry/bench/report"
)

// rootHere is replaced, in arguments, by where the root file system of the tools begins.
const rootHere = "@root@"

// video is what is encoded, a file of frames in YUV4MPEG2.
type video struct {
	id, title     string
	width, height int
	frames        int
}

func videos() []video {
	return []video{{"1080p", "1920x1080", 1920, 1080, 10}, {"2160p", "3840x2160", 3840, 2160, 4}}
}

// mediaCases are x265 and POV-Ray, as Table 2 of 000 has them, with material of ours: the original films are too large to be carried.
func mediaCases() (out []Case) {
	for _, v := range videos() {
		out = append(out, Case{ID: "cpu.x265." + v.id, Group: "cpu", Title: "x265, preset medium, " + v.title, Unit: "frames/s",
			Better: report.Higher,
			Tool:   "x265", args: func(s size) []string {
				return []string{"--y4m", rootHere + "/input/" + v.id + ".y4m", "--frames", s.n(v.frames), "--preset", "medium", "--no-progress", "-o",
					"/dev/null"}
			}, parse: x265Frames})
	}
	return append(out, Case{ID: "cpu.povray", Group: "cpu", Title: "POV-Ray, a scene of ours, one thread", Unit: "s", Better: report.Lower,
		Tool: "povray", args: func(s size) []string {
			width := 640
			if s.scale > 1 {
				width = 160
			}
			return []string{"+I" + rootHere + "/input/scene.pov", "+W" + strconv.Itoa(width), "+H" + strconv.Itoa(width*3/4), "+A0.3", "-D", "-F",
				"-V", "+WT1"}
		}, parse: povrayTrace})
}

// inputs are what tools read, by name below /input.
func inputs() map[string]map[string]func(io.Writer) error {
	out := map[string]map[string]func(io.Writer) error{"x265": {}, "povray": {"scene.pov": func(w io.Writer) error {
		_, err := io.WriteString(w, scene)
		return err
	}}}
	for _, v := range videos() {
		out["x265"][v.id+".y4m"] = v.write
	}
	return out
}

// write makes the film: gradients that move, with squares that move against them and some noise, so that an encoder has motion to find and
// detail to keep.
func (v video) write(out io.Writer) error {
	b := bufio.NewWriterSize(out, 1<<20)
	fmt.Fprintf(b, "YUV4MPEG2 W%d H%d F30:1 Ip A1:1 C420jpeg\n", v.width, v.height)
	noise := uint32(1)
	line := make([]byte, v.width)
	for frame := range v.frames {
		b.WriteString("FRAME\n")
		for y := range v.height {
			for x := range line {
				noise = noise*1664525 + 1013904223
				line[x] = byte(64 + (x+4*frame)/16%64 + y/16%64 + int(noise>>30))
				if (x-8*frame)&255 < 48 && (y+4*frame)&255 < 48 {
					line[x] += 80
				}
			}
			b.Write(line)
		}
		for plane := range 2 { // each of a quarter of the size
			for y := range v.height / 2 {
				for x := range v.width / 2 {
					line[x] = byte(112 + (x+2*frame+plane*y)/32%32)
				}
				b.Write(line[:v.width/2])
			}
		}
	}
	return b.Flush()
}

// scene has what a ray tracer is slow at: mirrors, glass and a lamp of some extent.
const scene = `#version 3.7;
global_settings { assumed_gamma 1.0 max_trace_level 8 }
camera { location <0, 2.5, -7> look_at <0, 0.6, 0> }
light_source { <5, 10, -8> rgb 1 area_light <2, 0, 0>, <0, 2, 0>, 4, 4 adaptive 1 }
light_source { <-8, 6, -4> rgb 0.3 }
plane { y, 0 pigment { checker rgb 1, rgb 0.2 } finish { reflection 0.2 } }
#for (i, -3, 3)
  #for (k, 0, 3)
    sphere { <i * 1.1, 0.45 + 0.2 * mod(i + k + 4, 2), k * 1.3>, 0.45
      #if (mod(i + k + 4, 3) = 0)
        pigment { rgbf <0.9, 0.95, 1, 0.9> } finish { phong 0.8 reflection 0.1 } interior { ior 1.5 }
      #else
        pigment { rgb <0.5 + i / 8, 0.4, 0.2 + k / 6> } finish { reflection 0.35 phong 0.6 }
      #end
    }
  #end
#end
`
