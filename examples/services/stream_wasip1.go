package main

import (
	"errors"
	"net"
)

func stream(net.Listener) error {
	return errors.New("a module has no connections to others, and the subscriber needs one to the broker")
}
