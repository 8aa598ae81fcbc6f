package role

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"skerry.dev/skerry/internal/testenv"
)

// TestTelemetryFlags refuses what would send headers in the clear or to nobody, and files with secrets that others may read.
func TestTelemetryFlags(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip(&testenv.Unsupported{What: "the modes of files", Why: "Windows has others"})
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	headers, open := write("headers", "Authorization: Bearer hush-hush\n\nX-Site: a\n", 0o600), write("open", "A: hush-hush\n", 0o644)
	odd, empty := write("odd", "hush-hush\n", 0o600), write("empty.pem", "", 0o600)
	for args, want := range map[string]string{
		"": "", "--otlp http://127.0.0.1:4318": "", "--otlp https://c:4318 --otlp-interval 5s": "",
		"--otlp http://localhost:4318 --otlp-headers " + headers: "",
		"--otlp https://c --otlp-headers " + headers:             "",
		"--otlp http://c:4318 --otlp-headers " + headers:         "without encryption",
		"--otlp https://c --otlp-headers " + open:                "others may read it",
		"--otlp https://c --otlp-headers " + odd:                 "a line is not NAME: VALUE",
		"--otlp https://c --otlp-headers " + dir + "/none":       "no such file",
		"--otlp https://c --otlp-ca " + empty:                    "has no certificate",
		"--otlp ftp://c":                                         "is not the address of a collector",
		"--otlp http://c --otlp-interval 1ms":                    "is not 1s to 1h",
		"--otlp-headers " + headers:                              "are for a collector",
	} {
		var flags TelemetryFlags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.add(set)
		if err := set.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		got, err := flags.exporter("v1", slog.New(slog.NewTextHandler(io.Discard, nil)))
		switch {
		case want == "" && (err != nil || (got != nil) != strings.Contains(args, "--otlp ")):
			t.Errorf("%q: exporter = %v, %v; want one if a collector is named", args, got != nil, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush-hush")):
			t.Errorf("%q: %v; want %q, and no secret", args, err, want)
		}
	}
}
