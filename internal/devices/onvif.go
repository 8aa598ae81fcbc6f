package devices

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// askONVIF makes a probe for cameras (WS-Discovery 1.0, section 5.2; ONVIF Core, section 7.3.3).
func askONVIF(id [16]byte) []byte {
	return fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?>`+
		`<e:Envelope xmlns:e="http://www.w3.org/2003/05/soap-envelope" xmlns:w="http://schemas.xmlsoap.org/ws/2004/08/addressing" `+
		`xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" xmlns:dn="http://www.onvif.org/ver10/network/wsdl">`+
		`<e:Header><w:MessageID>uuid:%x-%x-%x-%x-%x</w:MessageID><w:To>urn:schemas-xmlsoap-org:ws:2005:04:discovery</w:To>`+
		`<w:Action>http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe</w:Action></e:Header>`+
		`<e:Body><d:Probe><d:Types>dn:NetworkVideoTransmitter</d:Types></d:Probe></e:Body></e:Envelope>`,
		id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// probeMatches is what is read of an answer; names are taken whatever space they are of.
type probeMatches struct {
	XMLName xml.Name `xml:"Envelope"`
	Matches []struct {
		ID     string `xml:"EndpointReference>Address"`
		Types  string `xml:"Types"`
		Scopes string `xml:"Scopes"`
		XAddrs string `xml:"XAddrs"`
	} `xml:"Body>ProbeMatches>ProbeMatch"`
}

// parseONVIF reads the answer of somebody to a probe. An address in it counts only if it is that of whoever answers; nothing is fetched.
func parseONVIF(data []byte, from netip.Addr) (out []Device) {
	if len(data) > maxAnswer || !shallow(data) {
		return nil
	}
	var answer probeMatches
	if xml.Unmarshal(data, &answer) != nil {
		return nil
	}
	for _, match := range answer.Matches[:min(len(answer.Matches), maxRecords)] {
		name := clean(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(match.ID), "urn:"), "uuid:"))
		address := ""
		for x := range strings.FieldsSeq(match.XAddrs) {
			if u, err := url.Parse(x); err == nil && plainAddress(x) && u.User == nil && (u.Scheme == "http" || u.Scheme == "https") {
				if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.Unmap() == from.Unmap() {
					address = x
					break
				}
			}
		}
		if name == "" || address == "" || !strings.Contains(match.Types, "NetworkVideoTransmitter") {
			continue
		}
		said := map[string]string{}
		for s := range strings.FieldsSeq(match.Scopes) {
			if kind, value, ok := strings.Cut(strings.TrimPrefix(s, "onvif://www.onvif.org/"), "/"); ok && (kind == "hardware" || kind == "name") {
				if said[kind], _ = url.PathUnescape(value); said[kind] == "" {
					delete(said, kind)
				}
			}
		}
		out = append(out, Device{Class: KindONVIF, Name: joined(name), Address: address, Labels: labels(LabelBus, "network",
			LabelModel, said["hardware"], LabelVendor, said["name"], LabelPlace, from.WithZone("").String())})
	}
	return out
}

// shallow reports whether elements are nested no deeper than an answer has them, and nothing is declared that stands for something else.
func shallow(data []byte) bool {
	d := xml.NewDecoder(bytes.NewReader(data))
	for depth := 0; ; {
		t, err := d.RawToken()
		if err == io.EOF {
			return depth == 0
		} else if err != nil {
			return false
		}
		switch t.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		case xml.Directive:
			return false
		}
		if depth > 32 {
			return false
		}
	}
}

// groupONVIF is where WS-Discovery is asked.
func groupONVIF() *net.UDPAddr { return &net.UDPAddr{IP: net.IPv4(239, 255, 255, 250), Port: 3702} }
