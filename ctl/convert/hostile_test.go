package convert

import (
	"fmt"
	"strings"
	"testing"
)

// TestVariablesOfVariables: variables that each are two of another are refused before they fill the memory.
func TestVariablesOfVariables(t *testing.T) {
	var file strings.Builder
	fmt.Fprintf(&file, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: a/b:1\n    env:\n"+
		"      - {name: V0, value: %q}\n", strings.Repeat("x", 100))
	for n := range 60 {
		fmt.Fprintf(&file, "      - {name: V%d, value: $(V%d)$(V%d)}\n", n+1, n, n)
	}
	result, err := Kubernetes([]Document{{Data: []byte(file.String())}}, Options{})
	if err != nil || result.Count(Refused) == 0 {
		t.Errorf("they are taken: %v", err)
	}
}

// TestDetectOutside: what is in the texts of a file says nothing of the file.
func TestDetectOutside(t *testing.T) {
	const job = "    job \"x\" {\n    }\n"
	for text, want := range map[string]Format{
		"apiVersion: skerry/v1\nkind: Application\nmetadata: {name: a}\nspec:\n  x: |\n" + job: FormatSkerry,
		"apiVersion: v1\nkind: ConfigMap\ndata:\n  x: |\n" + job:                               FormatKubernetes,
		"job \"x\" {\n}\n": FormatNomad,
		"# a job\njob \"x\" {\n  group \"g\" {}\n}\n": FormatNomad,
	} {
		if got := Detect([]byte(text)); got != want {
			t.Errorf("file %q is for %q, want %q", text, got, want)
		}
	}
}

// TestPlacesOfManyFields: to say where fields are does not take a look at the whole file for each.
func TestPlacesOfManyFields(t *testing.T) {
	body, lines, err := readHCL([]byte("job \"a\" {\n  /* é */ b = 1\n  c = [\n    { d = 2 }]\n}\n"))
	if err != nil || body["job"] == nil {
		t.Fatalf("read %v: %v", body, err)
	}
	for path, want := range map[string][2]int{"job[0]": {1, 1}, "job[0].b": {2, 11}, "job[0].c": {3, 3}, "job[0].c[0].d": {4, 7}} {
		if lines[path] != want {
			t.Errorf("field %s is at %v, want %v", path, lines[path], want)
		}
	}
}

// TestPoliciesTogether: where pods may go is what all policies allow, and a policy that fits nothing is not said to be kept.
func TestPoliciesTogether(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a}}\nspec: {containers: [{name: a, image: a/b:1}]}\n"
	policy := func(name, selector, cidr string) string {
		return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s}\nspec:\n  podSelector: %s\n"+
			"  policyTypes: [Egress]\n  egress: [{to: [{ipBlock: {cidr: %s}}]}]\n", name, selector, cidr)
	}
	docs := []Document{{Data: []byte(pod)}, {Data: []byte(policy("one", "{}", "10.1.0.0/16"))},
		{Data: []byte(policy("two", "{matchLabels: {app: a}}", "10.2.0.0/16"))}}
	result, err := Kubernetes(docs, Options{})
	if err != nil || result.Count(Refused) > 0 {
		t.Fatalf("convert two policies: %v, %+v", err, result)
	}
	if egress := result.App.Spec.Services[0].Egress; egress == nil || len(egress.Allow) != 2 {
		t.Errorf("of two policies became %+v", egress)
	}
	for _, selector := range []string{"{matchLabels: {app: b}}", "{matchExpressions: [{key: app, operator: Exists}]}"} {
		result, err := Kubernetes([]Document{{Data: []byte(pod)}, {Data: []byte(policy("one", selector, "10.1.0.0/16"))}}, Options{})
		if err != nil {
			t.Fatalf("convert %s: %v", selector, err)
		}
		for _, field := range result.Fields {
			if field.Verdict == Kept && strings.HasSuffix(field.Path, ".egress") {
				t.Errorf("for %s: %+v, but it is nowhere in the manifest", selector, field)
			}
		}
	}
}

// TestVariablesOfJobs: what the language would put into a text is an error wherever it is, as in place of a text.
func TestVariablesOfJobs(t *testing.T) {
	for _, text := range []string{"${var.user}", "${ local.user }", "%{ if true }a%{ endif }", "${lower(\"A\")}"} {
		job := `job "a" {
  group "a" {
    task "a" {
      driver = "docker"
      config { image = "a/b:1" }
      user = "` + text + `"
    }
  }
}
`
		if result, err := Nomad([]byte(job), Options{}); err == nil && result.Count(Refused) == 0 {
			t.Errorf("the text %s is kept: %+v", text, result.App.Spec.Services[0].User)
		}
	}
}
