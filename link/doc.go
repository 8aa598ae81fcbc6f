// Package link carries frames and streams between a parent and its children over mutually authenticated TLS 1.3. The
// child dials; the parent listens on one address for five protocols, told apart by ALPN: control, streams, join, seat
// (votes of workers and the way of the store to successors), and images (their way to processes that stand by).
//
// The package owns connections, their limits and their end. It does not know what messages mean, who may come in (it
// asks), or what is stored. Role servers import it; cores never do.
//
//	child                                   parent
//	  | -- TLS, ALPN skerry-link/1 ---------> |   certificate of the site's CA on both sides
//	  | -- Hello ---------------------------> |   Admit, then Welcome or Refuse
//	  | <------------------------- Welcome -- |
//	  | <------------- frames --------------> |   Send never blocks
//	  | -- Ping / <- Pong ------------------> |   silence for three intervals ends the connection
//	  | <--------------------- OpenStreams -- |
//	  | -- TLS, ALPN skerry-stream/1 -------> |   a second connection, multiplexed, closed when idle
package link

import "time"

// Protocols in ALPN.
const (
	ProtoLink      = "skerry-link/1"
	ProtoStream    = "skerry-stream/1"
	ProtoJoin      = "skerry-join/1"
	ProtoCandidate = "skerry-seat/1"
	ProtoImages    = "skerry-images/1"
)

// Defaults of the configurations.
const (
	DefaultKeepAlive        = 15 * time.Second
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultMaxPending       = 1024
	DefaultMaxQueue         = 4 << 20
	DefaultProbeTimeout     = 3 * time.Second
	DefaultStreamIdle       = time.Minute
	DefaultMaxStreams       = 256
	DefaultFrameRate        = 2000
)
