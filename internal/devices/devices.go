// Package devices finds devices that instances may be given: in /sys, in a file that an operator writes, and in networks that an operator
// names. It reads, and says what each is called; it gives nothing to anybody and offers nothing that no rule allows. The worker imports it.
package devices

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

// Kinds of devices that are found.
const (
	KindSerial = "serial" // USB serial adapters and modems
	KindCamera = "camera" // V4L devices that capture
	KindGPU    = "gpu"    // render nodes of the DRM
	KindI2C    = "i2c"    // adapters
	KindGPIO   = "gpio"   // chips
	KindSound  = "sound"  // cards
	KindMDNS   = "mdns"   // services that answer in a network by multicast DNS
	KindONVIF  = "onvif"  // cameras that answer there to a probe of WS-Discovery
)

// Kinds lists them.
func Kinds() []string {
	return []string{KindSerial, KindCamera, KindGPU, KindI2C, KindGPIO, KindSound, KindMDNS, KindONVIF}
}

// Labels that devices may have.
const (
	LabelVendor  = "vendor"  // of USB and PCI: four hexadecimal digits
	LabelProduct = "product" // the same
	LabelSerial  = "serial"
	LabelModel   = "model" // what it calls itself
	LabelDriver  = "driver"
	LabelBus     = "bus" // usb, pci, platform or network
	LabelPlace   = "place"
)

// Device is a device that was found, or listed by hand.
type Device struct {
	Class   string // the kind where it was found, and what the operator calls it where a rule offers it
	Name    string // stays when it is plugged in again
	Labels  map[string]string
	Nodes   []string // absolute paths on the host, the principal one first
	Address string   // of a device in the network, in place of nodes
	Shares  int      // instances that may have it at a time; 0: one
}

// ID is the device's name among all of a worker.
func (d *Device) ID() string { return d.Class + "=" + d.Name }

// Rule offers devices of a kind.
type Rule struct {
	Class     string // what they are called
	Kind      string // one of Kinds, or a class of the Container Device Interface, of which only Shares says more
	Match     map[string]string
	Shares    int    // 0: one
	Interface string // of a kind in a network: where to ask
	Service   string // of multicast DNS: such as _rtsp._tcp
}

// InNetwork reports whether its devices are asked for in a network.
func (r *Rule) InNetwork() bool { return r.Kind == KindMDNS || r.Kind == KindONVIF }

// ParseRule reads a rule: [NAME=]KIND[,KEY=VALUE...]. The keys shares, interface and service are its own; all others are labels.
func ParseRule(text string) (Rule, error) {
	head, rest, _ := strings.Cut(text, ",")
	rule := Rule{Match: map[string]string{}}
	var renamed bool
	if rule.Class, rule.Kind, renamed = strings.Cut(head, "="); !renamed {
		rule.Kind = rule.Class
	}
	_, _, one, cdi := spec.ParseCDI(rule.Kind)
	switch {
	case cdi && one == "" && !renamed:
	case !slices.Contains(Kinds(), rule.Kind):
		return rule, fmt.Errorf("%q is no kind of devices; there are %s, and classes of CDI as vendor.com/class", rule.Kind,
			strings.Join(Kinds(), ", "))
	case !spec.CheckDeviceClass(rule.Class):
		return rule, fmt.Errorf("%q names no class: it is small letters, digits and dashes", rule.Class)
	}
	for part := range strings.SplitSeq(rest, ",") {
		if rest == "" {
			break
		}
		key, value, ok := strings.Cut(part, "=")
		switch {
		case !ok || value == "":
			return rule, fmt.Errorf("%q is not KEY=VALUE", part)
		case key == "shares":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > spec.MaxDeviceShares {
				return rule, fmt.Errorf("shares=%s is not a number from 1 to %d", value, spec.MaxDeviceShares)
			}
			rule.Shares = n
		case cdi:
			return rule, fmt.Errorf("%s: only shares is said of a class of CDI; its files choose the devices", part)
		case key == "interface":
			rule.Interface = value
		case key == "service":
			rule.Service = value
		case !spec.CheckDeviceLabel(key, value) || len(rule.Match) >= spec.MaxDeviceLabels:
			return rule, fmt.Errorf("%q is no label of a device, or one too many", part)
		default:
			rule.Match[key] = value
		}
	}
	return rule, rule.check()
}

