package main

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/testenv"
)

// TestImagesFlag: the bucket of --image-bucket takes its credentials from the environment or a file that only its owner may read; a secret
// in the URL is refused and not repeated.
func TestImagesFlag(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "accessKey: one\nsecretKey: hidden", 0o600)
	const at = "s3://skerry/root?region=eu-1&endpoint=http://127.0.0.1:1"
	for _, c := range []struct{ images, want string }{
		{"", ""},
		{at + "&credentials=" + good, ""},
		{at, "there are no credentials"},
		{at + "&credentials=" + file("open", "accessKey: one\nsecretKey: hidden", 0o644), "others may read it"},
		{at + "&credentials=" + file("half", "accessKey: one", 0o600), "no accessKey or no secretKey"},
		{at + "&secretKey=hidden", "takes no parameter"},
		{"s3://skerry/root?endpoint=http://one:hidden@127.0.0.1", "is not the URL of a server"},
		{"https://skerry/root", "is not the URL of a part of a bucket"},
	} {
		if runtime.GOOS == "windows" && strings.Contains(c.want, "others") {
			continue
		}
		depot, err := (&parentFlags{images: c.images}).depot()
		switch {
		case c.want == "" && (err != nil || (depot == nil) != (c.images == "")):
			t.Errorf("%q gives %v, %v; want a bucket", c.images, depot, err)
		case c.want == "" && depot != nil && depot.String() != "s3://skerry/root":
			t.Errorf("%q is called %s, want it without its credentials", c.images, depot)
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(skerry.AsError(err).Hint+err.Error(), "hidden") {
				t.Errorf("%q gives %v; want %q and no secret", c.images, err, c.want)
			}
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "one")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hidden")
	if depot, err := (&parentFlags{images: "s3://skerry?endpoint=http://" + testenv.FreeAddr(t)}).depot(); err != nil || depot == nil {
		t.Errorf("with credentials in the environment: %v, %v; want a bucket", depot, err)
	}
}

// A role reads its flags from the environment, where commands of the client look for something else under some names.
func TestFlagsAreNoVariablesOfTheClient(t *testing.T) {
	taken := []string{"SKERRY_CA_FILE", "SKERRY_CA_PIN", "SKERRY_CONFIG", "SKERRY_CONTEXT", "SKERRY_IMAGES", "SKERRY_NAMESPACE", "SKERRY_OTP",
		"SKERRY_PASSPHRASE", "SKERRY_PASSWORD", "SKERRY_SERVER", "SKERRY_TOKEN", "SKERRY_WORKER"}
	for _, cmd := range []*cobra.Command{rootCommand(), clusterCommand(), upCommand()} {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if name := role.EnvName(flag.Name); slices.Contains(taken, name) {
				t.Errorf("skerry %s --%s would be read from %s, which is the client's", cmd.Name(), flag.Name, name)
			}
		})
	}
}
