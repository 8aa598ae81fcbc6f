package wan

import (
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Shape is what happens to packets one way between two hosts.
type Shape struct {
	Delay  time.Duration `json:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"` // each delay is Delay plus or minus up to this; order is kept
	Loss   float64       `json:"loss,omitempty"`   // share of packets dropped, 0 to 1
	// Reorder is the share of packets that are overtaken by those of the next 10 ms.
	Reorder float64 `json:"reorder,omitempty"`
	// Duplicate is the share of packets that arrive twice. The kernel's rules do that, not this package.
	Duplicate float64 `json:"duplicate,omitempty"`
}

// late is by how much a packet is late that others overtake.
const late = 10 * time.Millisecond

// Zero reports whether the shape changes nothing.
func (s Shape) Zero() bool { return s == Shape{} }

// Pair is one direction between two hosts.
type Pair struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
}

// Shapes are those of all pairs that are shaped.
type Shapes map[Pair]Shape

// Counters count packets since the start.
type Counters struct {
	Packets uint64 `json:"packets"`
	Lost    uint64 `json:"lost"`    // by chance, as asked
	Dropped uint64 `json:"dropped"` // because too many waited
	Waiting int    `json:"waiting"`
}

// maxWaiting bounds the packets that wait. At 1,500 bytes this many hold 10 Gbit/s for 30 ms, or 300 Mbit/s for a second.
const maxWaiting = 32768

// line orders the packets that wait. It is pure: the time is an argument, from a monotonic clock that begins anywhere.
type line struct {
	shapes Shapes
	rand   *rand.Rand
	max    int
	waits  packets
	last   map[Pair]time.Duration // when the last packet of a pair leaves
	seq    uint64
	count  Counters
}

func newLine(seed uint64) *line {
	return &line{rand: rand.New(rand.NewPCG(seed, 1)), max: maxWaiting, last: map[Pair]time.Duration{}}
}

// set replaces the shapes; packets that wait keep their time.
func (l *line) set(s Shapes) {
	l.shapes = s
	clear(l.last)
	for _, p := range l.waits {
		l.last[p.pair] = max(l.last[p.pair], p.due)
	}
}

// verdict is what the kernel is told of a packet.
type verdict struct {
	id   uint32
	drop bool
}

// arrive takes a packet. It gives a verdict at once, or none when the packet has to wait.
func (l *line) arrive(now time.Duration, id uint32, pair Pair) (v verdict, done bool) {
	l.count.Packets++
	s, ok := l.shapes[pair]
	if !ok {
		return verdict{id: id}, true
	}
	if s.Loss > 0 && l.rand.Float64() < s.Loss {
		l.count.Lost++
		return verdict{id, true}, true
	}
	due := now + s.Delay
	if s.Jitter > 0 {
		due += time.Duration((l.rand.Float64()*2 - 1) * float64(s.Jitter))
	}
	due = max(due, l.last[pair], now)
	overtaken := s.Reorder > 0 && l.rand.Float64() < s.Reorder
	if overtaken {
		due += late
	}
	if due == now {
		return verdict{id: id}, true
	}
	if len(l.waits) >= l.max {
		l.count.Dropped++
		return verdict{id, true}, true
	}
	if !overtaken {
		l.last[pair] = due
	}
	l.seq++
	heap.Push(&l.waits, packet{due, l.seq, id, pair})
	return verdict{}, false
}

// leave adds the verdicts of packets whose time has come, at most n.
func (l *line) leave(now time.Duration, n int, to []verdict) []verdict {
	for ; n > 0 && len(l.waits) > 0 && l.waits[0].due <= now; n-- {
		to = append(to, verdict{id: heap.Pop(&l.waits).(packet).id})
	}
	return to
}

// next tells when leave has something to do.
func (l *line) next() (due time.Duration, ok bool) {
	if len(l.waits) == 0 {
		return 0, false
	}
	return l.waits[0].due, true
}

func (l *line) counters() Counters {
	c := l.count
	c.Waiting = len(l.waits)
	return c
}

type packet struct {
	due  time.Duration
	seq  uint64
	id   uint32
	pair Pair
}

type packets []packet

func (p packets) Len() int { return len(p) }
func (p packets) Less(i, j int) bool {
	return p[i].due < p[j].due || p[i].due == p[j].due && p[i].seq < p[j].seq
}
func (p packets) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *packets) Push(x any)   { *p = append(*p, x.(packet)) }
func (p *packets) Pop() any {
	old := *p
	x := old[len(old)-1]
	*p = old[:len(old)-1]
	return x
}
