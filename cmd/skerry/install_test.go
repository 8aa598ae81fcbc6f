//go:build linux

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/internal/testenv"
)

// release is a directory as scripts/release makes it, with a program for this machine that is short.
func release(t *testing.T) (dir, key string) {
	t.Helper()
	dir = t.TempDir()
	script := `set -e
for name in skerry skerry-worker; do
	pack=$name-v1.2-linux-` + runtime.GOARCH + `
	mkdir -p "$pack/systemd"
	printf '#!/bin/sh\necho %s "$1"\n' $name >"$pack/$name"
	chmod 755 "$pack/$name"
	echo '[Service]' >"$pack/systemd/skerry-worker.service"
	tar -czf "$pack.tar.gz" "$pack"
	rm -r "$pack"
done
sha256sum -- * >SHA256SUMS
openssl ecparam -genkey -name prime256v1 -noout -out key 2>/dev/null
openssl ec -in key -pubout -out key.pub 2>/dev/null
openssl dgst -sha256 -sign key SHA256SUMS | base64 -w0 >SHA256SUMS.sig`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir, filepath.Join(dir, "key.pub")
}

// A release is installed from a directory and over the network, if it is what its checksums and its key say.
func TestInstallScript(t *testing.T) {
	dir, key := release(t)
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer web.Close()
	install := func(args ...string) (root, out string, err error) {
		root = t.TempDir()
		text, err := exec.Command("sh", append([]string{"../../packaging/install.sh", "--root", root}, args...)...).CombinedOutput()
		return root, string(text), err
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"directory":   {[]string{dir}, "skerry"},
		"signed":      {[]string{"--key", key, dir}, "skerry"},
		"the agent":   {[]string{"--worker", dir + "/"}, "skerry-worker"},
		"over a wire": {[]string{"--key", key, web.URL}, "skerry"},
	} {
		root, out, err := install(c.args...)
		got, e := exec.Command(filepath.Join(root, "usr/local/bin/skerry"), "runs").Output()
		if err != nil || e != nil || string(got) != c.want+" runs\n" {
			t.Errorf("%s: installed %q, %v, %v; want %s\n%s", name, got, e, err, c.want, out)
		}
		if _, err := os.Stat(filepath.Join(root, "usr/local/lib/systemd/system/skerry-worker.service")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	archive := "skerry-v1.2-linux-" + runtime.GOARCH + ".tar.gz"
	refused := func(what, want string, args ...string) {
		t.Helper()
		root, out, err := install(args...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, said %q; want %q", what, err, out, want)
		}
		if list, err := filepath.Glob(filepath.Join(root, "usr/local/bin/*")); err != nil || len(list) > 0 {
			t.Errorf("%s: something was installed: %q, %v", what, list, err)
		}
	}
	spoil := func(name string, data func([]byte) []byte) (undo func()) {
		t.Helper()
		file := filepath.Join(dir, name)
		was, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, data(slices.Clone(was)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := os.WriteFile(file, was, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused("by http without a key", "use https, or --key", web.URL)
	refused("no release", "has no SHA256SUMS", t.TempDir())
	refused("an address without one", "cannot be fetched", "--key", key, web.URL+"/none")
	refused("no name", "say which release")
	refused("an odd flag", "--verbose is no flag", "--verbose", dir)
	undo := spoil(archive, func(b []byte) []byte { return b[:len(b)/2] })
	refused("half of an archive", "is not what SHA256SUMS says", dir)
	undo()
	undo = spoil("SHA256SUMS.sig", func([]byte) []byte { return []byte("AAAA") })
	refused("another signature", "is not signed by the key", "--key", key, dir)
	undo()
	undo = spoil("SHA256SUMS", func(b []byte) []byte { return append(b, b[:strings.Index(string(b), "\n")+1]...) })
	refused("sums that were changed", "is not signed by the key", "--key", key, dir)
	refused("an archive twice", "several releases", dir)
	undo()
	undo = spoil("SHA256SUMS", func(b []byte) []byte {
		return []byte(fmt.Sprintf("%x  ../%s\n%x  skerry-v1.2-linux-none.tar.gz\n", sha256.Sum256(nil), archive, sha256.Sum256(nil)))
	})
	refused("another architecture, and a file elsewhere", "has no skerry for "+runtime.GOARCH, dir)
	undo()
	root, out, err := install(dir)
	if err != nil {
		t.Fatal(err, out)
	}
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/skerry"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("sh", "../../packaging/install.sh", "--root", root, dir).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "upgrade or remove that") {
		t.Errorf("beside a package: %v, %s", err, text)
	}
}

// An https address that leads on to http is not followed without a key: anybody on that way could give another program.
func TestInstallScriptStaysEncrypted(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(&testenv.Unsupported{What: "a release over the network", Why: "there is no curl"})
	}
	dir, key := release(t)
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer web.Close()
	safe := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, web.URL+r.URL.Path, http.StatusFound)
	}))
	defer safe.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: safe.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{safe.URL}, {"--key", key, safe.URL}} {
		cmd := exec.Command("sh", append([]string{"../../packaging/install.sh", "--root", t.TempDir()}, args...)...)
		cmd.Env = append(os.Environ(), "CURL_CA_BUNDLE="+ca)
		if out, err := cmd.CombinedOutput(); (err == nil) != (len(args) > 1) {
			t.Errorf("with %q: %v\n%s", args, err, out)
		}
	}
}

