package tier

import (
	"errors"
	"strings"
	"testing"
)

// A role that cannot say what it knows, such as while it starts, has no figures of it: none is another answer than 0.
func TestMetricsOfNothing(t *testing.T) {
	for _, unknown := range []error{nil, errors.New("the role is starting")} {
		var out strings.Builder
		(&RoleMetrics{Role: new(Role), Ready: unknown, Unknown: unknown}).Write(&out)
		for _, name := range []string{"skerry_instances_ready ", "skerry_instances{", "skerry_applications{", "skerry_orphans ",
			"skerry_instances_restarts "} {
			if got := strings.Contains(out.String(), "\n"+name); got != (unknown == nil) {
				t.Errorf("not known: %v: %sis written: %v", unknown, name, got)
			}
		}
		if !strings.Contains(out.String(), "\nskerry_ready ") {
			t.Errorf("not known: %v: skerry_ready is not written:\n%s", unknown, out.String())
		}
	}
}
