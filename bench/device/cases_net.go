package device

import (
	"strconv"

	"skerry.dev/skerry/bench/report"
)

// addressHere and portHere are replaced, in arguments, by where the other machine answers.
const (
	addressHere = "@address@"
	portHere    = "@port@"
)

// networkCases are traffic with another machine, a namespace at the end of a cable: by size of message, as netperf has
// it in 001 and 003, and with segmentation offload and without.
func networkCases() (out []Case) {
	for _, offload := range []bool{true, false} {
		end, title := "", ""
		if !offload {
			end, title = ".plain", ", no offload"
		}
		add := func(id, name, unit, figure, kind, bytes string) {
			c := kernel("net."+id+end, "net", name+title, unit, report.Higher, figure,
				func(s size) []string {
					return []string{"net", kind, addressHere, portHere, bytes, strconv.Itoa(500 * s.seconds)}
				})
			c.wired, c.plain = true, !offload
			out = append(out, c)
		}
		for _, bytes := range []string{"64", "512", "4096"} {
			add("stream."+bytes, "one TCP stream, written "+bytes+" bytes at a time", "Mbit/s", "mbits", "stream", bytes)
			add("rr."+bytes, "TCP, requests and answers of "+bytes+" bytes", "1/s", "rate", "rr", bytes)
			add("udp."+bytes, "UDP, datagrams of "+bytes+" bytes that arrive", "Mbit/s", "mbits", "udp", bytes)
		}
		add("connect", "TCP, connections made and closed", "1/s", "rate", "connect", "1")
	}
	return out
}
