// Package yamlsize bounds what a YAML document becomes when its aliases are replaced by what they stand for. Parsers bound how many nodes
// that are, but not how long: an alias of two bytes may stand for a text of a megabyte, and a document has room for very many. Whoever
// converts YAML to JSON asks it before.
package yamlsize

import (
	"bytes"

	"go.yaml.in/yaml/v3"

	"skerry.dev/skerry"
)

// Check returns an error if the documents of a file, without aliases, would have texts of more than limit bytes together. What is wrong
// with the file otherwise is left to whoever parses it.
func Check(data []byte, limit int) error {
	if !bytes.ContainsRune(data, '*') || !bytes.ContainsRune(data, '&') {
		return nil
	}
	total := 0
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var tree yaml.Node
		if dec.Decode(&tree) != nil {
			return nil
		}
		sizes := map[*yaml.Node]int{}
		if total += size(&tree, limit, sizes); total > limit {
			return skerry.Errorf(skerry.CodeTooLarge, "its aliases stand for more than %s", skerry.Bytes(limit)).
				WithHint("write each text once")
		}
	}
}

// size gives the bytes of all texts of a node, or a number above limit. Sizes has those that are known; a node that contains itself is
// too large.
func size(node *yaml.Node, limit int, sizes map[*yaml.Node]int) int {
	if known, ok := sizes[node]; ok {
		return known
	}
	sizes[node] = limit + 1
	sum := len(node.Value)
	if node.Kind == yaml.AliasNode {
		sum = size(node.Alias, limit, sizes)
	}
	for _, inner := range node.Content {
		if sum = min(sum+size(inner, limit, sizes), limit+1); sum > limit {
			break
		}
	}
	sizes[node] = sum
	return sum
}
