package interference

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"skerry.dev/skerry/bench/cable"
	"skerry.dev/skerry/wire"
)

// line joins a network namespace, with a path, to the machine.
type line struct {
	space      *cable.Space
	outside    cable.End
	inside     netip.Addr
	attachment *wire.Attachment
}

func newLine(path string) (*line, error) {
	s, err := cable.Make(path)
	if err != nil {
		return nil, err
	}
	outer, inner := cable.Block()
	l := &line{space: s, outside: cable.End{Space: &cable.Space{}, Device: fmt.Sprintf("skbi%d", os.Getpid()), Addr: outer},
		inside: inner.Addr()}
	l.attachment = &wire.Attachment{NetNS: path, Device: l.outside.Device, MTU: 1500, Addresses: []netip.Prefix{inner}}
	if err := cable.Lay(cable.End{Space: s, Device: "eth0", Addr: inner}, l.outside); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// close takes the cable away, the interface of the machine first: the namespace may live a little longer.
func (l *line) close() error { return errors.Join(l.outside.Cut(), l.space.Close()) }