// check refuses what does not fit the kind.
func (r *Rule) check() error {
	switch {
	case r.InNetwork() && r.Interface == "":
		return fmt.Errorf("%s needs interface=NAME: no network is asked without being named", r.Kind)
	case len(r.Interface) > 15 || strings.ContainsAny(r.Interface, "/ \t\n"):
		return fmt.Errorf("interface %q is no name of a network interface", r.Interface)
	case !r.InNetwork() && r.Interface != "":
		return fmt.Errorf("%s is not in a network: leave out interface", r.Kind)
	case r.Kind == KindMDNS && !serviceType(r.Service):
		return fmt.Errorf("%s needs service=TYPE, such as _rtsp._tcp or _axis-video._tcp, not %q", r.Kind, r.Service)
	case r.Kind != KindMDNS && r.Service != "":
		return fmt.Errorf("service is for %s", KindMDNS)
	}
	return nil
}

// serviceType reports whether a text is _name._tcp or _name._udp (RFC 6335, section 5.1).
func serviceType(s string) bool {
	name, proto, _ := strings.Cut(s, ".")
	return (proto == "_tcp" || proto == "_udp") && strings.HasPrefix(name, "_") && len(name) <= 16 && spec.CheckDeviceClass(name[1:])
}

// Offer gives those of the devices that rules allow, by the first one that does, as they call them. found has their kinds as classes.
func Offer(found []Device, rules []Rule) (out []Device) {
	for _, d := range found {
		for i := range rules {
			if r := &rules[i]; r.Kind == d.Class && matches(r.Match, d.Labels) {
				d.Class, d.Shares = r.Class, r.Shares
				out = append(out, d)
				break
			}
		}
	}
	return out
}

func matches(want, have map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// SharesOf gives how many instances may have a device of a class of CDI at a time; 0: nothing is said.
func SharesOf(rules []Rule, class string) int {
	for _, r := range rules {
		if r.Kind == class {
			return r.Shares
		}
	}
	return 0
}

// clean makes a word of a name of what a device says of itself. Every byte that has no place in one becomes a dash.
func clean(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < 128 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.:", c)) {
			return c
		}
		return '-'
	}, s[:min(len(s), 64)])
	return strings.Trim(s, "-_.:")
}

// label makes a value of what a device says of itself, or nothing.
func label(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 128 || !spec.CheckDeviceLabel("a", s) {
		return ""
	}
	return s
}

// labels are those that have a value.
func labels(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if v := label(pairs[i+1]); v != "" {
			out[pairs[i]] = v
		}
	}
	return out
}

// distinct names those by their place, too, that have the same name: all of them, as nobody can tell which one is meant. It leaves out
// those of which that does not help.
func distinct(list []Device) []Device {
	for _, again := range []bool{true, false} {
		count := map[string]int{}
		for i := range list {
			count[list[i].ID()]++
		}
		list = slices.DeleteFunc(list, func(d Device) bool { return !again && count[d.ID()] > 1 || !spec.CheckDeviceName(d.Name) })
		for i := range list {
			if d := &list[i]; again && count[d.ID()] > 1 {
				d.Name = nameAtPlace(d)
			}
		}
	}
	slices.SortFunc(list, func(a, b Device) int { return strings.Compare(a.ID(), b.ID()) })
	return list
}

// nameAtPlace is a name beside which there is another one.
func nameAtPlace(d *Device) string { return joined(d.Name, "at", clean(d.Labels[LabelPlace])) }

// joined makes a name of parts; empty ones are left out.
func joined(parts ...string) string {
	s := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "-")
	return strings.TrimRight(s[:min(len(s), 120)], "-_.:")
}

// merge gives the labels of several, of which later ones win.
func merge(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
