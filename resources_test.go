package skerry

import (
	"math"
	"strings"
	"testing"
)

// Amounts that are too large to be added up stay large: a sum below 0 would fit on every worker and into every quota.
func TestAmountsDoNotWrap(t *testing.T) {
	const huge = math.MaxInt64 / 2
	r := Resources{Memory: huge + 2, Storage: huge}
	if sum := r.Add(r); sum.Memory != math.MaxInt64 || sum.Storage != math.MaxInt64-1 {
		t.Errorf("%d, %d", sum.Memory, sum.Storage)
	}
	if sum := r.Times(3); sum.Memory != math.MaxInt64 || sum.Storage != math.MaxInt64 {
		t.Errorf("%d, %d", sum.Memory, sum.Storage)
	}
	if sum := (Resources{CPU: 500, Memory: MiB}).Times(4); sum.CPU != 2000 || sum.Memory != 4*MiB {
		t.Errorf("%d, %d", sum.CPU, sum.Memory)
	}
	if d := (Resources{Memory: -10}).Sub(Resources{Memory: math.MaxInt64}); d.Memory != math.MinInt64 {
		t.Errorf("%d", d.Memory)
	}
	s := ServiceSpec{Resources: r, Sidecars: []SideContainer{{Resources: r}}, Volumes: []Volume{{Local: &LocalVolume{Size: huge}}, {Empty: &EmptyVolume{Size: huge}}}}
	for _, need := range []Resources{s.Need(), s.AtMost()} {
		if need.Memory != math.MaxInt64 || need.Storage != math.MaxInt64 {
			t.Errorf("%d, %d", need.Memory, need.Storage)
		}
	}
}

func TestAmountsAreBounded(t *testing.T) {
	for _, field := range []string{`"resources": {"memory": "4500000Ti"}`, `"resources": {"storage": "2000Ti"}`, `"resources": {"memory": "1Gi", "limits": {"memory": "4500000Ti"}}`,
		`"sidecars": [{"name": "x", "image": "i", "resources": {"memory": "4500000Ti"}}]`, `"volumes": [{"name": "v", "empty": {"size": "4500000Ti"}}]`,
		`"volumes": [{"name": "v", "empty": {"memory": true, "size": "4500000Ti"}}]`} {
		app, err := DecodeApplication([]byte(`{"apiVersion": "skerry/v1", "kind": "Application", "metadata": {"name": "a"}, "spec": {"services": [{"name": "s", "image": "i", ` + field + `}]}}`))
		if err == nil {
			err = app.Validate()
		}
		if err == nil || !strings.Contains(AsError(err).Problems[0].Message, MaxAmount.String()) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
