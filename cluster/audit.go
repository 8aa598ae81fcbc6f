package cluster

import "slices"

// Audit says what of the core's books does not balance, part by part. It costs as much as the site is large; tests call it after every step.
func (c *Core) Audit() []string {
	faults := slices.Concat(c.ledger.audit(c.workers), c.books.audit(), c.lifecycle.audit(), c.overlay.audit(), c.drainer.audit(),
		c.balancer.balance.Audit(), c.amender.overrides.Audit(), c.salvager.rebuild.Audit())
	slices.Sort(faults)
	return faults
}