// unpacked puts the first image of an OCI archive into a directory, and gives the platforms of all.
func unpacked(t *testing.T, archive, to string) (platforms []string) {
	t.Helper()
	files := map[string][]byte{}
	in, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string, into any) {
		t.Helper()
		if err := json.Unmarshal(files[strings.Replace(name, "sha256:", "blobs/sha256/", 1)], into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var index, images v1.Index
	read("index.json", &index)
	read(string(index.Manifests[0].Digest), &images)
	for _, m := range images.Manifests {
		platforms = append(platforms, m.Platform.OS+"/"+m.Platform.Architecture)
	}
	var image v1.Manifest
	read(string(images.Manifests[0].Digest), &image)
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, layer := range image.Layers {
		cmd := exec.Command("tar", "-x", "-C", to, map[bool]string{true: "-z", false: "-p"}[strings.HasSuffix(layer.MediaType, "gzip")])
		cmd.Stdin = bytes.NewReader(files["blobs/sha256/"+layer.Digest.Encoded()])
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("unpack a layer of %s: %v\n%s", layer.MediaType, err, out)
		}
	}
	return platforms
}

// The image has the program for each architecture, which starts with nothing else around it, and is the same when it is made again.
func TestImageOfSkerry(t *testing.T) {
	program, dir := testenv.Program(t), t.TempDir()
	programs := []string{filepath.Join(dir, "skerry-v1-linux-"+runtime.GOARCH), filepath.Join(dir, "skerry-v1-linux-riscv64")}
	if err := os.Symlink(program, programs[0]); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-o", programs[1], "./testdata/tool") // in place of all of Skerry
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=riscv64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	roots := filepath.Join(dir, "roots.pem")
	tls := httptest.NewTLSServer(nil)
	tls.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw})
	if err := os.WriteFile(roots, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	var sums []string
	for _, name := range []string{"one", "two"} {
		archive := filepath.Join(dir, name+".tar")
		cmd := exec.Command("../../scripts/image", append([]string{"v1", archive}, programs...)...)
		cmd.Env = append(os.Environ(), "CACERTS="+roots, "SKERRY="+program, "HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(data)))
	}
	if sums[0] != sums[1] {
		t.Errorf("made twice: %s, %s", sums[0], sums[1])
	}

	cmd := exec.Command(program, "image", "import", filepath.Join(dir, "one.tar"))
	cmd.Env = append(os.Environ(), "HOME="+dir, "SKERRY_IMAGES="+filepath.Join(dir, "images"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "skerry:v1") {
		t.Errorf("imported: %v\n%s", err, out)
	}
	rootfs := filepath.Join(dir, "rootfs")
	want := []string{"linux/" + runtime.GOARCH, "linux/riscv64"}
	if platforms := unpacked(t, filepath.Join(dir, "one.tar"), rootfs); !slices.Equal(platforms, want) {
		t.Fatalf("platforms = %q, want %q", platforms, want)
	}
	cmd = exec.CommandContext(t.Context(), "/skerry", "root", "--api", "127.0.0.1:0", "--link", "127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: rootfs, Pdeathsig: syscall.SIGKILL}
	cmd.Env, cmd.Dir = []string{}, "/"
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	started := false
	for lines := bufio.NewScanner(said); !started && lines.Scan(); {
		started = strings.Contains(lines.Text(), "takes clusters on")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil || !started {
		t.Errorf("a root with nothing but the image: started = %v, %v", started, err)
	}
}
