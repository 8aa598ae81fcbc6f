package spec

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"skerry.dev/skerry"
)

const (
	// MaxLabels bounds the labels of a cluster.
	MaxLabels = 64
	// maxLabel bounds a key and a value each, in bytes.
	maxLabel = 63
)

// CheckLabel reports why a label cannot be one of a cluster: a selector such as a=b,c=d must be able to name it.
func CheckLabel(key, value string) error {
	bad := func(text string) bool {
		return len(text) > maxLabel || !utf8.ValidString(text) ||
			strings.ContainsFunc(text, func(r rune) bool { return r == ',' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) })
	}
	if key == "" || strings.HasSuffix(key, "-") || bad(key) || bad(value) {
		return skerry.Errorf(skerry.CodeInvalid, "%.70q is no label of a cluster", key+"="+value).
			WithHint("key and value have at most %d bytes each, without spaces, commas and =; no key is empty or ends with -", maxLabel)
	}
	return nil
}

// HasLabels reports whether every wanted label is there.
func HasLabels(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// LabelText writes labels as KEY=VALUE,... in order.
func LabelText(labels map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return strings.Join(out, ",")
}
