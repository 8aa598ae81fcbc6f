package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"skerry.dev/skerry/internal/thread"
)

// route makes a router one of a kind. It forgets whom it knew: it is another one.
func (l *Lab) route(router *Host, kind NAT) error {
	if err := l.tool(router.Name, l.Topology.natRules(router, kind), "nft", "-f", "-"); err != nil {
		return fmt.Errorf("NAT %s: %w", router.Name, err)
	}
	err := thread.Do(func() error {
		if err := l.enter(router.Name); err != nil {
			return err
		}
		return netlink.ConntrackTableFlush(netlink.ConntrackTable)
	})
	if err != nil {
		return fmt.Errorf("NAT %s: forget connections: %w", router.Name, err)
	}
	return nil
}
