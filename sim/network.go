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

// network is what all links of a world share.
type network struct {
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
	w.net = &network{codec: frame.NewCodec(), traffic: map[string]*Traffic{"root": {}, "cluster": {}, "worker": {}}, ignored: map[string]int{}, sized: true}
}

func (w *World) keepAlive(l *wireline) time.Duration {
	if w.parentOf(l.child) == w.Root {
		return rootKeepAlive
	}
	return siteKeepAlive
}

// wire gives a node its line and has it dial.
func (w *World) wire(n *Node) {
	n.line = &wireline{child: n}
	p := w.parentOf(n)
	p.children = append(p.children, n)
	w.beats(n.line)
	w.dialSoon(n.line)
}

// dialSoon has a child try to connect after its back-off.
func (w *World) dialSoon(l *wireline) {
	if l.dialing || l.cur != nil || !l.child.Up {
		return
	}
	d := time.Duration(w.rng.Int64N(int64(max(2*l.wait, time.Millisecond))))
	l.wait = min(max(2*l.wait, firstDial), longestDial)
	l.dialing = true
	life := l.child.life
	w.at(w.Now.Add(d), func() {
		if l.child.life == life {
			l.dialing = false
			w.dial(l)
		}
	})
}

func (w *World) dial(l *wireline) {
	p := w.parentOf(l.child)
	if l.cur != nil || !l.child.Up {
		return
	}
	if l.blocked[upward] || l.blocked[downward] {
		l.dialing = true
		life := l.child.life
		w.at(w.Now.Add(dialTimeout), func() {
			if l.child.life == life {
				l.dialing = false
				w.dialSoon(l)
			}
		})
		return
	}
	if !p.Up {
		w.dialSoon(l)
		return
	}
	c := &conn{line: l, childLife: l.child.life, parentLife: p.life}
	l.cur = c
	// TCP and TLS take three round trips together.
	w.at(w.Now.Add(6*w.oneWay(l)), func() {
		if l.cur != c || l.child.life != c.childLife {
			return
		}
		w.push(c, upward, parcel{kind: parcelHello, sets: l.child.sets(l.child.Core)})
	})
	w.at(w.Now.Add(greetTimeout), func() {
		if l.cur == c && !c.up && l.child.life == c.childLife {
			w.closeChild(c, true)
		}
	})
}

// oneWay is how long a segment travels.
func (w *World) oneWay(l *wireline) time.Duration {
	d := w.Latency + l.delay
	if l.jitter > 0 {
		d += time.Duration(w.rng.Int64N(int64(l.jitter)))
	}
	for k := 0; l.loss > 0 && k < 6 && w.rng.Float64() < l.loss; k++ {
		d += retransmission << k
	}
	return d
}

