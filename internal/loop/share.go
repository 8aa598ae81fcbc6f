package loop

// lineLength is how many messages of one sender wait at a time.
const lineLength = 16

// Share is what one of many senders has of a loop's queue, so that whoever sends much, or what takes long to read, does not fill it: messages
// of others wait behind few of its own.
type Share struct{ line chan struct{} }

// NewShare makes a share for one sender.
func NewShare() *Share { return &Share{line: make(chan struct{}, lineLength)} }

// PostShare is Post for a sender with a share, which it waits for.
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

// taken ends the wait of a message. nil: its sender has no share.
func (s *Share) taken() {
	if s != nil {
		<-s.line
	}
}
