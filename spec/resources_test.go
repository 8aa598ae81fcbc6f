package spec

import (
	"errors"
	"math"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// Amounts that are too large to be added up stay large: a sum below 0 would fit on every worker and into every quota.
func TestAmountsDoNotWrap(t *testing.T) {
	const huge = math.MaxInt64 / 2
	r := Resources{Memory: huge + 2, Storage: huge}
	s := ServiceSpec{Resources: r, Sidecars: []SideContainer{{Resources: r}}, Volumes: []Volume{{Local: &LocalVolume{Size: huge}}, {Empty: &EmptyVolume{Size: huge}}}}
	for i, sum := range []Resources{r.Add(r), r.Times(3), s.Need(), s.AtMost(), s.Need().Times(10000).Add(s.Need())} {
		text, err := sum.Memory.MarshalJSON()
		var read skerry.Bytes
		if err = errors.Join(err, read.UnmarshalJSON(text)); err != nil || sum.Memory != maxSum || sum.Storage != maxSum || read != maxSum {
			t.Errorf("%d: %d, %d, %v", i, sum.Memory, sum.Storage, err)
		}
	}
	if sum := (Resources{CPU: 500, Memory: skerry.MiB}).Times(4); sum.CPU != 2000 || sum.Memory != 4*skerry.MiB {
		t.Errorf("%d, %d", sum.CPU, sum.Memory)
	}
	if d := (Resources{Memory: -10}).Sub(Resources{Memory: math.MaxInt64}); d.Memory != -maxSum {
		t.Errorf("%d", d.Memory)
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
		if err == nil || !strings.Contains(skerry.AsError(err).Problems[0].Message, MaxAmount.String()) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestResourcesVector(t *testing.T) {
	r := Resources{CPU: 1, Memory: 2, Storage: 3, GPUs: 4, TPUs: 5, BandwidthIn: 6, BandwidthOut: 7}
	if FromVector(r.Vector()) != r {
		t.Error("the vector loses something")
	}
	if s := r.Add(r).Sub(r); s != r {
		t.Errorf("%+v", s)
	}
	if !r.Fits(r) || r.Fits(Resources{GPUs: 5}) {
		t.Error("Fits is wrong")
	}
}
