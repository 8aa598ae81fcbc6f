package devices

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// maxAnswer bounds a datagram that is read, in bytes, and maxRecords what is looked at of it.
const (
	maxAnswer  = 9000 // RFC 6762, section 17
	maxRecords = 200
)

// askMDNS makes the question who offers a service (RFC 6763, section 4.1). It comes from another port than 5353, so that the answers come
// to that alone (RFC 6762, section 6.7).
func askMDNS(service string) ([]byte, error) {
	name, err := dnsmessage.NewName(service + ".local.")
	if err != nil {
		return nil, err
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 1})
	err = errors.Join(b.StartQuestions(), b.Question(dnsmessage.Question{Name: name, Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET}))
	if err != nil {
		return nil, err
	}
	return b.Finish()
}

// parseMDNS reads the answer of somebody to that question. Each instance of the service is a device at the address of whoever answers, as
// nothing that it says otherwise is looked up or believed: a name and an address in an answer could lead anywhere.
func parseMDNS(data []byte, service string, from netip.Addr) (out []Device) {
	if len(data) > maxAnswer {
		return nil
	}
	var parser dnsmessage.Parser
	head, err := parser.Start(data)
	if err != nil || !head.Response || parser.SkipAllQuestions() != nil {
		return nil
	}
	suffix := strings.ToLower("." + service + ".local.")
	ports := map[string]uint16{}
	paths := map[string]string{}
	var names []string
	for section := range 3 {
		for range maxRecords {
			var record dnsmessage.ResourceHeader
			var err error
			switch section {
			case 0:
				record, err = parser.AnswerHeader()
			case 1:
				record, err = parser.AuthorityHeader()
			default:
				record, err = parser.AdditionalHeader()
			}
			if err != nil {
				break
			}
			name := strings.ToLower(record.Name.String())
			known := false
			switch mine := strings.HasSuffix(name, suffix); {
			case record.Type == dnsmessage.TypePTR && name == suffix[1:]:
				if r, err := parser.PTRResource(); err == nil {
					if to := strings.ToLower(r.PTR.String()); strings.HasSuffix(to, suffix) && !slices.Contains(names, to) {
						names = append(names, to)
					}
					known = true
				}
			case record.Type == dnsmessage.TypeSRV && mine:
				if r, err := parser.SRVResource(); err == nil {
					ports[name], known = r.Port, true
				}
			case record.Type == dnsmessage.TypeTXT && mine:
				if r, err := parser.TXTResource(); err == nil {
					paths[name], known = pathOf(r.TXT), true
				}
			}
			if !known && skip(&parser, section) != nil {
				return nil
			}
		}
	}
	scheme, _, _ := strings.Cut(strings.TrimPrefix(service, "_"), ".")
	for _, name := range names {
		instance := strings.TrimSuffix(name, suffix)
		if ports[name] == 0 || clean(instance) == "" {
			continue
		}
		address := scheme + "://" + netip.AddrPortFrom(from, ports[name]).String() + paths[name]
		if scheme != "rtsp" && scheme != "rtsps" && scheme != "http" && scheme != "https" {
			address = netip.AddrPortFrom(from, ports[name]).String() // nobody says what it speaks
		}
		if plainAddress(address) {
			out = append(out, Device{Class: KindMDNS, Name: joined(clean(instance)), Address: address,
				Labels: labels(LabelBus, "network", LabelModel, instance, LabelPlace, from.WithZone("").String())})
		}
	}
	return out
}

func skip(p *dnsmessage.Parser, section int) error {
	switch section {
	case 0:
		return p.SkipAnswer()
	case 1:
		return p.SkipAuthority()
	}
	return p.SkipAdditional()
}

// pathOf gives the path that a record of text says of a service, if it is plain.
func pathOf(txt []string) string {
	for _, t := range txt {
		if p, ok := strings.CutPrefix(t, "path="); ok && plainAddress("rtsp://h/"+strings.TrimPrefix(p, "/")) && !strings.ContainsAny(p, "@#") {
			return "/" + strings.TrimPrefix(p, "/")
		}
	}
	return ""
}

// groupMDNS is where multicast DNS is asked.
func groupMDNS() *net.UDPAddr { return &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353} }
