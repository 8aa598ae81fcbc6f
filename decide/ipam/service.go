package ipam

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Key says what a service address leads to.
type Key struct {
	// Service is one of the application itself, or one that another exports to it.
	Service skerry.ServiceKey `json:"service"`
	Policy  spec.Balance      `json:"policy"`
	Ordinal int               `json:"ordinal,omitempty"` // of the instance, for BalanceInstance alone
}

func (k Key) String() string {
	if k.Policy == spec.BalanceInstance {
		return fmt.Sprintf("instance %d of %s", k.Ordinal, k.Service)
	}
	return fmt.Sprintf("%s of %s", k.Policy, k.Service)
}

func (k Key) compare(l Key) int {
	return cmp.Or(cmp.Compare(k.Service.App.Namespace, l.Service.App.Namespace), cmp.Compare(k.Service.App.Name, l.Service.App.Name),
		cmp.Compare(k.Service.Service, l.Service.Service), cmp.Compare(k.Policy, l.Policy), cmp.Compare(k.Ordinal, l.Ordinal))
}

// Want is an address that is to exist. Chosen is the developer's, or the zero address.
type Want struct {
	Key
	Chosen netip.Addr
}

// Wants lists the addresses of one service with a number of instances: one per policy and one per ordinal. Addresses
// are chosen only in the application that the service belongs to; for another one give a nil spec.
func Wants(service skerry.ServiceKey, svc *spec.ServiceSpec, instances int) []Want {
	var own spec.ServiceSpec
	if svc != nil {
		own = *svc
	}
	out := make([]Want, 0, 3+instances)
	for _, b := range spec.Balances() {
		out = append(out, Want{Key{Service: service, Policy: b}, own.Chosen(b, 0)})
	}
	for i := range instances {
		out = append(out, Want{Key{service, spec.BalanceInstance, i}, own.Chosen(spec.BalanceInstance, i)})
	}
	return out
}

// Addresses are the service addresses of one application's network, out of spec.ServicePrefix. The zero value holds
// none. It is not for use by several goroutines at once.
type Addresses struct {
	held    []heldBy            // in order of their keys; there are many networks, and most are small
	resting map[netip.Addr]rest // nil: none rests
}

// heldBy is an address that is in use.
type heldBy struct {
	Key
	four [4]byte // netip.Addr is six times as large
}

func (h heldBy) addr() netip.Addr { return netip.AddrFrom4(h.four) }

// rest is what is known of an address that was given back.
type rest struct {
	Was   Key
	Until time.Time
}

// NumServices is the number of addresses that a network can have: those of the prefix without its reserved ends.
const NumServices = 1<<16 - 256 - 1

func serviceAddr(n uint64) netip.Addr {
	var low [2]byte
	binary.BigEndian.PutUint16(low[:], uint16(n+256))
	return netip.AddrFrom4([4]byte{10, 30, low[0], low[1]})
}

