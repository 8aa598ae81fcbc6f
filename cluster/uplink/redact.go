package uplink

import (
	"slices"
	"strings"
)

// aWorker stands for a worker's name in what leaves the site.
const aWorker = "a worker"

// shortName is the length below which a name is only looked for as a word: a worker that is called "s" is in most of them.
const shortName = 4

// Names are those of the workers of a site.
type Names interface {
	// Worker gives where a worker is reached, and whether there is one of that name.
	Worker(name string) (address string, ok bool)
}

// Redact takes the names of workers out of a text that leaves the site, and the addresses of those that have to do with it. Texts come
// from workers, runtimes and plugins, so nothing is known of their form.
func Redact(names Names, text string, near ...string) string {
	if text == "" {
		return ""
	}
	slices.SortFunc(near, func(a, b string) int { return len(b) - len(a) }) // one may be the beginning of another
	for _, name := range near {
		if name == "" {
			continue
		}
		if at, _ := names.Worker(name); strings.ContainsAny(at, ".:") {
			text = strings.ReplaceAll(text, at, "its address")
		}
		if len(name) >= shortName {
			text = strings.ReplaceAll(strings.ReplaceAll(text, "worker "+name, aWorker), name, aWorker)
		}
	}
	// Any other worker's name stands by itself, or as a part of a host's name.
	var out strings.Builder
	for len(text) > 0 {
		n := strings.IndexFunc(text, func(r rune) bool { return !wordRune(r) && r != '.' })
		if n < 0 {
			n = len(text)
		}
		out.WriteString(redactWord(names, text[:n]))
		if text = text[n:]; text != "" {
			m := strings.IndexFunc(text, wordRune)
			if m < 0 {
				m = len(text)
			}
			out.WriteString(text[:m])
			text = text[m:]
		}
	}
	return strings.ReplaceAll(out.String(), "worker "+aWorker, aWorker)
}

func wordRune(r rune) bool {
	return r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// redactWord is Redact for a word, or for several with dots between them.
func redactWord(names Names, word string) string {
	known := func(name string) bool {
		_, ok := names.Worker(name)
		return ok
	}
	if known(strings.TrimRight(word, ".")) {
		return aWorker + word[len(strings.TrimRight(word, ".")):]
	}
	if !strings.Contains(word, ".") {
		return word
	}
	parts := strings.Split(word, ".")
	for i, part := range parts {
		if known(part) {
			parts[i] = aWorker
		}
	}
	return strings.Join(parts, ".")
}

// InGeneral tells in general terms what of an SLA does not hold, for whoever may not know of single workers.
func InGeneral(what, text string) string {
	switch what {
	case "availability", "waiting", "link":
		return text // its own
	case "pressure":
		return "its worker is short of memory"
	case "promised":
		return "its worker has less than was promised"
	case "distance", "area", "location":
		return "its place is no longer within the limits: " + what
	}
	return "its place no longer keeps the limit of " + what
}
