package cluster

import "skerry.dev/skerry/cluster/uplink"

// roster is the workers of a site, by name. Its methods need to know nothing else.
type roster map[string]*worker

// Worker implements uplink.Names.
func (ws roster) Worker(name string) (address string, ok bool) {
	w := ws[name]
	if w != nil && w.Facts != nil {
		address = w.Facts.Address
	}
	return address, w != nil
}

// anonymous takes the names of workers out of a text that leaves the site, and the addresses of those that have to do with the placement.
func (ws roster) anonymous(p *placement, text string) string {
	near := []string{p.Worker, p.Pinned}
	if p.Next != nil {
		near = append(near, p.Next.Worker)
	}
	return uplink.Redact(ws, text, near...)
}
