package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// fields is a mapping of a file, out of which its reader takes field after field. What is left in the end is refused.
type fields struct {
	at    string
	m     map[string]any
	r     *Result
	asked []string // the names under which its reader looked: others may be one of them, misspelt
}

func newFields(at string, m map[string]any, r *Result) *fields { return &fields{at: at, m: m, r: r} }

// sub takes a field that is a mapping; without one, an empty one. Its own fields have verdicts of their own.
func (f *fields) sub(key string) *fields {
	v, ok := f.take(key)
	m, is := v.(map[string]any)
	if ok && !is {
		f.refuse(key, "it is not a mapping")
	}
	return newFields(f.at+"."+key, m, f.r)
}

// each takes a field that is a list of mappings.
func (f *fields) each(key string) (out []*fields) {
	for i, v := range f.list(key) {
		at := fmt.Sprintf("%s.%s[%d]", f.at, key, i)
		if m, ok := v.(map[string]any); ok {
			out = append(out, newFields(at, m, f.r))
		} else {
			f.r.add(at, Refused, "it is not a mapping")
		}
	}
	return out
}

// named takes a field that is a mapping of names to mappings, in the order of the names. A name alone has an empty one.
func (f *fields) named(key string) (names []string, out map[string]*fields) {
	in := f.sub(key)
	out = map[string]*fields{}
	for _, name := range slices.Sorted(maps.Keys(in.m)) {
		m, _ := in.m[name].(map[string]any)
		if names = append(names, name); m == nil && in.m[name] != nil {
			in.refuse(name, "it is not a mapping")
		}
		out[name] = newFields(in.at+"."+name, m, f.r)
	}
	return names, out
}

// take gives a field, once. A field that is null is not there.
func (f *fields) take(key string) (any, bool) {
	v, ok := f.m[key]
	delete(f.m, key)
	f.asked = append(f.asked, key)
	return v, ok && v != nil
}

func (f *fields) has(key string) bool { return f.m[key] != nil }

func (f *fields) verdict(key string, v Verdict, format string, args ...any) {
	at := f.at
	if key != "" {
		at += "." + key
	}
	f.r.add(at, v, format, args...)
}

func (f *fields) kept(key, format string, args ...any) { f.verdict(key, Kept, format, args...) }
func (f *fields) approx(key, format string, args ...any) {
	f.verdict(key, Approximated, format, args...)
}
func (f *fields) refuse(key, format string, args ...any) { f.verdict(key, Refused, format, args...) }

// without takes a field that needs no counterpart, or none that differs much, if it is there.
func (f *fields) without(key, why string) {
	if v, ok := f.take(key); ok && !empty(v) {
		f.approx(key, "%s", why)
	}
}

// text takes a text, number or truth value as text; became is the field of the manifest, or "" where the caller gives the verdict.
func (f *fields) text(key, became string) string {
	v, ok := f.take(key)
	if !ok {
		return ""
	}
	s, ok := asText(v)
	if !ok {
		f.refuse(key, "it is not a text")
	} else if became != "" {
		f.kept(key, "%s", became)
	}
	return s
}

func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

func (f *fields) flag(key, became string) bool {
	if !f.has(key) {
		return false
	}
	v, err := strconv.ParseBool(f.text(key, ""))
	if err != nil {
		f.refuse(key, "it is neither true nor false")
	} else if became != "" {
		f.kept(key, "%s", became)
	}
	return v
}

// number takes a whole number; nil where there is none.
func (f *fields) number(key, became string) *int {
	if !f.has(key) {
		return nil
	}
	n, err := strconv.Atoi(f.text(key, ""))
	if err != nil {
		f.refuse(key, "it is not a whole number")
		return nil
	}
	if became != "" {
		f.kept(key, "%s", became)
	}
	return &n
}

// list takes a list; one value alone is a list of one.
func (f *fields) list(key string) []any {
	v, ok := f.take(key)
	if !ok {
		return nil
	}
	if list, is := v.([]any); is {
		return list
	}
	return []any{v}
}

func (f *fields) texts(key, became string) (out []string) {
	if !f.has(key) {
		return nil
	}
	for i, v := range f.list(key) {
		s, ok := asText(v)
		if !ok {
			f.refuse(fmt.Sprintf("%s[%d]", key, i), "it is not a text")
			continue
		}
		out = append(out, s)
	}
	if became != "" {
		f.kept(key, "%s", became)
	}
	return out
}

// duration takes a time such as 1m30s, or a number of seconds.
func (f *fields) duration(key, became string) spec.Duration {
	text := f.text(key, "")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if n, e := strconv.ParseFloat(text, 64); err != nil && e == nil && n < math.MaxInt32 {
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	if err != nil || d < 0 {
		f.refuse(key, "%q is not a time", text)
		return 0
	}
	if became != "" {
		f.kept(key, "%s", became)
	}
	return spec.Duration(d)
}

func (f *fields) bytes(key, became string) skerry.Bytes {
	text := f.text(key, "")
	if text == "" {
		return 0
	}
	n, err := skerry.ParseBytes(text)
	if err != nil {
		f.refuse(key, "%q is not a size", text)
		return 0
	}
	if became != "" {
		f.kept(key, "%s", became)
	}
	return n
}

func (f *fields) cores(key, became string) skerry.MilliCPU {
	text := f.text(key, "")
	if text == "" {
		return 0
	}
	n, err := skerry.ParseMilliCPU(text)
	if err != nil {
		f.refuse(key, "%q is not a number of cores", text)
		return 0
	}
	if became != "" {
		f.kept(key, "%s", became)
	}
	return n
}

// nothingLike refuses all that is left; why says more of some of it, by key.
func (f *fields) nothingLike(why map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(f.m)) {
		note := cmp.Or(why[key], f.misspelt(key), "Skerry has nothing like it")
		v, ok := f.m[key]
		delete(f.m, key)                                      // without take, or it would be a name that others are misspelt of
		if ok && !empty(v) && !strings.HasPrefix(key, "x-") { // extensions, which nobody reads
			f.refuse(key, "%s", note)
		}
	}
}

// misspelt names the field that was meant, if one is so much like it that nothing else can have been.
func (f *fields) misspelt(key string) string {
	for _, known := range f.asked {
		if len(known) > 3 && spec.EditDistance(strings.ToLower(key), strings.ToLower(known)) <= 2 {
			return fmt.Sprintf("no such field is known; did you mean %q?", known)
		}
	}
	return ""
}

// leave takes fields that need no counterpart, or none that differs much; why says so of each.
func (f *fields) leave(why map[string]string) {
	for key, note := range why {
		f.without(key, note)
	}
}

// empty reports whether a value says nothing.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// pairs takes a mapping of names to texts, or a list of NAME=VALUE. A name alone is one whose value is not known.
func (f *fields) pairs(key, became string) map[string]string {
	value, ok := f.take(key)
	if !ok {
		return nil
	}
	out := map[string]string{}
	switch given := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(given)) {
			s, ok := asText(given[name])
			switch {
			case ok:
				out[name] = s
			case given[name] == nil:
				f.approx(key+"."+name, "left out: it is not set here")
			default:
				f.refuse(key+"."+name, "it is not a text")
			}
		}
	case []any:
		for _, x := range given {
			name, s, _ := strings.Cut(fmt.Sprint(x), "=")
			out[name] = s
		}
	default:
		f.refuse(key, "it is not a mapping")
		return nil
	}
	if became != "" && len(out) > 0 {
		f.kept(key, "%s", became)
	}
	return out
}
