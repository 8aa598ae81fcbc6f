package core

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"skerry.dev/skerry/spec"
)

// spot is where one copy of a group belongs: a worker, and in mode perDevice one of the devices there. What a worker finds in a network is
// one spot, whoever of the site's workers sees it: by its name and its address there, which are all that anybody knows of it.
//
//	worker                 mode perWorker
//	worker/class=name      mode perDevice
//	/class=name@address    the same, of a device in a network
type spot string

// deviceSpot is where the copy for a device belongs that a worker offers.
func deviceSpot(worker string, d *spec.DeviceOffer) spot {
	if d.Host != "" {
		return spot("/" + d.Name + "@" + d.Host)
	}
	return spot(worker + "/" + d.Name)
}

// worker gives the only worker of a spot; empty: it is in a network.
func (s spot) worker() string {
	worker, _, _ := strings.Cut(string(s), "/")
	return worker
}

// device gives the name of its device; empty: it is a whole worker.
func (s spot) device() string {
	worker, device, _ := strings.Cut(string(s), "/")
	if worker == "" {
		device = device[:max(strings.LastIndexByte(device, '@'), 0)]
	}
	return device
}

// inNetwork reports whether several workers may see its device.
func (s spot) inNetwork() bool { return strings.HasPrefix(string(s), "/") }

// suffix tells the copies of a group apart by their IDs. A device's name, such as its serial number, is not to be read there.
func (s spot) suffix() string {
	if s.device() == "" {
		return string(s)
	}
	sum := sha256.Sum256([]byte(s[len(s.worker()):]))
	return strings.TrimPrefix(s.worker()+"-", "-") + hex.EncodeToString(sum[:5])
}
