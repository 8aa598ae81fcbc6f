package sim

import (
	"time"

	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/link/frame"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// Times of the links, as package link and the servers of the roles have them.
const (
	siteKeepAlive  = 2 * time.Second  // between a worker and its cluster
	rootKeepAlive  = 15 * time.Second // between a cluster and the root
	firstDial      = 500 * time.Millisecond
	longestDial    = 30 * time.Second
	greetTimeout   = 10 * time.Second
	dialTimeout    = 5 * time.Second
	retransmission = 200 * time.Millisecond
	quietAfter     = 1500 * time.Millisecond // beats of profile fast that do not come
)

// The directions of a link.
const (
	upward   = 0
	downward = 1
)

// network is what all links of a world share: connections that take time, break, and come back by themselves.
type network struct {
	*World
	codec *frame.Codec
	// Counted for each tier that sends: "root", "cluster", "worker".
	traffic map[string]*Traffic
	ignored map[string]int // frames that links let go, by reason
	tape    *tape          // frames of the past, to be played again; nil: none are kept
	// sized: frames are encoded, counted and decoded again, so that nothing is shared between two cores.
	sized bool
}

// Traffic counts what one tier has sent.
type Traffic struct {
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
}

// wireline is the way from a node to its parent: an ordered connection as TCP gives it. What a partition holds back is sent again
// when it ends; a side that hears nothing for long gives up, alone.
type wireline struct {
	child   *Node
	cur     *conn // the child's connection, or its attempt
	served  *conn // the one that the parent's core knows of
	blocked [2]bool
	since   time.Time // of the last change of blocked
	token   [2]int    // counts changes of blocked
	delay   time.Duration
	jitter  time.Duration
	loss    float64
	wait    time.Duration // before the next attempt
	dialing bool
	beating bool // the parent hears the worker's beats, or would if it knew their session
}

// conn is one connection.
type conn struct {
	line       *wireline
	childLife  uint64
	parentLife uint64
	up         bool // the child's core was told of it
	holding    bool // frames of the parent wait for the Welcome
	early      []wire.Message
	pipe       [2]pipe
}

// pipe is one direction of a connection; its parcels arrive in order.
type pipe struct {
	parcels []parcel
	armed   bool
	last    time.Time
}

type parcelKind byte

const (
	parcelFrame parcelKind = iota
	parcelHello
	parcelWelcome
	parcelEnd
)

type parcel struct {
	at      time.Time
	kind    parcelKind
	msg     wire.Message
	sets    []wire.SetAck
	welcome *wire.Welcome
}

// UseNetwork gives a new world links that take time, break and come back by themselves. It must be called before the first site
// is added.
func (w *World) UseNetwork() {
	w.net = &network{World: w, codec: frame.NewCodec(), traffic: map[string]*Traffic{"root": {}, "cluster": {}, "worker": {}},
		ignored: map[string]int{}, sized: true}
}

func (net *network) keepAlive(l *wireline) time.Duration {
	if net.parentOf(l.child) == net.Root {
		return rootKeepAlive
	}
	return siteKeepAlive
}

// wire gives a node its line and has it dial.
func (net *network) wire(n *Node) {
	n.line = &wireline{child: n}
	p := net.parentOf(n)
	p.children = append(p.children, n)
	net.beats(n.line)
	net.dialSoon(n.line)
}

// dialSoon has a child try to connect after its back-off.
func (net *network) dialSoon(l *wireline) {
	if l.dialing || l.cur != nil || !l.child.Up {
		return
	}
	d := time.Duration(net.rng.Int64N(int64(max(2*l.wait, time.Millisecond))))
	l.wait = min(max(2*l.wait, firstDial), longestDial)
	l.dialing = true
	life := l.child.life
	net.at(net.Now.Add(d), func() {
		if l.child.life == life {
			l.dialing = false
			net.dial(l)
		}
	})
}

func (net *network) dial(l *wireline) {
	p := net.parentOf(l.child)
	if l.cur != nil || !l.child.Up {
		return
	}
	if l.blocked[upward] || l.blocked[downward] {
		l.dialing = true
		life := l.child.life
		net.at(net.Now.Add(dialTimeout), func() {
			if l.child.life == life {
				l.dialing = false
				net.dialSoon(l)
			}
		})
		return
	}
	if !p.Up {
		net.dialSoon(l)
		return
	}
	c := &conn{line: l, childLife: l.child.life, parentLife: p.life}
	l.cur = c
	// TCP and TLS take three round trips together.
	net.at(net.Now.Add(6*net.oneWay(l)), func() {
		if l.cur != c || l.child.life != c.childLife {
			return
		}
		net.push(c, upward, parcel{kind: parcelHello, sets: l.child.sets(l.child.Core)})
	})
	net.at(net.Now.Add(greetTimeout), func() {
		if l.cur == c && !c.up && l.child.life == c.childLife {
			net.closeChild(c, true)
		}
	})
}

// oneWay is how long a segment travels.
func (net *network) oneWay(l *wireline) time.Duration {
	d := net.Latency + l.delay
	if l.jitter > 0 {
		d += time.Duration(net.rng.Int64N(int64(l.jitter)))
	}
	for k := 0; l.loss > 0 && k < 6 && net.rng.Float64() < l.loss; k++ {
		d += retransmission << k
	}
	return d
}

// transmit takes a frame of a core for the other end of a line.
func (net *network) transmit(child *Node, down bool, msg wire.Message) {
	l := child.line
	if down {
		if c := l.served; c != nil {
			if c.holding {
				c.early = append(c.early, msg)
				return
			}
			net.push(c, downward, parcel{msg: msg})
		}
		return
	}
	if c := l.cur; c != nil && c.up {
		net.push(c, upward, parcel{msg: msg})
	}
}

func tierOf(n *Node) string {
	switch n.Core.(type) {
	case *root.Core:
		return "root"
	case *cluster.Core:
		return "cluster"
	}
	return "worker"
}

// push puts a parcel into a pipe.
func (net *network) push(c *conn, dir int, x parcel) {
	if x.kind == parcelFrame {
		from, to := c.line.child, net.parentOf(c.line.child)
		if dir == downward {
			from, to = to, from
		}
		x.msg = net.onWire(from, to, x.msg)
		if x.msg == nil {
			return
		}
	}
	p := &c.pipe[dir]
	x.at = maxTime(net.Now.Add(net.oneWay(c.line)), p.last)
	p.last = x.at
	p.parcels = append(p.parcels, x)
	net.arm(c, dir)
}

// onWire encodes a frame as it would travel, counts it, shows it to who watches, and gives what the other side reads.
func (net *network) onWire(from, to *Node, msg wire.Message) wire.Message {
	t := net.traffic[tierOf(from)]
	t.Messages++
	if !net.sized {
		return msg
	}
	data, err := net.codec.Encode(msg)
	if err != nil {
		net.fault("%s sends what cannot travel: %v", from.Name, err)
		return nil
	}
	t.Bytes += int64(len(data))
	if net.guard != nil {
		net.guard.framed(from, to, msg, data)
	}
	if net.tape != nil {
		if down := net.parentOf(to) == from; down {
			net.tape.record(net.World, to, true, data)
		} else {
			net.tape.record(net.World, from, false, data)
		}
	}
	back, err := net.codec.Decode(wire.FrameType(data[0]), data[frame.HeaderSize:])
	if err != nil {
		net.fault("%s sends what cannot be read: %v", from.Name, err)
		return nil
	}
	return back
}

// arm has the head of a pipe arrive when its time comes.
func (net *network) arm(c *conn, dir int) {
	p := &c.pipe[dir]
	if p.armed || len(p.parcels) == 0 || c.line.blocked[dir] {
		return
	}
	p.armed = true
	net.at(maxTime(p.parcels[0].at, net.Now), func() {
		p.armed = false
		if c.line.blocked[dir] {
			return // it is sent again when the partition ends
		}
		for len(p.parcels) > 0 && !p.parcels[0].at.After(net.Now) {
			x := p.parcels[0]
			p.parcels = p.parcels[1:]
			if dir == upward {
				net.atParent(c, x)
			} else {
				net.atChild(c, x)
			}
		}
		if len(p.parcels) == 0 {
			p.parcels = nil
		}
		net.arm(c, dir)
	})
}

// atParent takes what arrives at the parent's end.
func (net *network) atParent(c *conn, x parcel) {
	l := c.line
	p := net.parentOf(l.child)
	if !p.Up || p.life != c.parentLife {
		if p.Up && x.kind != parcelEnd {
			net.push(c, downward, parcel{kind: parcelEnd}) // nobody knows this connection any more
		}
		return
	}
	switch x.kind {
	case parcelHello:
		net.closeParent(l.served, true) // the newer connection of the same agent replaces the older
		l.served, c.holding = c, true
		hello := &wire.Hello{Name: short(l.child), Carrier: l.child.carrier, Sets: x.sets}
		var up any = cluster.ChildUp{Hello: hello}
		if p == net.Root {
			up = root.ChildUp{Hello: hello}
		}
		net.ask(p, up, func(result any) {
			welcome, _ := result.(*wire.Welcome)
			if welcome == nil || l.served != c {
				return
			}
			c.holding = false
			net.push(c, downward, parcel{kind: parcelWelcome, welcome: welcome})
			for _, m := range c.early {
				net.push(c, downward, parcel{msg: m})
			}
			c.early = nil
			if l.child.facts != nil && l.child.carrier == "" {
				net.at(net.Now.Add(2*net.oneWay(l)), func() { net.alive(l) })
			}
		})
	case parcelFrame:
		if l.served != c {
			return
		}
		if p == net.Root {
			net.tell(p, root.ChildFrame{Name: l.child.Name, Msg: x.msg})
		} else {
			net.tell(p, cluster.ChildFrame{Name: short(l.child), Msg: x.msg})
		}
	case parcelEnd:
		net.closeParent(c, false)
	}
}

// atChild takes what arrives at the child's end.
func (net *network) atChild(c *conn, x parcel) {
	l := c.line
	n := l.child
	if !n.Up || n.life != c.childLife || l.cur != c {
		return
	}
	inSite := n.Name != short(n)
	n.contact = net.Now
	switch x.kind {
	case parcelWelcome:
		c.up, l.wait = true, 0
		if inSite {
			net.tell(n, worker.ParentUp{Welcome: x.welcome})
		} else {
			net.tell(n, cluster.ParentUp{Welcome: x.welcome})
		}
	case parcelFrame:
		if inSite {
			net.tell(n, worker.ParentFrame{Msg: x.msg})
		} else {
			net.tell(n, cluster.ParentFrame{Msg: x.msg})
		}
	case parcelEnd:
		net.closeChild(c, false)
	}
}

// closeParent ends a connection at the parent's side; say tells the child, if the way is open.
func (net *network) closeParent(c *conn, say bool) {
	if c == nil || c.line.served != c {
		return
	}
	l := c.line
	l.served = nil
	if say {
		net.push(c, downward, parcel{kind: parcelEnd})
	}
	p := net.parentOf(l.child)
	if !p.Up || p.life != c.parentLife {
		return
	}
	if p == net.Root {
		net.tell(p, root.ChildDown{Name: short(l.child)})
	} else {
		net.tell(p, cluster.ChildDown{Name: short(l.child)})
	}
}

// closeChild ends a connection at the child's side, which then dials again.
func (net *network) closeChild(c *conn, say bool) {
	if c == nil || c.line.cur != c {
		return
	}
	l, n := c.line, c.line.child
	l.cur = nil
	if say {
		net.push(c, upward, parcel{kind: parcelEnd})
	}
	if n.Up && n.life == c.childLife && c.up {
		if n.Name != short(n) {
			net.tell(n, worker.ParentDown{})
		} else {
			net.tell(n, cluster.ParentDown{})
		}
	}
	net.dialSoon(l)
}

// beats looks whether a worker's beats get through, and tells its cluster when that changes, as package link/beat would. Beats that
// are not answered do not count.
func (net *network) beats(l *wireline) {
	if l == nil || l.child.facts == nil || l.child.carrier != "" { // only Skerry's own agents beat
		return
	}
	now := l.child.Up && !l.blocked[upward] && !l.blocked[downward]
	if now == l.beating {
		return
	}
	l.beating = now
	p, since := net.parentOf(l.child), net.Now
	if now {
		net.at(net.Now.Add(net.oneWay(l)), func() { net.alive(l) })
		return
	}
	net.at(net.Now.Add(quietAfter), func() {
		if !l.beating && p.Up {
			net.tell(p, cluster.Quiet{Name: short(l.child), Heard: since.Add(p.skew)})
		}
	})
}

// alive tells a cluster of a worker's beats, whose session it knows while there is a connection.
func (net *network) alive(l *wireline) {
	if p := net.parentOf(l.child); l.beating && l.served != nil && p.Up {
		net.tell(p, cluster.Alive{Name: short(l.child)})
	}
}

// deaf reports whether a node's parent cannot reach it.
func (n *Node) deaf() bool {
	return n.line != nil && (n.line.blocked[upward] || n.line.blocked[downward])
}

// silence gives up one side of a line that hears nothing, after two to three times the pause between two signs of life.
func (net *network) silence(l *wireline, dir int, still func() bool) {
	keep := net.keepAlive(l)
	net.at(net.Now.Add(2*keep+time.Duration(net.rng.Int64N(int64(keep)))), func() {
		if !still() {
			return
		}
		if dir == upward {
			net.closeParent(l.served, true)
		} else {
			net.closeChild(l.cur, true)
		}
	})
}

// block opens or closes one direction of a node's line.
func (net *network) block(n *Node, dir int, on bool) {
	l := n.line
	if l == nil || l.blocked[dir] == on {
		return
	}
	l.blocked[dir], l.since = on, net.Now
	l.token[dir]++
	net.beats(l)
	n.alone = n.alone && on
	if on {
		token := l.token[dir]
		net.silence(l, dir, func() bool { return l.token[dir] == token })
		return
	}
	// What was held back is sent again after a while.
	for _, c := range []*conn{l.cur, l.served} {
		if c == nil {
			continue
		}
		p := &c.pipe[dir]
		if len(p.parcels) > 0 {
			at := net.Now.Add(net.oneWay(l) + time.Duration(net.rng.Int64N(int64(retransmission))))
			for i := range p.parcels {
				p.parcels[i].at = maxTime(p.parcels[i].at, at)
			}
			p.last = maxTime(p.last, at)
		}
		net.arm(c, dir)
	}
}

// reset breaks a node's connection so that both sides notice at once.
func (net *network) reset(n *Node) {
	if n.line != nil {
		net.closeParent(n.line.served, false)
		net.closeChild(n.line.cur, false)
	}
}

// crash ends a node's process; power says that the machine goes with it, so that nobody is told.
func (w *World) crash(n *Node, power bool) {
	if !n.Up {
		return
	}
	n.Up = false
	n.life++
	w.tear(n)
	if n.candidates != nil {
		n.candidates.crashed()
	}
	if l := n.line; l != nil {
		if c := l.cur; c != nil {
			l.cur = nil
			if !power {
				w.net.push(c, upward, parcel{kind: parcelEnd})
			} else if l.served == c {
				w.net.silence(l, upward, func() bool { return l.served == c })
			}
		}
		l.dialing, l.wait = false, 0
		w.net.beats(l)
	}
	for _, k := range n.children {
		if c := k.line.served; c != nil {
			k.line.served = nil
			if !power {
				w.net.push(c, downward, parcel{kind: parcelEnd})
			} else {
				w.net.silence(k.line, downward, func() bool { return k.line.cur == c })
			}
		}
	}
	if power && n.facts != nil {
		w.blackout(n)
	}
}

// boot starts a node that is not up; its links come by themselves.
func (w *World) boot(n *Node) {
	if n.Up {
		return
	}
	if n.leaving > 0 && w.beingRemoved(n) || n.candidates != nil && !n.candidates.elect() {
		life := n.life
		w.at(w.Now.Add(candidateBeat), func() {
			if n.life == life {
				w.boot(n)
			}
		})
		return
	}
	if w.Boot(n); !n.Up {
		return
	}
	if n.candidates != nil {
		n.candidates.beat()
	}
	if n.facts != nil {
		w.tell(n, worker.Facts{Facts: w.machineOf(n)})
	}
	if n.line != nil {
		w.net.dialSoon(n.line)
		w.net.beats(n.line)
	}
}