// transmit takes a frame of a core for the other end of a line.
func (w *World) transmit(child *Node, down bool, msg wire.Message) {
	l := child.line
	if down {
		if c := l.served; c != nil {
			if c.holding {
				c.early = append(c.early, msg)
				return
			}
			w.push(c, downward, parcel{msg: msg})
		}
		return
	}
	if c := l.cur; c != nil && c.up {
		w.push(c, upward, parcel{msg: msg})
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
func (w *World) push(c *conn, dir int, x parcel) {
	if x.kind == parcelFrame {
		from, to := c.line.child, w.parentOf(c.line.child)
		if dir == downward {
			from, to = to, from
		}
		x.msg = w.onWire(from, to, x.msg)
		if x.msg == nil {
			return
		}
	}
	p := &c.pipe[dir]
	x.at = maxTime(w.Now.Add(w.oneWay(c.line)), p.last)
	p.last = x.at
	p.parcels = append(p.parcels, x)
	w.arm(c, dir)
}

// onWire encodes a frame as it would travel, counts it, shows it to who watches, and gives what the other side reads.
func (w *World) onWire(from, to *Node, msg wire.Message) wire.Message {
	t := w.net.traffic[tierOf(from)]
	t.Messages++
	if !w.net.sized {
		return msg
	}
	data, err := w.net.codec.Encode(msg)
	if err != nil {
		w.fault("%s sends what cannot travel: %v", from.Name, err)
		return nil
	}
	t.Bytes += int64(len(data))
	if w.guard != nil {
		w.guard.framed(from, to, msg, data)
	}
	if w.net.tape != nil {
		if down := w.parentOf(to) == from; down {
			w.net.tape.record(w, to, true, data)
		} else {
			w.net.tape.record(w, from, false, data)
		}
	}
	back, err := w.net.codec.Decode(wire.FrameType(data[0]), data[frame.HeaderSize:])
	if err != nil {
		w.fault("%s sends what cannot be read: %v", from.Name, err)
		return nil
	}
	return back
}

// arm has the head of a pipe arrive when its time comes.
func (w *World) arm(c *conn, dir int) {
	p := &c.pipe[dir]
	if p.armed || len(p.parcels) == 0 || c.line.blocked[dir] {
		return
	}
	p.armed = true
	w.at(maxTime(p.parcels[0].at, w.Now), func() {
		p.armed = false
		if c.line.blocked[dir] {
			return // it is sent again when the partition ends
		}
		for len(p.parcels) > 0 && !p.parcels[0].at.After(w.Now) {
			x := p.parcels[0]
			p.parcels = p.parcels[1:]
			if dir == upward {
				w.atParent(c, x)
			} else {
				w.atChild(c, x)
			}
		}
		if len(p.parcels) == 0 {
			p.parcels = nil
		}
		w.arm(c, dir)
	})
}

// atParent takes what arrives at the parent's end.
func (w *World) atParent(c *conn, x parcel) {
	l := c.line
	p := w.parentOf(l.child)
	if !p.Up || p.life != c.parentLife {
		if p.Up && x.kind != parcelEnd {
			w.push(c, downward, parcel{kind: parcelEnd}) // nobody knows this connection any more
		}
		return
	}
	switch x.kind {
	case parcelHello:
		w.closeParent(l.served, true) // the newer connection of the same agent replaces the older
		l.served, c.holding = c, true
		hello := &wire.Hello{Name: short(l.child), Carrier: l.child.carrier, Sets: x.sets}
		var up any = cluster.ChildUp{Hello: hello}
		if p == w.Root {
			up = root.ChildUp{Hello: hello}
		}
		w.ask(p, up, func(result any) {
			welcome, _ := result.(*wire.Welcome)
			if welcome == nil || l.served != c {
				return
			}
			c.holding = false
			w.push(c, downward, parcel{kind: parcelWelcome, welcome: welcome})
			for _, m := range c.early {
				w.push(c, downward, parcel{msg: m})
			}
			c.early = nil
			if l.child.facts != nil && l.child.carrier == "" {
				w.at(w.Now.Add(2*w.oneWay(l)), func() { w.alive(l) })
			}
		})
	case parcelFrame:
		if l.served != c {
			return
		}
		if p == w.Root {
			w.tell(p, root.ChildFrame{Name: l.child.Name, Msg: x.msg})
		} else {
			w.tell(p, cluster.ChildFrame{Name: short(l.child), Msg: x.msg})
		}
	case parcelEnd:
		w.closeParent(c, false)
	}
}

// atChild takes what arrives at the child's end.
func (w *World) atChild(c *conn, x parcel) {
	l := c.line
	n := l.child
	if !n.Up || n.life != c.childLife || l.cur != c {
		return
	}
	inSite := n.Name != short(n)
	n.contact = w.Now
	switch x.kind {
	case parcelWelcome:
		c.up, l.wait = true, 0
		if inSite {
			w.tell(n, worker.ParentUp{Welcome: x.welcome})
		} else {
			w.tell(n, cluster.ParentUp{Welcome: x.welcome})
		}
	case parcelFrame:
		if inSite {
			w.tell(n, worker.ParentFrame{Msg: x.msg})
		} else {
			w.tell(n, cluster.ParentFrame{Msg: x.msg})
		}
	case parcelEnd:
		w.closeChild(c, false)
	}
}

// closeParent ends a connection at the parent's side; say tells the child, if the way is open.
func (w *World) closeParent(c *conn, say bool) {
	if c == nil || c.line.served != c {
		return
	}
	l := c.line
	l.served = nil
	if say {
		w.push(c, downward, parcel{kind: parcelEnd})
	}
	p := w.parentOf(l.child)
	if !p.Up || p.life != c.parentLife {
		return
	}
	if p == w.Root {
		w.tell(p, root.ChildDown{Name: short(l.child)})
	} else {
		w.tell(p, cluster.ChildDown{Name: short(l.child)})
	}
}

// closeChild ends a connection at the child's side, which then dials again.
func (w *World) closeChild(c *conn, say bool) {
	if c == nil || c.line.cur != c {
		return
	}
	l, n := c.line, c.line.child
	l.cur = nil
	if say {
		w.push(c, upward, parcel{kind: parcelEnd})
	}
	if n.Up && n.life == c.childLife && c.up {
		if n.Name != short(n) {
			w.tell(n, worker.ParentDown{})
		} else {
			w.tell(n, cluster.ParentDown{})
		}
	}
	w.dialSoon(l)
}

// beats looks whether a worker's beats get through, and tells its cluster when that changes, as package link/beat would. Beats that
// are not answered do not count.
func (w *World) beats(l *wireline) {
	if l == nil || l.child.facts == nil || l.child.carrier != "" { // only Skerry's own agents beat
		return
	}
	now := l.child.Up && !l.blocked[upward] && !l.blocked[downward]
	if now == l.beating {
		return
	}
	l.beating = now
	p, since := w.parentOf(l.child), w.Now
	if now {
		w.at(w.Now.Add(w.oneWay(l)), func() { w.alive(l) })
		return
	}
	w.at(w.Now.Add(quietAfter), func() {
		if !l.beating && p.Up {
			w.tell(p, cluster.Quiet{Name: short(l.child), Heard: since.Add(p.skew)})
		}
	})
}

// alive tells a cluster of a worker's beats, whose session it knows while there is a connection.
func (w *World) alive(l *wireline) {
	if p := w.parentOf(l.child); l.beating && l.served != nil && p.Up {
		w.tell(p, cluster.Alive{Name: short(l.child)})
	}
}

// deaf reports whether a node's parent cannot reach it.
func (n *Node) deaf() bool {
	return n.line != nil && (n.line.blocked[upward] || n.line.blocked[downward])
}

// silence gives up one side of a line that hears nothing, after two to three times the pause between two signs of life.
func (w *World) silence(l *wireline, dir int, still func() bool) {
	keep := w.keepAlive(l)
	w.at(w.Now.Add(2*keep+time.Duration(w.rng.Int64N(int64(keep)))), func() {
		if !still() {
			return
		}
		if dir == upward {
			w.closeParent(l.served, true)
		} else {
			w.closeChild(l.cur, true)
		}
	})
}

// block opens or closes one direction of a node's line.
func (w *World) block(n *Node, dir int, on bool) {
	l := n.line
	if l == nil || l.blocked[dir] == on {
		return
	}
	l.blocked[dir], l.since = on, w.Now
	l.token[dir]++
	w.beats(l)
	n.alone = n.alone && on
	if on {
		token := l.token[dir]
		w.silence(l, dir, func() bool { return l.token[dir] == token })
		return
	}
	// What was held back is sent again after a while.
	for _, c := range []*conn{l.cur, l.served} {
		if c == nil {
			continue
		}
		p := &c.pipe[dir]
		if len(p.parcels) > 0 {
			at := w.Now.Add(w.oneWay(l) + time.Duration(w.rng.Int64N(int64(retransmission))))
			for i := range p.parcels {
				p.parcels[i].at = maxTime(p.parcels[i].at, at)
			}
			p.last = maxTime(p.last, at)
		}
		w.arm(c, dir)
	}
}

// reset breaks a node's connection so that both sides notice at once.
func (w *World) reset(n *Node) {
	if n.line != nil {
		w.closeParent(n.line.served, false)
		w.closeChild(n.line.cur, false)
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
				w.push(c, upward, parcel{kind: parcelEnd})
			} else if l.served == c {
				w.silence(l, upward, func() bool { return l.served == c })
			}
		}
		l.dialing, l.wait = false, 0
		w.beats(l)
	}
	for _, k := range n.children {
		if c := k.line.served; c != nil {
			k.line.served = nil
			if !power {
				w.push(c, downward, parcel{kind: parcelEnd})
			} else {
				w.silence(k.line, downward, func() bool { return k.line.cur == c })
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
		w.dialSoon(n.line)
		w.beats(n.line)
	}
}
