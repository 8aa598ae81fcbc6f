package testenv

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// S3 is a server that speaks the protocol of S3.
type S3 struct {
	URL         string
	Dir         string // a directory for each bucket
	Region      string
	Key, Secret string
}

// NewS3 starts a server without buckets: Versity's gateway to directories, which scripts/s3server/build builds once. root is the way to the
// repository's top from the package of the test.
func NewS3(t testing.TB, root string) *S3 {
	t.Helper()
	addr := FreeAddr(t)
	s := &S3{URL: "http://" + addr, Dir: t.TempDir(), Region: "eu-test-1", Key: "tester", Secret: "not much of a secret"}
	serve(t, addr, buildTool(t, root, "s3server"), []string{"ROOT_ACCESS_KEY=" + s.Key, "ROOT_SECRET_KEY=" + s.Secret},
		"--quiet", "--port", addr, "--region", s.Region, "--keep-alive", "posix", "--sidecar", t.TempDir(), s.Dir)
	return s
}

// buildTool gives the program that scripts/NAME/build builds once.
func buildTool(t testing.TB, root, name string) string {
	t.Helper()
	var why bytes.Buffer
	build := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", name, "build"))
	build.Stderr = &why
	program, err := build.Output()
	if err != nil {
		t.Fatalf("scripts/%s/build: %v\n%s", name, err, why.String())
	}
	return strings.TrimSpace(string(program))
}

// serve starts a program until the test ends, and waits until it listens.
func serve(t testing.TB, addr, program string, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", filepath.Base(program), err, log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Bucket makes a bucket.
func (s *S3) Bucket(t testing.TB, name string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(s.Dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Setenv has what this test starts find the server as that of AWS.
func (s *S3) Setenv(t *testing.T) {
	for _, name := range []string{"AWS_SESSION_TOKEN", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", s.URL)
	t.Setenv("AWS_REGION", s.Region)
	t.Setenv("AWS_ACCESS_KEY_ID", s.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.Secret)
}
