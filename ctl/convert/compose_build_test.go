package convert

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// What a Compose file builds comes with everything that a builder has to know. What is not below the file stays on this machine.
func TestComposeBuilds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop")
	for _, sub := range []string{"web", "../other"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatalf("make %s: %v", sub, err)
		}
	}
	if err := os.Symlink("../other", filepath.Join(dir, "out")); err != nil {
		t.Fatalf("link: %v", err)
	}
	t.Setenv("FROM_ENV", "x")
	web := filepath.Join(dir, "web")
	const shopWeb = "skerry.local/default/shop/web"
	for name, c := range map[string]struct {
		service string
		opt     Options
		want    *Build
		image   string
		report  string // a part of the note on build
		refused string // the field that is refused
	}{
		"alone": {service: "build: web", want: &Build{Dir: web, Args: nil}, image: shopWeb,
			report: "skerry image build web -t default/shop/web --push"},
		"all of it": {service: "build: {context: ., dockerfile: web/Other, args: {A: 'b c', FROM_ENV: }, target: t, labels: {l: m}}",
			want: &Build{Dir: dir, File: filepath.Join(web, "Other"), Args: map[string]string{"A": "b c", "FROM_ENV": "x"}, Target: "t",
				Labels: map[string]string{"l": "m"}}, image: shopWeb,
			report: "skerry image build . --file web/Other --target t --build-arg 'A=b c' --build-arg FROM_ENV=x -t"},
		"another namespace": {service: "build: web", opt: Options{Namespace: "team"}, want: &Build{Dir: web},
			image: "skerry.local/team/shop/web"},
		"inline": {service: "build: {context: web, dockerfile_inline: FROM scratch}",
			want: &Build{Dir: web, Inline: "FROM scratch"}, image: shopWeb},
		"platform": {service: "{build: web, platform: linux/arm64}", want: &Build{Dir: web, Platform: "linux/arm64"}, image: shopWeb},
		"its own platform": {service: "build: {context: web, platforms: [linux/riscv64]}", want: &Build{Dir: web, Platform: "linux/riscv64"},
			image: shopWeb},
		"beside a name": {service: "{build: web, image: 'a/b:1'}", image: "a/b:1", report: "the image of that name is used"},
		"beside a name, asked for": {service: "{build: web, image: 'a/b:1'}", opt: Options{Build: true}, want: &Build{Dir: web},
			image: "skerry.local/a/b:1"},
		"beside a name, by policy": {service: "{build: web, image: 'a/b:1', pull_policy: build}", want: &Build{Dir: web},
			image: "skerry.local/a/b:1"},
		"at another registry": {service: "{build: web, image: 'r.example/b:1', pull_policy: build}", want: &Build{Dir: web},
			image: "r.example/b:1"},
		"built by whoever converts": {service: "build: web", opt: Options{Builds: true}, want: &Build{Dir: web},
			image: shopWeb, report: "built from web"},
		"beside the file":     {service: "build: ../other", refused: "build.context"},
		"by a link":           {service: "build: out", refused: "build.context"},
		"a Dockerfile beside": {service: "build: {context: web, dockerfile: ../../other/x}", refused: "build.dockerfile"},
		"an address":          {service: "build: https://git.example/x.git", refused: "build.context"},
		"several platforms":   {service: "build: {context: web, platforms: [linux/arm64, linux/amd64]}", refused: "build.platforms"},
		"secrets":             {service: "build: {context: web, secrets: [s]}", refused: "build.secrets"},
		"further contexts": {service: "build: {context: web, additional_contexts: {x: ../other}}",
			refused: "build.additional_contexts"},
		"a network":                   {service: "build: {context: web, network: host}", refused: "build.network"},
		"a policy without what it is": {service: "{image: x, pull_policy: build}", refused: "pull_policy"},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.TrimSuffix(strings.TrimPrefix(c.service, "{"), "}")
			if !strings.HasPrefix(c.service, "{") {
				body = c.service
			}
			data := "services: {web: {restart: always, " + body + "}}\nsecrets: {s: {environment: HOME}}\n"
			opt := c.opt
			opt.Dir = dir
			r, err := Compose(t.Context(), []byte(data), opt)
			if err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			refused, note := "", ""
			for _, f := range r.Fields {
				if f.Verdict == Refused {
					refused += strings.TrimPrefix(f.Path, "services.web.")
				} else if f.Path == "services.web.build" {
					note = f.Note
				}
			}
			if refused != c.refused || !strings.Contains(note, c.report) {
				t.Errorf("refused is %q, expected %q; build becomes %q, expected %q", refused, c.refused, note, c.report)
			}
			if c.refused != "" {
				if len(r.Builds) > 0 {
					t.Errorf("it is built though it is refused: %+v", r.Builds)
				}
				return
			}
			var want []Build
			if c.want != nil {
				c.want.Service, c.want.Image = "web", c.image
				want = []Build{*c.want}
			}
			if got := r.App.Spec.Services[0].Image; got != c.image || !reflect.DeepEqual(r.Builds, want) {
				t.Errorf("image %q and builds %+v, expected %q and %+v", got, r.Builds, c.image, want)
			}
		})
	}
}

// TestComposeBuildsOfOneName: services may share an image that is built once. What would build two images of one name, or by a Dockerfile
// that is a link out of its directory, is refused.
func TestComposeBuildsOfOneName(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"web", "linked"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatalf("make %s: %v", sub, err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "linked", "Dockerfile")); err != nil {
		t.Fatalf("link: %v", err)
	}
	for name, c := range map[string]struct {
		services string
		builds   int
		refused  string
	}{
		"one image": {"{a: {build: web, image: 'x:1'}, b: {build: web, image: 'x:1'}}", 1, ""},
		"two images": {"{a: {build: web, image: 'x:1'}, b: {build: {context: web, target: t}, image: 'x:1'}}", 1,
			"builds another image of the name"},
		"a link": {"{a: {build: linked}}", 0, "is not below the directory of the file"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Compose(t.Context(), []byte("services: "+c.services+"\n"), Options{Dir: dir, Build: true, Builds: true})
			if err != nil {
				t.Fatalf("%s: %v", c.services, err)
			}
			refused := ""
			for _, f := range r.Fields {
				if f.Verdict == Refused {
					refused += f.Note
				}
			}
			if len(r.Builds) != c.builds || (refused == "") != (c.refused == "") || !strings.Contains(refused, c.refused) {
				t.Errorf("%d images are built, refused is %q; expected %d, %q", len(r.Builds), refused, c.builds, c.refused)
			}
		})
	}
}
