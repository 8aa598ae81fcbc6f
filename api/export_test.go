package api

// Row is a row of the table of routes, for tests.
type Row = operation

// Operations gives the table of routes.
func (h *Handler) Operations() []Row { return h.operations }

// ParseWatch checks the query of a watch.
func ParseWatch(namespace, app, kinds, accept string) error {
	o, err := parseWatch(&watchIn{Namespace: namespace, App: app, Kinds: kinds, Accept: accept})
	if err == nil && len(o.kinds) == 0 {
		panic("a watch of nothing")
	}
	return err
}
