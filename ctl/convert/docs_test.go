package convert

import (
	"os"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// What the guide shows is converted as it says: nothing in it is refused.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/MIGRATING.md")
	if err != nil {
		t.Fatalf("read the guide: %v", err)
	}
	seen := map[Format]int{}
	for i, part := range strings.Split(string(text), "```") {
		_, block, _ := strings.Cut(part, "\n")
		if i%2 == 0 {
			continue
		}
		var result *Result
		data := []byte(block)
		format := Detect(data)
		seen[format]++
		switch format {
		case FormatCompose:
			result, err = Compose(t.Context(), data, Options{Name: "shop"})
		case FormatKubernetes:
			result, err = Kubernetes(documents(data), Options{Name: "shop"})
		case FormatNomad:
			result, err = Nomad(data, Options{})
		case FormatOakestra:
			result, err = Oakestra(data, Options{})
		default:
			continue
		}
		if err != nil || result.Count(Refused) > 0 {
			t.Errorf("%s: %v, %+v", format, err, result)
			continue
		}
		services := map[string]*spec.ServiceSpec{}
		for i := range result.App.Spec.Services {
			services[result.App.Spec.Services[i].Name] = &result.App.Spec.Services[i]
		}
		web := services["web"]
		if web == nil || services["store"] == nil || web.Ports[0].Port != 8080 || web.Ports[0].HostPort != 8080 ||
			web.Image != "example/web:1" || web.Env["STORE"] != "store:6379" && format != FormatOakestra {
			t.Errorf("for %s the web server became %+v", format, web)
		}
	}
	for _, format := range []Format{FormatCompose, FormatKubernetes, FormatNomad, FormatOakestra, FormatSkerry} {
		if seen[format] != 1 {
			t.Errorf("the guide has the application %d times for %s", seen[format], format)
		}
	}
}
