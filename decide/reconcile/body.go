package reconcile

import (
	"slices"
	"unique"
)

// body is the value of an item. The part that Options.Common finds in it is kept once for all values, of all sets, that have the same.
type body struct {
	own    []byte // all of it, or what is before and after the common part
	at     int    // where in own the common part belongs
	common unique.Handle[string]
}

// newBody keeps value, which must not be changed, unless a part of it is common.
func (o *Options) newBody(key string, value []byte) body {
	if o.Common == nil {
		return body{own: value}
	}
	from, to := o.Common(key, value)
	if from < 0 || to > len(value) || to-from < leastCommon {
		return body{own: value}
	}
	return body{slices.Concat(value[:from], value[to:]), from, unique.Make(string(value[from:to]))}
}

// clone gives a body that shares nothing with the value that it was made of.
func (b body) clone() body {
	if b.common == (unique.Handle[string]{}) {
		b.own = slices.Clone(b.own)
	}
	return b
}

// leastCommon is how many bytes a part must have to be worth a place of its own.
const leastCommon = 64

func (b *body) text() string {
	if b.common == (unique.Handle[string]{}) {
		return ""
	}
	return b.common.Value()
}

// bytes gives the value, which must not be changed.
func (b *body) bytes() []byte {
	common := b.text()
	if common == "" {
		return b.own
	}
	return slices.Concat(b.own[:b.at], []byte(common), b.own[b.at:])
}

func (b *body) equal(value []byte) bool {
	common := b.text()
	if len(value) != len(b.own)+len(common) {
		return false
	}
	return string(value[:b.at]) == string(b.own[:b.at]) && string(value[b.at:b.at+len(common)]) == common &&
		string(value[b.at+len(common):]) == string(b.own[b.at:])
}
