package archtest

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// retired are words in place of which docs/GLOSSARY.md has others: no part of a name in Go is one, where packages are given in those alone.
// What is stored or sent keeps older words, in tags and texts, which are no names.
var retired = []struct {
	words    string
	packages []string
	use      string
}{
	{"kid kids", nil, "children"},
	{"office", nil, "leadership"},
	{"salvage salvaged salvager salvages", nil, "rebuild"},
	{"borrow borrowed borrows", nil, "delegate"},
	{"astray", nil, "orphan"},
	{"anonymous", []string{"cluster/..."}, "redact"},
	{"seat seats", nil, "candidate, or location for that of an instance"},
	{"reign reigns", nil, "term"},
	{"heir heirs", nil, "inSync"},
	{"tenure ballot ballots", nil, "lease or voter"},
	{"fabric fabrics", nil, "overlayNet"},
	{"foreign", []string{"cluster/...", "wire", "sim", "internal/olddata", "root"}, "remote or external"},
	{"door doors", []string{"cluster/...", "root/...", "decide/apps", "spec", "wire", "worker/...", "sim", "overlay/ingress"}, "entry or listener"},
	{"gate gates", []string{"cluster/...", "worker/..."}, "ingress"},
	{"entrance entrances", nil, "ingress"},
	{"credit credits", []string{"cluster/...", "root/...", "decide/...", "sim", "view", "ctl"}, "trust or evidence"},
	{"believing", nil, "suspects"},
	{"wish wishes", []string{"cluster/core", "cluster/moves", "api", "ctl", "view"}, "move"},
	{"doubt doubted doubtful", []string{"cluster/...", "decide/..."}, "suspected or suspicion"},
	{"own", []string{"cluster/core", "cluster/autonomy"}, "local"},
	{"alone", []string{"cluster/core", "cluster/autonomy", "root/core"}, "autonomous or disconnected"},
	{"carry carried carrying", []string{"cluster/...", "worker/core", "spec"}, "checkpoint"},
	{"hold", []string{"worker/core", "cluster/core", "view"}, "freeze or cordon"},
	{"came", []string{"cluster/...", "root/...", "decide/apps", "wire", "worker/..."}, "arrivals"},
}

// retiredPackages are names that packages had, with what they are called now.
var retiredPackages = map[string]string{"fleet": "members", "tenure": "lease", "credit": "evidence"}

// named are names with such a word that the API's document has, which clients are made of, or a library (KID, of a key).
var named = []string{"CreditView", "CreditMark", "IngressDoor", "KID"}

// parts gives the words that a name is made of: keepCAFile is made of keep, ca and file.
func parts(name string) []string {
	letters := []rune(name)
	var out []string
	begin := 0
	for i := 1; i <= len(letters); i++ {
		upper := func(n int) bool { return n < len(letters) && unicode.IsUpper(letters[n]) }
		if i == len(letters) || letters[i] == '_' || upper(i) && (!upper(i-1) || i+1 < len(letters) && !upper(i+1)) {
			out = append(out, strings.ToLower(strings.Trim(string(letters[begin:i]), "_0123456789")))
			begin = i
		}
	}
	return out
}

// TestRetiredWords keeps words that were replaced from coming back.
func TestRetiredWords(t *testing.T) {
	for name, want := range map[string]string{
		"keepCAFile": "keep ca file", "Kids": "kids", "theOffice2": "the office", "old_kids": "old kids", "camera": "camera",
	} {
		if got := strings.Join(parts(name), " "); got != want {
			t.Errorf("%s is taken for %s", name, got)
		}
	}
	byWord := map[string][]int{} // in retired
	for i, r := range retired {
		for w := range strings.FieldsSeq(r.words) {
			byWord[w] = append(byWord[w], i)
		}
	}
	known := map[string][]string{} // the retired words in a name; most names come again and again
	word := func(s source, n ast.Node, name string) {
		list, ok := known[name]
		if !ok {
			if !slices.Contains(named, name) {
				list = slices.DeleteFunc(parts(name), func(p string) bool { return byWord[p] == nil })
			}
			known[name] = list
		}
		for _, p := range list {
			for _, i := range byWord[p] {
				if r := retired[i]; r.packages == nil || anyCovers(r.packages, s.dir) {
					t.Errorf("%s: %s has the retired word %s; use %s", s.at(n), name, p, r.use)
				}
			}
		}
	}
	for _, s := range load(t) {
		if use := retiredPackages[strings.TrimSuffix(s.ast.Name.Name, "_test")]; use != "" || retiredPackages[path.Base(s.dir)] != "" {
			t.Errorf("%s: the retired name of a package; use %s", s.path, use)
		}
		word(s, s.ast.Name, strings.TrimSuffix(path.Base(s.path), ".go"))
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				word(s, id, id.Name)
			}
			return true
		})
	}
}
