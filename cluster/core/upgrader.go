package core

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// The root upgrades sites in waves. A site that grants that upgrades the agents of its workers one after the other, and reports counts.
//
//	order ─► granted? ─► worker by worker: ordered ─► passed its trial ─► the next one
//	                                          └─► kept its program: no further one, and the root learns why

// keySiteUpgrade is that of the record of the order that is carried out. It is gone while there is none: programs that know no such orders
// then open the store.
const keySiteUpgrade = "site-upgrade"

// ordersApart is the least time between two orders of the root that are taken up: each of them is audited.
const ordersApart = 10 * time.Second

// So many orders are taken up in a row, and then one more per ordersRefill: fewer than the audit forgets by age.
const (
	ordersBurst  = 20
	ordersRefill = 30 * time.Minute
)

// OrderTaken tells the server, for the audit, that the site took up an order of the root, or refused it.
type OrderTaken struct {
	Order   wire.SiteOrder
	Refused string
}

// upgrader has workers' agents go over to other programs, and owns what the site does of an order of the root.
type upgrader struct {
	*books
	grants *grants
	record orderRecord
	value  []byte // of the order as it was read last
	order  *wire.SiteOrder
	taken  time.Time // when an order was taken up last
	spent  int       // of ordersBurst
	refill time.Time // when it became fewer last
	due    time.Time // when one that came too soon may be; zero: none has
	tells  wire.SiteUpgrade
}

// orderRecord is what is kept of an order.
type orderRecord struct {
	Seq    uint64            `json:"seq,omitempty"`
	Image  string            `json:"image,omitempty"`
	Orders map[string]uint64 `json:"orders,omitempty"` // AgentOrder.Seq by worker
}

func (u *upgrader) load(value []byte) error {
	u.record.Orders = map[string]uint64{}
	return json.Unmarshal(value, &u.record)
}

func (u *upgrader) save(fx *wire.Effects) {
	data, err := json.Marshal(&u.record)
	if err != nil {
		panic("orders always marshal: " + err.Error())
	}
	fx.Put(keySiteUpgrade, data)
}

// shown is what the root learns, or nil.
func (u *upgrader) shown() *wire.SiteUpgrade {
	if u.tells.Seq == 0 {
		return nil
	}
	told := u.tells
	return &told
}

// advance moves on what the root has ordered.
func (u *upgrader) advance(now time.Time, fx *wire.Effects) {
	value, orphaned, have := u.Up.Desired.Get(wire.SiteUpgradeKey)
	if u.due = (time.Time{}); !have || orphaned {
		if u.record.Seq != 0 {
			u.value, u.order, u.record, u.tells = nil, nil, orderRecord{}, wire.SiteUpgrade{}
			fx.Delete(keySiteUpgrade)
			u.uplink.Touch()
		}
		return
	}
	u.follow(now, value, fx)
}

// follow carries on with an order as the root sent it.
func (u *upgrader) follow(now time.Time, value []byte, fx *wire.Effects) {
	if u.order == nil || !bytes.Equal(value, u.value) {
		order := new(wire.SiteOrder)
		u.value = value
		if err := u.codec.Unmarshal(value, order); err != nil || checkOrder(order) != nil {
			u.Up.Ignored.Count(members.IgnoredUnreadable)
			u.order = &wire.SiteOrder{} // it is not read again
			return
		}
		u.order = order
	}
	if u.order.Seq == 0 {
		return
	}
	if (u.order.Seq != u.record.Seq || u.order.Image != u.record.Image) && !u.takeOrder(now, fx) {
		return
	}
	told, next := u.survey()
	if told.Refused == "" && told.Failed == "" && next != "" && !u.order.Pause {
		told.Failed = u.orderWorker(now, next, fx)
	}
	if !reflect.DeepEqual(told, u.tells) {
		u.tells = told
		u.uplink.Touch()
	}
}

// checkOrder reports what of an order makes no sense.
func checkOrder(order *wire.SiteOrder) error {
	if odd := func(r rune) bool { return !unicode.IsPrint(r) }; order.Seq == 0 || len(order.Image) > 512 ||
		!strings.Contains(order.Image, "@sha256:") || strings.ContainsFunc(order.Image, odd) {
		return skerry.Errorf(skerry.CodeInvalid, "the order has no number or no image that is pinned by its digest")
	}
	return skerry.CheckName(order.Name)
}

// takeOrder takes up a new order, unless it is too soon after another.
func (u *upgrader) takeOrder(now time.Time, fx *wire.Effects) bool {
	if since := now.Sub(u.taken); !u.taken.IsZero() && since >= 0 && since < ordersApart {
		u.due = u.taken.Add(ordersApart)
		return false
	}
	if n := int(now.Sub(u.refill) / ordersRefill); u.spent == 0 || n != 0 { // the clock may have been set back
		u.spent, u.refill = max(u.spent-max(n, 0), 0), now
	}
	if u.spent >= ordersBurst {
		u.due = u.refill.Add(ordersRefill)
		return false
	}
	u.spent++
	u.taken, u.record = now, orderRecord{Seq: u.order.Seq, Image: u.order.Image, Orders: map[string]uint64{}}
	u.save(fx)
	refused := u.notGranted()
	fx.Actions = append(fx.Actions, OrderTaken{Order: *u.order, Refused: refused})
	if refused == "" {
		u.siteEvent(fx, now, wire.EventNormal, "SiteUpgrading", "the root has the workers upgraded one after the other, to "+
			u.order.Image+" (upgrade "+u.order.Name+")", "")
	}
	return true
}

