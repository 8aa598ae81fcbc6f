package view

import (
	"skerry.dev/skerry/decide/evidence"
)

// NewTrust shows what speaks against a member, or gives nil where nothing does.
func NewTrust(b *evidence.Book) *CreditView {
	if b.Clean() {
		return nil
	}
	v := &CreditView{Rank: b.Rank(), Quarantine: b.Quarantine, Since: b.Since, Until: b.Due()}
	for _, k := range b.Marked() {
		e := b.Entries[k]
		v.Marks = append(v.Marks, CreditMark{Kind: string(k), Text: e.Text, Marks: e.Marks, Last: e.Last, For: e.For, Against: e.Against})
	}
	return v
}
