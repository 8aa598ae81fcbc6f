package cluster

// Sender implements loop.Sent.
func (m ChildUp) Sender() string { return m.Hello.Name }

// Sender implements loop.Sent.
func (m ChildFrame) Sender() string { return m.Name }

// Sender implements loop.Sent.
func (ParentUp) Sender() string { return "" }

// Sender implements loop.Sent.
func (ParentFrame) Sender() string { return "" }