// Set makes the addresses those that are wanted. What a key has it keeps, unless another address is chosen for it;
// chosen addresses come first, the others follow from a hash of the key, so that they are the same wherever they are
// worked out from the same state. Addresses that are no longer wanted rest until the time given; a key that comes back
// gets its own again, and one that is chosen does not wait. A chosen address that something else has is refused with
// the name of who has it (code conflict), and then nothing changes; so is more than there are (code full).
func (a *Addresses) Set(now, restUntil time.Time, wants []Want) error {
	wants = slices.Clone(wants)
	slices.SortFunc(wants, func(x, y Want) int { return x.compare(y.Key) })
	n := newChoice(len(wants))
	var problems []skerry.Problem
	refuse := func(w Want, hint, format string, args ...any) {
		problems = append(problems, skerry.Problem{Path: w.Key.String(), Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	for i, w := range wants {
		if i > 0 && w.Key == wants[i-1].Key {
			return skerry.Errorf(skerry.CodeInvalid, "%s is wanted twice", w.Key)
		}
		if (w.Chosen == netip.Addr{}) {
			continue
		}
		if !spec.ServicePrefix().Contains(w.Chosen) || spec.ServiceReserved(w.Chosen) {
			refuse(w, "choose one from 10.30.1.0 to 10.30.255.254", "%s is no address that a service can have", w.Chosen)
			continue
		}
		if other, taken := n.holder[w.Chosen]; taken {
			refuse(w, "choose another one", "%s leads to %s already", w.Chosen, other)
			continue
		}
		n.give(w.Key, w.Chosen)
	}
	// What was assigned and is still wanted stays. Where it is in the way of a choice, the choice gives way.
	for _, w := range wants {
		had, ok := a.Of(w.Key)
		if !ok || (w.Chosen != netip.Addr{}) {
			continue
		}
		if other, taken := n.holder[had]; taken {
			refuse(Want{Key: other}, "choose another one, or choose one for the other as well", "%s leads to %s already", had, w.Key)
			continue
		}
		n.give(w.Key, had)
	}
	if len(problems) > 0 {
		return &skerry.Error{Code: skerry.CodeConflict, Message: "the service addresses are in conflict", Problems: problems,
			Hint: "leave an address out to have one assigned"}
	}
	for addr, r := range a.resting {
		if _, taken := n.holder[addr]; !taken && now.Before(r.Until) {
			n.resting[addr] = r
		}
	}
	for _, h := range a.held {
		if _, taken := n.holder[h.addr()]; !taken && now.Before(restUntil) {
			n.resting[h.addr()] = rest{h.Key, restUntil}
		}
	}
	if len(wants) > NumServices {
		return skerry.Errorf(skerry.CodeFull, "%d service addresses are wanted; a network has %d", len(wants), NumServices).
			WithHint("split the application, or lower the number of replicas")
	}
	own := make(map[Key]netip.Addr, len(n.resting)) // what keys that may come back had last
	for addr, r := range n.resting {
		if old, ok := own[r.Was]; !ok || n.resting[old].Until.Before(r.Until) || n.resting[old].Until.Equal(r.Until) && addr.Less(old) {
			own[r.Was] = addr
		}
	}
	for _, w := range wants {
		if _, done := n.held[w.Key]; done {
			continue
		}
		addr, ok := own[w.Key]
		if !ok {
			if len(n.holder)+len(n.resting) >= NumServices {
				return skerry.Errorf(skerry.CodeFull, "no service address is left for %s: %d are in use, and %d were given back lately", w.Key,
					len(n.holder), len(n.resting)).
					WithHint("wait for those given back to be free again")
			}
			addr = n.free(w.Key)
		}
		delete(n.resting, addr)
		n.give(w.Key, addr)
	}
	*a = n.made(wants)
	return nil
}

// choice is what Set has chosen so far.
type choice struct {
	held    map[Key]netip.Addr
	holder  map[netip.Addr]Key
	resting map[netip.Addr]rest
}

func newChoice(many int) *choice {
	return &choice{make(map[Key]netip.Addr, many), make(map[netip.Addr]Key, many), map[netip.Addr]rest{}}
}

// made gives the addresses of what is wanted, which is in order.
func (a *choice) made(wants []Want) Addresses {
	out := Addresses{held: make([]heldBy, 0, len(wants))}
	for _, w := range wants {
		out.held = append(out.held, heldBy{w.Key, a.held[w.Key].As4()})
	}
	if len(a.resting) > 0 {
		out.resting = a.resting
	}
	return out
}

func (a *choice) give(k Key, addr netip.Addr) { a.held[k], a.holder[addr] = addr, k }

// free finds the first free address from where the key's hash points. There is one.
func (a *choice) free(k Key) netip.Addr {
	for n := hash("service", k.Service.String(), string(k.Policy), strconv.Itoa(k.Ordinal)) % NumServices; ; n = (n + 1) % NumServices {
		addr := serviceAddr(n)
		_, taken := a.holder[addr]
		if _, rests := a.resting[addr]; !taken && !rests {
			return addr
		}
	}
}

// Of gives the address that a key has.
func (a *Addresses) Of(k Key) (netip.Addr, bool) {
	at, ok := slices.BinarySearchFunc(a.held, k, func(h heldBy, k Key) int { return h.compare(k) })
	if !ok {
		return netip.Addr{}, false
	}
	return a.held[at].addr(), true
}

// Holder tells what an address leads to; its IPv6 twin leads there too. It looks at all of them.
func (a *Addresses) Holder(addr netip.Addr) (Key, bool) {
	if addr.Is6() && spec.ServicePrefix6().Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, h := range a.held {
		if h.addr() == addr {
			return h.Key, true
		}
	}
	return Key{}, false
}

// Len gives the number of addresses in use.
func (a *Addresses) Len() int { return len(a.held) }

// Keys lists what has an address, in order.
func (a *Addresses) Keys() (out []Key) {
	for _, h := range a.held {
		out = append(out, h.Key)
	}
	return out
}

// maxEntry is more than an entry of the stored form has, in bytes, whatever its names are.
const maxEntry = 512

// Fit forgets addresses that rest, first those that have the shortest time left, until the stored form has at most so many bytes. It
// reports whether what is in use has room.
func (a *Addresses) Fit(most int) bool {
	if (len(a.held)+len(a.resting))*maxEntry <= most {
		return true
	}
	over := stored(a) - most
	kept := maps.Clone(a.resting)
	for _, addr := range slices.SortedFunc(maps.Keys(a.resting), func(x, y netip.Addr) int {
		return cmp.Or(a.resting[x].Until.Compare(a.resting[y].Until), x.Compare(y))
	}) {
		if over <= 0 {
			break
		}
		over -= stored(heldAddress{a.resting[addr].Was, addr, a.resting[addr].Until})
		delete(kept, addr)
	}
	if over <= 0 {
		a.resting = kept
	}
	return over <= 0
}

// Room gives how many bytes an address of a service that is in use has at most in the stored form.
func Room(service skerry.ServiceKey) int {
	return namelessEntry + len(service.App.Namespace) + len(service.App.Name) + len(service.Service)
}

// namelessEntry is more than an entry in use, with the comma behind it, has without the names.
const namelessEntry = 150

// stored gives the number of bytes of something in its stored form.
func stored(v any) int {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it has nothing that can fail
	}
	return len(raw)
}

// heldAddress is one entry of the stored form; Until is set for those that rest.
type heldAddress struct {
	Key
	Addr  netip.Addr `json:"address"`
	Until time.Time  `json:"restsUntil,omitzero"`
}

// MarshalJSON gives the stored form; equal states are equal bytes.
func (a Addresses) MarshalJSON() ([]byte, error) {
	out := make([]heldAddress, 0, len(a.held)+len(a.resting))
	for _, h := range a.held {
		out = append(out, heldAddress{h.Key, h.addr(), time.Time{}})
	}
	for addr, r := range a.resting {
		out = append(out, heldAddress{r.Was, addr, r.Until})
	}
	slices.SortFunc(out, func(x, y heldAddress) int { return x.Addr.Compare(y.Addr) })
	return json.Marshal(out)
}

// UnmarshalJSON reads the stored form, and refuses one in which an address or a key appears twice.
func (a *Addresses) UnmarshalJSON(data []byte) error {
	var in []heldAddress
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	out, seen, texts := Addresses{}, map[netip.Addr]bool{}, map[string]string{}
	for _, h := range in {
		if seen[h.Addr] || !spec.ServicePrefix().Contains(h.Addr) || spec.ServiceReserved(h.Addr) {
			return fmt.Errorf("address %s is stored twice, or is no service address", h.Addr)
		}
		seen[h.Addr] = true
		h.shareTexts(texts)
		if !h.Until.IsZero() {
			if out.resting == nil {
				out.resting = map[netip.Addr]rest{}
			}
			out.resting[h.Addr] = rest{h.Key, h.Until}
			continue
		}
		out.held = append(out.held, heldBy{h.Key, h.Addr.As4()})
	}
	out.held = slices.Clone(out.held) // without the room that was left for more
	slices.SortFunc(out.held, func(x, y heldBy) int { return x.compare(y.Key) })
	for at := 1; at < len(out.held); at++ {
		if out.held[at].Key == out.held[at-1].Key {
			return fmt.Errorf("%s has two stored addresses", out.held[at].Key)
		}
	}
	*a = out
	return nil
}

// shareTexts has the names in a key be those of other keys where they are the same, as in a key that was not read.
func (k *Key) shareTexts(texts map[string]string) {
	share := func(text string) string {
		if one, known := texts[text]; known {
			return one
		}
		texts[text] = text
		return text
	}
	app := &k.Service.App
	app.Namespace, app.Name, k.Service.Service = share(app.Namespace), share(app.Name), share(k.Service.Service)
	k.Policy = spec.Balance(share(string(k.Policy)))
}
