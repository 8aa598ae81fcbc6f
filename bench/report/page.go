package report

import (
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
)

// pageStyle suits screens, light and dark, and paper.
const pageStyle = `:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:78rem;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0 2rem}th,td{text-align:left;padding:.2rem .6rem;border-bottom:1px solid #8885;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}small{opacity:.75}
svg{width:100%;max-width:820px;height:auto;display:block}
.key span{display:inline-block;margin-right:1.2rem}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}
.warn{border-left:4px solid #d1495b;padding-left:.8rem}
@media print{body{margin:0;max-width:none}tr,svg{break-inside:avoid}}`

// Page is HTML being written: one file that needs nothing else and has no script. The templates of the standard library look methods up by
// name, which keeps the linker from leaving any out: they cost the program a tenth of its size.
type Page struct {
	b     strings.Builder
	drawn map[string]string
}

// NewPage begins a page.
func NewPage(title string) *Page {
	p := &Page{drawn: map[string]string{}}
	p.Raw(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>`)
	p.Text(title)
	p.Raw("</title><style>" + pageStyle + "</style></head><body>")
	p.Element("h1", title)
	return p
}

// Raw adds HTML.
func (p *Page) Raw(text string) { p.b.WriteString(text) }

// Text adds what is no HTML.
func (p *Page) Text(text string) { p.b.WriteString(html.EscapeString(text)) }

// Element adds an element with text; tag may have attributes.
func (p *Page) Element(tag, text string) {
	name, _, _ := strings.Cut(tag, " ")
	p.Raw("<" + tag + ">")
	p.Text(text)
	p.Raw("</" + name + ">")
}

// Row adds a row of a table, of cells of one kind: th, td, or td with attributes.
func (p *Page) Row(tag string, cells ...string) {
	p.Raw("<tr>")
	for _, c := range cells {
		p.Element(tag, c)
	}
	p.Raw("</tr>\n")
}

// Facts adds a table of names and values.
func (p *Page) Facts(title string, m map[string]string) {
	p.Raw("<table>")
	p.Element("caption", title)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		p.Row("td", k, m[k])
	}
	p.Raw("</table>")
}

// draw adds a plot, and keeps it by its title in small letters and digits.
func (p *Page) draw(c *Chart) {
	drawing := c.SVG()
	p.Raw(drawing)
	words := strings.FieldsFunc(strings.ToLower(c.Title), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	base := strings.Join(words, "-")
	name := base
	for n := 2; p.drawn[name] != ""; n++ {
		name = fmt.Sprint(base, "-", n)
	}
	p.drawn[name] = drawing
}

// Drawings gives the plots so far as SVG, by names that files can have.
func (p *Page) Drawings() map[string]string { return p.drawn }

// String ends the page.
func (p *Page) String() string { return fmt.Sprint(p.b.String(), "</body></html>\n") }
