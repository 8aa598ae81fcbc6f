package cluster

import (
	"sync"

	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/wire"
)

// orderAudit passes on, for the audit, what the site took up of the orders of its root. They may come before there is an audit.
type orderAudit struct {
	lock  sync.Mutex
	keep  func(order wire.SiteOrder, refused string)
	early []core.OrderTaken // until there is a keep; the core bounds how often they come
}

func (a *orderAudit) taken(order core.OrderTaken) {
	a.lock.Lock()
	keep := a.keep
	if keep == nil && len(a.early) < 16 {
		a.early = append(a.early, order)
	}
	a.lock.Unlock()
	if keep != nil {
		keep(order.Order, order.Refused)
	}
}

// AuditOrders has each order of the root that the site takes up, or refuses, given to keep.
func (a *orderAudit) AuditOrders(keep func(order wire.SiteOrder, refused string)) {
	a.lock.Lock()
	early := a.early
	a.keep, a.early = keep, nil
	a.lock.Unlock()
	for _, order := range early {
		keep(order.Order, order.Refused)
	}
}
