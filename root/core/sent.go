package core

// Sender implements loop.Sent.
func (m ChildUp) Sender() string { return m.Hello.Name }

// Sender implements loop.Sent.
func (m ChildFrame) Sender() string { return m.Name }
