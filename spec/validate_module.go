package spec

// wasm checks how a module is to be run.
func (c *checker) wasm(p string, s *ServiceSpec) {
	if w := s.Wasm; w != nil {
		c.oneOf(p+".wasm.handler", w.Handler, "http")
		if s.Runtime != RuntimeWasm {
			c.add(p+".wasm", "write runtime: wasm, or leave it out", "it is for modules alone")
		}
		if w.Handler == "" && *w != (Wasm{}) {
			c.add(p+".wasm", "write handler: http", "timeout, concurrency and maxBody are of a handler")
		}
		if w.Timeout < 0 || w.MaxBody < 0 {
			c.add(p+".wasm", "", "timeout and maxBody must be zero or more")
		}
		c.between(p+".wasm.concurrency", w.Concurrency, 0, 1000)
		if w.Handler != "" && (len(s.Ports) == 0 || s.Ports[0].Protocol != "" && s.Ports[0].Protocol != "tcp") {
			c.add(p+".ports", "write ports: [{port: 8080}]", "a handler takes requests at the service's first port, which is to be of tcp")
		}
	}
}
