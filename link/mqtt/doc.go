// Package mqtt lets agents in that are not Skerry's own. It is the server's end of MQTT connections (3.1.1 and 5, over TLS) and
// carries the messages of the control protocol, as JSON, between a device and a session of package link, which makes all
// decisions: who may come in, how often, with what version, when it is gone.
//
// It is no broker. Nothing travels from one device to another; each has one topic to publish on and one to subscribe to, and
// there are no retained messages, wills, wildcards or sessions that outlive a connection.
//
//	device                                       listener                       link.Server
//	  | -- TLS 1.3, certificate of the site -----> |                                 |
//	  | -- CONNECT, SUBSCRIBE skerry/w1/down ----> |                                 |
//	  | -- PUBLISH skerry/w1/up {"type":"hello"} > | -- a pipe, frame: Hello ------> | Carry
//	  | <- PUBLISH skerry/w1/down {"type":...} --- | <-------------- frame: Welcome  |
//	  | -- PINGREQ ------------------------------> | -- frame: Ping ---------------> |
//	  | <----------------------------- PINGRESP -- | <---------------- frame: Pong - |
//
// Programs that speak MQTT among themselves, such as examples/services, take ReadPacket and what writes packets.
// Package internal/tier imports the rest.
package mqtt
