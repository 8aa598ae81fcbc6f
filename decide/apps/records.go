package apps

import "skerry.dev/skerry/wire"

// Records are the kinds of records of a controller, by how their keys begin, each with a new value of the type that it is read into.
func Records() map[string]func() any {
	return map[string]func() any{
		keyNets:      func() any { return new(wire.NetworkID) },
		prefixNet:    func() any { return new(network) },
		prefixCert:   func() any { return new(certificate) },
		prefixSecret: func() any { return new(secret) },
		prefixApp:    func() any { return new(App) },
		prefixInst:   func() any { return new(Instance) },
		prefixClaim:  func() any { return new(claim) },
		prefixPast:   func() any { return new(Past) },
		prefixOrg:    func() any { return new(Org) },
		prefixSpace:  func() any { return new(Namespace) },
	}
}
