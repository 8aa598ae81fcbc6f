package wire

import (
	"net/netip"
	"strings"

	"skerry.dev/skerry"
)

// Between sites the root introduces, and carries what it cannot read.
//
//	site a                        root                                   site b
//	want/<service>            ->  wanted/<service>/a                 ->
//	                              site/b -> a, site/a -> b
//	from/b/route/<service>   <-                                     <-  to/a/route/<service>
//	to/b/peers               ->                                     ->  from/a/peers
//	to/b/heard/<service>     ->                                     ->  from/a/heard/<service>
//
// What goes to and from is sealed from one cluster to the other: the root learns which sites exchange packets because of
// which service, and neither workers nor addresses.

// SiteItem is the key of a SiteInfo in a site's observed set: its own.
const SiteItem = "site"

// SiteInfo is what sites must know of each other, and the root of all, for paths between them.
type SiteInfo struct {
	Name  skerry.ClusterName `json:"name" cbor:"1,keyasint"`
	Key   OverlayKey         `json:"key" cbor:"2,keyasint"`                     // of the cluster, for what is sealed
	Relay netip.AddrPort     `json:"relay,omitzero" cbor:"3,keyasint,omitzero"` // of its gateway; the zero value: none that others reach
	// its workers may be told addresses of others', if those may as well
	Direct  bool           `json:"direct,omitempty" cbor:"5,keyasint,omitempty"`
	Extents []netip.Prefix `json:"extents,omitempty" cbor:"4,keyasint,omitempty"` // of its instances' addresses
}

// SiteKey is the key of another site's SiteInfo in a site's desired set.
func SiteKey(site string) string { return "site/" + site }

// WantedKey is the key in a site's desired set that tells that another site wants the routes of a service.
func WantedKey(k skerry.ServiceKey, site string) string { return "wanted/" + k.String() + "/" + site }

// ParseWantedKey reads a WantedKey.
func ParseWantedKey(key string) (k skerry.ServiceKey, site string, ok bool) {
	rest, ok := strings.CutPrefix(key, "wanted/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i < 0 {
		return k, "", false
	}
	k, ok = skerry.ParseServiceKey(rest[:i])
	return k, rest[i+1:], ok
}

// MailTo and MailFrom are the keys of sealed items: in the observed set of who sends, and in the desired set of who gets it.
func MailTo(site, topic string) string   { return "to/" + site + "/" + topic }
func MailFrom(site, topic string) string { return "from/" + site + "/" + topic }

// ParseMail reads a key of either kind.
func ParseMail(key string) (site, topic string, ok bool) {
	kind, rest, _ := strings.Cut(key, "/")
	site, topic, ok = strings.Cut(rest, "/")
	return site, topic, ok && (kind == "to" || kind == "from") && site != "" && topic != ""
}

// Topics of mail.
const (
	TopicPeers = "peers"  // RemotePeers: whose packets will come
	topicRoute = "route/" // RemoteRoute
	topicHeard = "heard/" // HeardRoute
)

// TopicRoute is the topic of a service's routes.
func TopicRoute(k skerry.ServiceKey) string { return topicRoute + k.String() }

// RouteTopic gives the service whose routes a topic is of.
func RouteTopic(topic string) (k skerry.ServiceKey, ok bool) {
	rest, ok := strings.CutPrefix(topic, topicRoute)
	if !ok {
		return k, false
	}
	return skerry.ParseServiceKey(rest)
}

// TopicHeard is the topic of the confirmation of a service's routes.
func TopicHeard(k skerry.ServiceKey) string { return topicHeard + k.String() }

// AnswersTopic gives the topic that a confirmation answers.
func AnswersTopic(topic string) (of string, ok bool) {
	rest, ok := strings.CutPrefix(topic, topicHeard)
	return topicRoute + rest, ok
}

// RemoteRoute tells another site where the instances of a service are here. Peers are numbered as this site does.
type RemoteRoute struct {
	Route Route        `json:"route" cbor:"1,keyasint"`
	Peers []RemotePeer `json:"peers" cbor:"2,keyasint"`
}

// RemotePeers tells another site which workers here have routes to its instances.
type RemotePeers struct {
	Peers []RemotePeer `json:"peers" cbor:"1,keyasint"`
}

// HeardRoute tells another site that all workers here have a route of it, as it was sent.
type HeardRoute struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	Mail    uint64            `json:"mail" cbor:"2,keyasint"` // the first bytes of the SHA-256 of the mail
}

// RemotePeer is a worker, to other sites: a number, a key and its instances' addresses.
type RemotePeer struct {
	ID       PeerID         `json:"id" cbor:"1,keyasint"`
	Key      OverlayKey     `json:"key" cbor:"2,keyasint"`
	Prefixes []netip.Prefix `json:"prefixes" cbor:"3,keyasint"`
	// To are the workers of the other site, as that numbers them, with which it exchanges packets.
	To []PeerID `json:"to,omitempty" cbor:"4,keyasint,omitempty"`
}
