package convert

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// corpusKinds reads which file of a corpus is of what kind. A file that was put together from several has several lines.
func corpusKinds(t *testing.T, dir string) (kinds map[string]string, files []string) {
	t.Helper()
	sources, err := os.ReadFile(filepath.Join(dir, "SOURCES"))
	if err != nil {
		t.Fatalf("read the sources: %v", err)
	}
	kinds = map[string]string{}
	for line := range strings.Lines(string(sources)) {
		if words := strings.Fields(line); len(words) == 4 && words[0] != "#" {
			kinds[words[0]] = words[1]
		}
	}
	files, err = filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) != len(kinds) {
		t.Fatalf("there are %d files and %d with a source: %v", len(files), len(kinds), err)
	}
	return kinds, files
}

// TestComposeCorpus holds which share of real Compose files is converted without a refusal. Those that build their images are counted
// apart: apply builds what they say.
func TestComposeCorpus(t *testing.T) {
	t.Setenv("HOME", "/root")
	kinds, files := corpusKinds(t, "testdata/corpus/compose")
	total, converted := map[string]int{}, map[string]int{}
	reasons := map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("read %s: %v", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		total[kinds[name]]++
		if Detect(data) != FormatCompose {
			t.Errorf("%s is taken for %q", name, Detect(data))
		}
		result, err := Compose(t.Context(), data, Options{Dir: beside(t, data, name)})
		if result == nil {
			t.Errorf("%s is not read: %v", name, err)
			continue
		}
		for _, field := range result.Fields {
			if field.Verdict == Refused {
				reasons[field.Note]++
			}
		}
		if err != nil && result.Count(Refused) == 0 {
			t.Errorf("%s becomes a manifest that is not valid: %v", name, err)
		}
		if result.Count(Refused) == 0 {
			converted[kinds[name]]++
		} else {
			t.Logf("%s (%s): %d refusals", name, kinds[name], result.Count(Refused))
		}
	}
	t.Logf("%d of %d applications, %d of %d that build their images", converted["application"], total["application"],
		converted["builds"], total["builds"])
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%3d %s", reasons[why], why)
	}
	if total["application"] < 60 {
		t.Errorf("there are %d applications", total["application"])
	}
	if 5*converted["application"] < 4*total["application"] {
		t.Errorf("%d of %d applications are converted without a refusal; at least 80 %% have to be", converted["application"],
			total["application"])
	}
	if 5*converted["builds"] < 3*total["builds"] {
		t.Errorf("%d of %d applications that build their images are converted without a refusal; at least 60 %% have to be",
			converted["builds"], total["builds"])
	}
}

// beside makes the directory of a Compose file, with the files and variables that it names in its first lines: those that its repository
// has there, or that its instructions have a person make.
func beside(t *testing.T, data []byte, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	write := func(file, text string) {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := ""
	for line := range strings.Lines(string(data)) {
		rest, is := strings.CutPrefix(line, "# beside: ")
		for _, file := range strings.Fields(rest) {
			if is {
				path, size, _ := strings.Cut(file, ":")
				if n, err := strconv.Atoi(size); err == nil {
					write(path, strings.Repeat("#", n))
				} else {
					write(path, "\xff") // it is no text
				}
			}
		}
		if rest, is = strings.CutPrefix(line, "# env: "); is {
			env = strings.Join(strings.Fields(rest), "\n") + "\n"
		}
		if !strings.HasPrefix(line, "#") {
			break
		}
	}
	write(".env", env)
	return dir
}