// notGranted says why the site does not do what the root orders, or nothing.
func (u *upgrader) notGranted() string {
	if u.grants.has(wire.GrantWaves) {
		return ""
	}
	return fmt.Sprintf("it does not grant %q to its root", wire.GrantWaves)
}

// survey looks how far the workers are, and gives the one that is next, if no other is under way.
func (u *upgrader) survey() (told wire.SiteUpgrade, next string) {
	told = wire.SiteUpgrade{Seq: u.record.Seq, Refused: u.notGranted()}
	if told.Refused != "" {
		return told, ""
	}
	busy, early := false, ""
	for _, name := range slices.Sorted(maps.Keys(u.workers)) {
		have, child := u.workers[name], u.Children.Get(name)
		if have.external() {
			continue // an agent that is not Skerry's is upgraded on its device
		}
		told.Workers++
		if have.Facts == nil || child == nil { // nothing is known of it yet, and so not that it is upgraded
			if child == nil || !child.Connected {
				told.Away++
			}
			continue
		}
		if told.Versions == nil {
			told.Versions = map[string]int{}
		}
		told.Versions[child.Version]++
		if !child.Connected {
			told.Away++
		}
		seq, ordered := u.record.Orders[name]
		facts := have.Facts.Agent
		switch {
		case !ordered && have.agentUnderWay(): // by another order: it is next itself, as a second worker at a time would be one too many
			if child.Connected && early == "" {
				early = name
			}
			busy = busy || !child.Connected && !have.sight.Lost()
		case !ordered:
			if next == "" && child.Connected {
				next = name
			}
		case have.Agent == nil || have.Agent.Seq != seq:
			told.Failed = "meanwhile, somebody at the site started another upgrade of a worker"
		case have.agentUnderWay():
			busy = true
		case facts.Stage == wire.AgentFailed:
			told.Failed = "a worker keeps its program: " + uplink.Redact(u.workers, facts.Why, name)
		default:
			told.Upgraded++
			if have.sight.Lost() {
				told.Lost++
			}
		}
	}
	if next = cmp.Or(early, next); busy {
		next = ""
	}
	told.Bound()
	return told, next
}

// agentUnderWay reports whether a worker has not told how the order that its agent has been given ended.
func (w *worker) agentUnderWay() bool {
	facts := w.Facts.Agent
	return w.Agent != nil && (facts == nil || facts.Order < w.Agent.Seq || facts.Stage != wire.AgentPassed && facts.Stage != wire.AgentFailed)
}

// orderWorker has one worker upgraded, or says why that cannot be.
func (u *upgrader) orderWorker(now time.Time, name string, fx *wire.Effects) (failed string) {
	var apart wire.Effects
	u.upgradeWorker(now, UpgradeWorker{Name: name, UpgradeRequest: view.UpgradeRequest{Image: u.order.Image,
		Window: u.order.Window, Steady: u.order.Steady}}, &apart)
	if apart.Err != nil { // it is the root's error, not that of whoever is served now
		return uplink.Redact(u.workers, apart.Err.Error(), name)
	}
	fx.Merge(apart)
	u.record.Orders[name] = u.workers[name].Agent.Seq
	u.save(fx)
	return ""
}

// UpgradeWorker has a worker's agent go over to another program. Whether that does is the worker's to see; it tells in its facts.
type UpgradeWorker struct {
	Name string
	view.UpgradeRequest
}

// maxWindow is the longest trial of a program.
const maxWindow = time.Hour

func (u *upgrader) upgradeWorker(now time.Time, msg UpgradeWorker, fx *wire.Effects) {
	have := u.workers[msg.Name]
	switch window, steady := time.Duration(msg.Window), time.Duration(msg.Steady); {
	case have == nil:
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", msg.Name).WithHint("`skerry get workers` lists them")
		return
	case have.external():
		fx.Err = skerry.Errorf(skerry.CodeUnsupported, "the agent of worker %s is not Skerry's",
			msg.Name).WithHint("replace its program on the device")
		return
	case msg.Image == "":
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "an image with the new program is missing")
		return
	case window < 0 || window > maxWindow:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "a trial of %s is out of range; up to %s are allowed", window, maxWindow)
		return
	case steady < 0 || steady > maxWindow || window > 0 && steady > window:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "the new program cannot be required to work for %s within %s", steady, window)
		return
	}
	order := wire.AgentOrder{Seq: 1, Image: msg.Image, Window: msg.Window, Steady: msg.Steady}
	if have.Agent != nil {
		order.Seq = have.Agent.Seq + 1
	}
	if have.Facts != nil && have.Facts.Agent != nil { // it may know of more than this store, which was restored from a backup
		order.Seq = max(order.Seq, have.Facts.Agent.Order+1)
	}
	if fx.Err = u.Children.Put(msg.Name, wire.AgentKey, u.codec.Marshal(&order)); fx.Err != nil {
		return
	}
	have.Agent = &order
	u.saveWorker(have, fx)
	u.siteEvent(fx, now, wire.EventNormal, "Upgrading", "worker "+msg.Name+" is upgraded to "+msg.Image, msg.Name)
}
