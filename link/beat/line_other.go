//go:build !linux

package beat

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// line is the way to a parent.
type line struct{ conn *net.UDPConn }

func dial(to netip.AddrPort) (*line, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	return &line{conn}, nil
}

func (l *line) close() { l.conn.Close() }

func (l *line) send(out []byte) error {
	_, err := l.conn.Write(out)
	return err
}

func (l *line) exchange(_, _ []byte, _ time.Duration) (int, error) { return 0, errors.ErrUnsupported }

func (l *line) receive(ctx context.Context, in []byte, until time.Time) (int, error) {
	if err := l.conn.SetReadDeadline(until); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return l.conn.Read(in)
}

const quickRTT = 0
