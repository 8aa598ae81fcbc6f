package web

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// node skips a test where the dashboard's tools are missing, which scripts/web installs.
func node(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("node_modules/.installed"); errors.Is(err, fs.ErrNotExist) {
		t.Skip(&testenv.Unsupported{What: "the dashboard's tools", Why: "node_modules is missing; make web installs it"})
	}
}

// TestComponents runs the tests of the dashboard's parts, each as a test of its own.
func TestComponents(t *testing.T) {
	node(t)
	out := filepath.Join(t.TempDir(), "vitest.json")
	cmd := exec.Command("node", "node_modules/vitest/vitest.mjs", "run",
		"--reporter=default", // it alone tells of errors outside every test
		"--reporter=json", "--outputFile.json="+out)
	text, runErr := cmd.CombinedOutput()
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("%v\n%s", runErr, text)
	}
	var report struct {
		TestResults []struct {
			Name             string
			Message          string
			AssertionResults []struct {
				FullName, Status string
				FailureMessages  []string
			}
		}
	}
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range report.TestResults {
		for _, a := range f.AssertionResults {
			seen++
			t.Run(a.FullName, func(t *testing.T) {
				if a.Status != "passed" {
					t.Errorf("%s in %s\n%s", a.Status, filepath.Base(f.Name), strings.Join(a.FailureMessages, "\n"))
				}
			})
		}
		if f.Message != "" {
			t.Errorf("%s: %s", filepath.Base(f.Name), f.Message)
		}
	}
	if seen == 0 || runErr != nil && !t.Failed() {
		t.Fatalf("%d tests ran: %v\n%s", seen, runErr, text)
	}
}

// TestTypesAreOfTheAPI compares the types that the pages are written against with what the API's document gives.
func TestTypesAreOfTheAPI(t *testing.T) {
	node(t)
	out := filepath.Join(t.TempDir(), "schema.d.ts")
	if text, err := exec.Command("node", "node_modules/openapi-typescript/bin/cli.js", "../docs/openapi.json", "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("src/api/schema.d.ts")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("src/api/schema.d.ts is of another API; run npm run types in web")
	}
}

// maxFirst is how much a browser may have to load before the first page shows, compressed, in bytes.
const maxFirst = 500_000

// TestFirstLoad counts what the first page needs.
func TestFirstLoad(t *testing.T) {
	if !Built() {
		t.Skip(&testenv.Unsupported{What: "the dashboard", Why: "it is not built; make web does"})
	}
	index, err := dist.Open("dist/index.html.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(index)
	if err != nil {
		t.Fatal(err)
	}
	html, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, m := range regexp.MustCompile(`(?:src|href)="/ui/([^"]+)"`).FindAllStringSubmatch(string(html), -1) {
		f, err := fs.Stat(dist, "dist/"+m[1]+".gz")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%7d %s", f.Size(), m[1])
		sum += f.Size()
	}
	if sum == 0 || sum > maxFirst {
		t.Errorf("the first page needs %d bytes; at most %d", sum, maxFirst)
	}
	if strings.Contains(string(html), "<script>") || regexp.MustCompile(`\son\w+=`).Match(html) {
		t.Error("the page has a script in it, which its policy forbids")
	}
}

func TestServe(t *testing.T) {
	get := func(path, encoding string) *http.Response {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		Handler("/ui/").ServeHTTP(w, r)
		return w.Result()
	}
	for _, encoding := range []string{"gzip", "identity"} {
		for _, path := range []string{"/ui/", "/ui/apps/default/shop"} {
			res := get(path, encoding)
			body, _ := io.ReadAll(res.Body)
			if res.Header.Get("Content-Encoding") == "gzip" {
				z, err := gzip.NewReader(strings.NewReader(string(body)))
				if err != nil {
					t.Fatal(err)
				}
				body, _ = io.ReadAll(z)
			}
			if res.StatusCode != 200 || !strings.Contains(string(body), "<title>Skerry</title>") {
				t.Errorf("%s, %s: %d %.80s", path, encoding, res.StatusCode, body)
			}
		}
	}
	if res := get("/ui/assets/../../../etc/passwd", "gzip"); res.StatusCode == 200 && Built() {
		body, _ := io.ReadAll(res.Body)
		if strings.Contains(string(body), "root:") {
			t.Error("a file of the machine is served")
		}
	}
	if res := get("/ui/assets/none.js", "gzip"); Built() && res.StatusCode != 404 {
		t.Errorf("a file that is not there: %d", res.StatusCode)
	}
}
