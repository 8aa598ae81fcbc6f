package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Each file of testdata/manifests holds a manifest, a line of dashes and what a user is told of it.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/manifests/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			in, want, _ := strings.Cut(string(data), "\n----\n")
			got := tell(in)
			if *update {
				if err := os.WriteFile(f, []byte(in+"\n----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func tell(in string) string {
	app, err := DecodeApplication([]byte(in))
	if err == nil {
		err = app.Validate()
	}
	if err == nil {
		app.SetDefaults()
		err2 := app.Validate()
		if err2 != nil {
			return "defaults break it: " + err2.Error() + "\n"
		}
		return "ok\n"
	}
	var e *skerry.Error
	if !errors.As(err, &e) {
		return "not an *Error: " + err.Error() + "\n"
	}
	return string(e.Code) + ": " + e.Error() + "\n"
}

func TestTooLargeAndNotUTF8(t *testing.T) {
	_, err := DecodeApplication(bytes.Repeat([]byte(" "), MaxManifest+1))
	if skerry.AsError(err).Code != skerry.CodeTooLarge {
		t.Error(err)
	}
	_, err = DecodeApplication([]byte("{\"kind\": \"\xff\"}"))
	if skerry.AsError(err).Code != skerry.CodeInvalid || skerry.AsError(err).Hint == "" {
		t.Error(err)
	}
}

func TestRevision(t *testing.T) {
	two, three := 2, 3
	a := ServiceSpec{Name: "web", Replicas: &two}
	b := ServiceSpec{Name: "web", Replicas: &three, Update: UpdateSpec{Strategy: "recreate"}}
	if a.Revision() != b.Revision() {
		t.Error("the number of instances makes a new revision")
	}
	b.Image = "web:2"
	if a.Revision() == b.Revision() {
		t.Error("another image is the same revision")
	}
	// Where it may go is decided when it is started: an instance with other rules is another one.
	c, d := ServiceSpec{Name: "web"}, ServiceSpec{Name: "web", Egress: &Egress{}}
	if c.Revision() == d.Revision() {
		t.Error("another egress is the same revision")
	}
}

func TestNeedCountsContainers(t *testing.T) {
	s := ServiceSpec{Resources: Resources{CPU: 500, Memory: 64 * skerry.MiB}}
	s.Sidecars = []SideContainer{{Resources: Resources{CPU: 100, Memory: 16 * skerry.MiB}}}
	s.Init = []SideContainer{{Resources: Resources{CPU: 2000, Memory: 8 * skerry.MiB}}}
	if n := s.Need(); n.CPU != 2000 || n.Memory != 80*skerry.MiB {
		t.Errorf("%+v", n)
	}
}

func FuzzDecodeApplication(f *testing.F) {
	files, _ := filepath.Glob("testdata/manifests/*.txt")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		in, _, _ := strings.Cut(string(data), "\n----\n")
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		app, err := DecodeApplication(data)
		if err != nil {
			return
		}
		if app.Validate() != nil {
			return
		}
		app.SetDefaults()
		if err := app.Validate(); err != nil {
			t.Fatalf("defaults break a valid manifest: %v", err)
		}
		// What is stored must read back the same.
		out, err := json.Marshal(app)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeApplication(out)
		if err != nil {
			t.Fatalf("does not read back: %v\n%s", err, out)
		}
		out2, err := json.Marshal(again)
		if err != nil || !bytes.Equal(out, out2) {
			t.Fatalf("changes when read back:\n%s\n%s", out, out2)
		}
	})
}

// People may not write negative amounts, although what a worker reports is read back whatever it is.
func TestNegativeAmountsAreRefused(t *testing.T) {
	var r struct {
		Memory skerry.Bytes    `json:"memory"`
		CPU    skerry.MilliCPU `json:"cpu"`
	}
	if p := DecodeStrict(fmt.Appendf(nil, `{"memory": %q, "cpu": %q}`, skerry.Bytes(-7).String(), skerry.MilliCPU(-7).String()), &r); len(p) != 2 {
		t.Errorf("people may write %+v", r)
	}
}
