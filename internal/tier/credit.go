package tier

import (
	"skerry.dev/skerry/decide/credit"
	"skerry.dev/skerry/view"
)

// ViewCredit shows what speaks against a member, or gives nil where nothing does.
func ViewCredit(b *credit.Book) *view.CreditView {
	if b.Clean() {
		return nil
	}
	v := &view.CreditView{Rank: b.Rank(), Quarantine: b.Quarantine, Since: b.Since, Until: b.Due()}
	for _, k := range b.Marked() {
		e := b.Entries[k]
		v.Marks = append(v.Marks, view.CreditMark{Kind: string(k), Text: e.Text, Marks: e.Marks, Last: e.Last, For: e.For, Against: e.Against})
	}
	return v
}
