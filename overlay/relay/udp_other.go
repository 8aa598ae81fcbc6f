//go:build !linux

package relay

import "net"

func tune(*net.UDPConn) (gso bool) { return false }

func segment([]byte) int { return 0 }

func appendSegment(b []byte, _ int) []byte { return b }
