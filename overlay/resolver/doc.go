// Package resolver answers DNS. A Resolver runs on every worker, for the instances there. It answers names of services
// from what it was told last, so that it works when everything above is gone, and forwards all other names to the
// host's servers. The address that a question comes from says which instance asks, and so which application's names
// mean something; a name of another application exists only for those that it is exported to.
//
// Names are in the zone "skerry.", which is never forwarded; INSTANCE is a number or any, POLICY one of round-robin,
// closest, least-loaded and instance, SERVICE-NS is "default" or the application's namespace:
//
//	INSTANCE.POLICY.SERVICE.SERVICE-NS.APP.APP-NS.skerry.
//	POLICY.SERVICE.SERVICE-NS.APP.APP-NS.skerry.     INSTANCE.SERVICE.SERVICE-NS.APP.APP-NS.skerry.
//	SERVICE.SERVICE-NS.APP.APP-NS.skerry.
//	INSTANCE.POLICY.SERVICE.skerry.   POLICY.SERVICE.skerry.   INSTANCE.SERVICE.skerry.   SERVICE.skerry.
//	_PORT._PROTOCOL.(any of these)                   SRV
//
// The form of six labels and the short ones also work without the zone; with "skerry" as search domain a short name
// without a dot gets there by itself. What no policy is given for is round-robin.
//
// An Authority answers for a cluster or the root, to the world: host names of exported services, with the ingress that
// is nearest to who asks, and delegations to other sites. See authority.go.
//
// The package changes nothing on the machine and opens no listener: sockets are handed to it. The worker's and the
// cluster's wiring import it.
package resolver
