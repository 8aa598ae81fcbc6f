package plugin

import (
	"fmt"
	"strings"
	"unicode"

	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
)

// MaxReply is the largest answer accepted, in bytes.
const MaxReply = 1 << 20

// maxReason bounds the reason for which a candidate is ruled out, in bytes.
const maxReason = 200

// wireReply is sched.PluginReply as it is read: a score must be there.
type wireReply struct {
	Scores map[string]*float64 `json:"scores"`
	Out    map[string]string   `json:"out"`
}

// ParseReply reads a plugin's answer to a query. Scores outside 0 to 1, candidates that were not asked about and fields
// that do not exist are refused: to guess what was meant would hide the mistake.
func ParseReply(data []byte, query *sched.PluginQuery) (sched.PluginReply, error) {
	var out sched.PluginReply
	if len(data) > MaxReply {
		return out, fmt.Errorf("the answer has more than %d bytes", MaxReply)
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return out, fmt.Errorf("it answered nothing")
	}
	var w wireReply
	if p := spec.DecodeStrict(data, &w); len(p) > 0 {
		text := p[0].Message
		if p[0].Path != "" {
			text = clean(p[0].Path) + " " + text
		}
		if p[0].Hint != "" {
			text += " (" + p[0].Hint + ")"
		}
		return out, fmt.Errorf("nonsense: %s", clean(text))
	}
	known := make(map[string]bool, len(query.Candidates))
	for i := range query.Candidates {
		known[query.Candidates[i].Name] = true
	}
	// In the order of the candidates, so that the same answer is refused for the same reason.
	for i := range query.Candidates {
		name := query.Candidates[i].Name
		s, scored := w.Scores[name]
		if scored {
			if s == nil || !(*s >= 0 && *s <= 1) {
				return out, fmt.Errorf("nonsense: the score of %s is %s; a score is a number from 0 to 1", name, number(s))
			}
			if out.Scores == nil {
				out.Scores = map[string]float64{}
			}
			out.Scores[name] = *s
		}
		if why, ruled := w.Out[name]; ruled {
			if why = clean(why); why == "" {
				why = "it gives no reason"
			}
			if out.Out == nil {
				out.Out = map[string]string{}
			}
			out.Out[name] = why
		}
	}
	if len(out.Scores) < len(w.Scores) {
		return sched.PluginReply{}, fmt.Errorf("nonsense: scores names %s, which is no candidate", stranger(w.Scores, known))
	}
	if len(out.Out) < len(w.Out) {
		return sched.PluginReply{}, fmt.Errorf("nonsense: out names %s, which is no candidate", stranger(w.Out, known))
	}
	return out, nil
}

func number(f *float64) string {
	if f == nil {
		return "null"
	}
	return fmt.Sprintf("%g", *f)
}

// stranger gives the first name, in order, that is not known.
func stranger[V any](names map[string]V, known map[string]bool) string {
	first, found := "", false
	for n := range names {
		if !known[n] && (!found || n < first) {
			first, found = n, true
		}
	}
	return fmt.Sprintf("%q", clean(first))
}

// clean makes one short printable line of what a plugin wrote: it ends up on terminals.
func clean(s string) string {
	if len(s) > 4*maxReason {
		s = s[:4*maxReason]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return ' '
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}
