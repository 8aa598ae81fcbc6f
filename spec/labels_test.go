package spec

import (
	"strings"
	"testing"
)

func TestCheckLabel(t *testing.T) {
	for label, want := range map[string]bool{
		"region=west": true, "skerry.dev/ring=1": true, "empty=": true, "=west": false, "region=a b": false, "region=a,b": false,
		"region-=west": false, "region=a\x00": false, "größe=groß": true, strings.Repeat("k", 64) + "=": false,
		"k=" + strings.Repeat("v", 64): false, "bad=\xff": false,
	} {
		key, value, _ := strings.Cut(label, "=")
		if err := CheckLabel(key, value); (err == nil) != want {
			t.Errorf("label %q: got %v, want it accepted: %v", label, err, want)
		}
	}
	if CheckLabel("a=b", "c") == nil {
		t.Error("a key with = is accepted, want it refused")
	}
}

// FuzzCheckLabel has every label that is accepted be the only thing that a selector and a change of labels can mean.
func FuzzCheckLabel(f *testing.F) {
	f.Add("region", "west")
	f.Add("skerry.dev/ring", "")
	f.Add("a=", ",")
	f.Add("x-", "\xff")
	f.Fuzz(func(t *testing.T, key, value string) {
		if CheckLabel(key, value) != nil {
			return
		}
		text := key + "=" + value
		gotKey, gotValue, _ := strings.Cut(text, "=")
		if gotKey != key || gotValue != value || strings.Contains(text, ",") || len(strings.Fields(text)) != 1 {
			t.Errorf("label %q: a selector means %q, %q, want %q, %q", text, gotKey, gotValue, key, value)
		}
		if !HasLabels(map[string]string{key: value, "other": "x"}, map[string]string{gotKey: gotValue}) {
			t.Errorf("label %q is not found where it is", text)
		}
	})
}
