package loop

// lineLength is how many messages of one sender wait at a time.
const lineLength = 16

// Share is one sender's part of a loop's queue. Whoever sends much, or messages that take long, does not fill the queue: what others send
// waits behind a few of its messages.
type Share struct{ line chan struct{} }

// NewShare makes a share for one sender.
func NewShare() *Share { return &Share{line: make(chan struct{}, lineLength)} }

// PostShare is Post for a sender with a share; it waits until there is room in that.
func (l *Loop) PostShare(share *Share, msg any) bool {
	select {
	case share.line <- struct{}{}:
	case <-l.done:
		return false
	}
	select {
	case l.in <- input{msg: msg, share: share}:
		return true
	case <-l.done:
		return false
	}
}

// taken makes room for the next message. A nil share is that of a sender without one.
func (s *Share) taken() {
	if s != nil {
		<-s.line
	}
}
