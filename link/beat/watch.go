package beat

import (
	"container/list"
	"net/netip"
	"time"
)

// Watch is the parent's side: whom it has heard when. It is not safe for concurrent use.
type Watch struct {
	quietAfter time.Duration
	byID       map[[4]byte]*watched
	byName     map[string]*watched
	heard      *list.List // of *watched that beat, those heard longest ago first
}

type watched struct {
	name    string
	session Session
	at      time.Time
	seq     uint32
	first   time.Time     // when the beat of this number came first
	place   *list.Element // nil: it does not beat, or was told of as quiet
	from    netip.AddrPort
	moved   func() // its beats come from elsewhere; nil: nobody asks
	mute    bool   // it gets no answers
}

// NewWatch makes a watch that takes a child for quiet after a time without a beat.
func NewWatch(quietAfter time.Duration) *Watch {
	return &Watch{quietAfter: quietAfter, byID: map[[4]byte]*watched{}, byName: map[string]*watched{}, heard: list.New()}
}

// Add begins a child's session, in place of an earlier one. It is watched from its first beat on. moved is what Came gives
// when its beats come from another address than before; nil: nothing.
func (w *Watch) Add(name string, s Session, moved func()) {
	w.Remove(name)
	x := &watched{name: name, session: s, moved: moved}
	w.byID[s.ID], w.byName[name] = x, x
}

// Remove forgets a child.
func (w *Watch) Remove(name string) {
	x := w.byName[name]
	if x == nil {
		return
	}
	if x.place != nil {
		w.heard.Remove(x.place)
	}
	delete(w.byName, name)
	if w.byID[x.session.ID] == x {
		delete(w.byID, x.session.ID)
	}
}

// Take reads a datagram of anybody and gives the answer to it, nil for none. back is true for a child that had not been heard, or was told
// of as quiet.
func (w *Watch) Take(now time.Time, data []byte, out []byte) (answer []byte, name string, back bool, err error) {
	kind, id, seq, err := parse(data)
	if err == nil && kind == kindAnswer {
		err = ErrMalformed
	}
	if err != nil {
		return nil, "", false, err
	}
	x := w.byID[id]
	if x == nil {
		return nil, "", false, ErrUnknown
	}
	if !x.session.valid(data) {
		return nil, "", false, ErrForged
	}
	// A beat that was recorded and is played again keeps nobody alive: only newer ones, and tries of the newest, count.
	switch newer := int32(seq - x.seq); {
	case newer < 0 || newer == 0 && now.Sub(x.first) >= w.quietAfter:
		return nil, x.name, false, ErrReplayed
	case newer > 0:
		x.first = now
	}
	if kind == kindDeaf { // it is answered, but as long as that does not arrive the child is out of touch
		x.seq = seq
		return x.answer(out, seq), x.name, false, nil
	}
	back = x.place == nil
	x.seq, x.at = seq, now
	if back {
		x.place = w.heard.PushBack(x)
	} else {
		w.heard.MoveToBack(x.place)
	}
	return x.answer(out, seq), x.name, back, nil
}

func (x *watched) answer(out []byte, seq uint32) []byte {
	if x.mute {
		return nil
	}
	return x.session.append(out, kindAnswer, seq)
}

// Came notes from where the beat came that Take took last, and gives what to call when it is elsewhere than before, or nil.
func (w *Watch) Came(name string, from netip.AddrPort) (moved func()) {
	x := w.byName[name]
	if x == nil || x.from == from {
		return nil
	}
	first := !x.from.IsValid()
	if x.from = from; first {
		return nil
	}
	return x.moved
}

// Mute has a session's beats count and go unanswered, so that the child looks after its connection.
func (w *Watch) Mute(s Session) {
	if x := w.byID[s.ID]; x != nil && x.session == s {
		x.mute = true
	}
}

// Due is when Quiet has something to tell, or the zero time.
func (w *Watch) Due() time.Time {
	if e := w.heard.Front(); e != nil {
		return e.Value.(*watched).at.Add(w.quietAfter)
	}
	return time.Time{}
}

// Silent is a child that stopped beating.
type Silent struct {
	Name  string
	Heard time.Time
}

// Quiet gives those who have become quiet since the last call.
func (w *Watch) Quiet(now time.Time) (out []Silent) {
	for e := w.heard.Front(); e != nil && now.Sub(e.Value.(*watched).at) >= w.quietAfter; e = w.heard.Front() {
		x := e.Value.(*watched)
		w.heard.Remove(e)
		x.place = nil
		out = append(out, Silent{x.name, x.at})
	}
	return out
}

// Heard is when a child was heard last; ok is false for one that never beat in its present session.
func (w *Watch) Heard(name string) (at time.Time, ok bool) {
	x := w.byName[name]
	if x == nil || x.at.IsZero() {
		return at, false
	}
	return x.at, true
}
