package sim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedScenariosAreReadBack: what the generator and the minimiser write can be read, and says the same.
func TestGeneratedScenariosAreReadBack(t *testing.T) {
	for seed := range uint64(200) {
		text := Generate(seed).String()
		s, err := ParseScenario(strings.NewReader(text))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if again := s.String(); again != text {
			t.Fatalf("seed %d:\n%s\nis read as\n%s", seed, text, again)
		}
	}
}

func TestBadScenarios(t *testing.T) {
	const head = "site a\nworker a/w1 cpu=1000\n"
	for text, want := range map[string]string{
		"":                                         "there is no site",
		"seed x\nsite a":                           "invalid syntax",
		"site A":                                   "not valid",
		"site a\nsite a":                           "there already",
		"site a\nworker b/w1":                      "has no site",
		"site a\nworker a/w1 cpu=0":                "no amount",
		"site a\nworker a/w1 colour=red":           "none of",
		head + "at 1s":                             "not complete|an action is",
		head + "at -1s kill a":                     "not between",
		head + "at 1s dance a":                     "none of",
		head + "at 1s kill b":                      "no node",
		head + "at 1s hold a on=yes":               "cannot be done",
		head + "at 1s block root dir=up":           "cannot be done",
		head + "at 1s block a dir=left":            "none of",
		head + "at 1s apply x owner=b":             "could own",
		head + "at 1s apply x replicas=-1":         "out of range",
		head + "at 1s apply x cpu=1 cpu=2":         "twice",
		head + "at 1s slow a loss=2":               "between 0 and 1",
		head + "at 1s start a skew=8760000000000h": "skew",
		head + "at 1s apply x shape=round":         "none of",
		head + "settle 10000h":                     "not between",
		head + "what 1":                            "a line begins with",
	} {
		_, err := ParseScenario(strings.NewReader(text))
		var bad *ScenarioError
		if !errors.As(err, &bad) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		ok := false
		for _, w := range strings.Split(want, "|") {
			ok = ok || strings.Contains(bad.Text, w)
		}
		if !ok {
			t.Errorf("%q: %q does not say %q", text, bad.Text, want)
		}
	}
}

// FuzzScenario: any text is an error or a scenario that reads back as itself.
func FuzzScenario(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(string(data))
		}
	}
	f.Add(Generate(3).String())
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScenario(strings.NewReader(text))
		if err != nil {
			return
		}
		once := s.String()
		again, err := ParseScenario(strings.NewReader(once))
		if err != nil {
			t.Fatalf("%v\n%s", err, once)
		}
		if twice := again.String(); twice != once {
			t.Fatalf("%s\nis read as\n%s", once, twice)
		}
	})
}
