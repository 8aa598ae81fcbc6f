package artifact

// Copies are unpacked layers that belong to other users than their images say: to those of the host from some number on, which a user
// namespace has. A copy is made where owners cannot be mapped (Linux alone makes any), lies beside its layer, and goes with it.
type Copies struct {
	s *Store

	making map[string]chan struct{} // those on their way, by their folders; guarded by Store.mu
}
