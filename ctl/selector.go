package ctl

import (
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// labelsOf reads a selector such as a=b,c=d.
func labelsOf(selector string) (map[string]string, error) {
	labels := map[string]string{}
	for part := range strings.SplitSeq(selector, ",") {
		if part == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		// Nothing can have such a label: the selector would select nothing, as if there were none of what was meant.
		if !ok || k == "" || strings.ContainsAny(k, "! \t") || strings.HasPrefix(v, "=") {
			return nil, skerry.Errorf(skerry.CodeInvalid, "-l %q is not KEY=VALUE", part).
				WithHint("write -l region=west,tier=1: all of these pairs, separated by commas; = is the only comparison")
		}
		if had, twice := labels[k]; twice && had != v {
			return nil, skerry.Errorf(skerry.CodeInvalid, "-l asks for two values of %q", k)
		}
		labels[k] = v
	}
	return labels, nil
}

// matchLabels tells whether labels have all pairs of a selector.
func matchLabels(labels map[string]string, selector string) (bool, error) {
	wanted, err := labelsOf(selector)
	return err == nil && spec.HasLabels(labels, wanted), err
}
