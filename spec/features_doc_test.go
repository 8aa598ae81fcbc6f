package spec_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// TestFeaturesAreDocumented: who builds an agent, and who wonders what works, finds each feature that came after the first agents, and none
// that there is not.
func TestFeaturesAreDocumented(t *testing.T) {
	for page, begins := range map[string]string{
		"../docs/EXTERNAL-AGENTS.md": "| `features` | fields of manifests",
		"../docs/FEATURES.md":        "- **Fields that older agents lack.**",
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		_, list, found := strings.Cut(string(text), begins)
		if !found {
			t.Errorf("%s: got no text that begins with %q, want one", page, begins)
			continue
		}
		list = regexp.MustCompile("(?m)\\n(- |\\||\n)").Split(list, 2)[0]
		var names []string
		for _, m := range regexp.MustCompile("`([a-zA-Z]+)`").FindAllStringSubmatch(list, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		if got, want := strings.Join(names, " "), strings.Join(spec.AgentFeatures(), " "); got != want {
			t.Errorf("features in %s:\ngot  %s\nwant %s", page, got, want)
		}
	}
	// Each that a service can have is one that an agent reports.
	if !slices.IsSorted(spec.AgentFeatures()) || len(spec.AgentFeatures()) > spec.MaxFeatures {
		t.Errorf("features of an agent: got %v, want them sorted and at most %d", spec.AgentFeatures(), spec.MaxFeatures)
	}
}

// TestEveryFeatureIsListed reads the constants: one that is added is in the list of an agent.
func TestEveryFeatureIsListed(t *testing.T) {
	text, err := os.ReadFile("features.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\tFeature\w+ += "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(spec.AgentFeatures(), m[1]) {
			t.Errorf("feature %s is not among those of an agent: %v", m[1], spec.AgentFeatures())
		}
	}
}
