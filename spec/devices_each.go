package spec

import (
	"slices"
	"strconv"
	"strings"
)

// MaxCopiesWorker bounds the instances of one perDevice service on one worker. Whatever is plugged in there, or says in its network that it
// is a device, gets no more.
const MaxCopiesWorker = 128

// EachDevice gives the devices of a worker that get an instance of a perDevice service each: those that fit its request, by name, each once
// whatever names it has.
func EachDevice(service *ServiceSpec, offers []DeviceOffer) (devices []DeviceOffer) {
	for i := range offers {
		d := &offers[i]
		_, name, _ := strings.Cut(d.Name, "=")
		if len(service.Devices) == 1 && service.Devices[0].Fits(d) && CheckDeviceName(name) { // an agent may be anybody's
			devices = append(devices, *d)
		}
	}
	slices.SortStableFunc(devices, func(a, b DeviceOffer) int { return strings.Compare(a.Name, b.Name) })
	nodes := map[string]bool{}
	devices = slices.DeleteFunc(devices, func(d DeviceOffer) bool {
		twice := d.Node != "" && nodes[d.Node]
		nodes[d.Node] = true
		return twice
	})
	return slices.CompactFunc(devices, func(a, b DeviceOffer) bool { return a.Name == b.Name })
}

// ForDevice gives a service as one of its instances runs it: with the device of that name.
func ForDevice(s *ServiceSpec, device string) ServiceSpec {
	own := *s
	own.Devices = slices.Clone(s.Devices)
	if r := &own.Devices[0]; r.CDI != "" {
		r.CDI = device
	} else {
		r.Class = device
	}
	return own
}

// checkPerDevice checks that a service with an instance for each device says of which.
func checkPerDevice(check *checker, path string, service *ServiceSpec) {
	if service.Mode != ModePerDevice {
		return
	}
	dp := path + ".devices"
	switch {
	case len(service.Devices) == 0:
		check.add(dp, "write devices: [{class: serial}], with the class of the devices",
			"mode perDevice runs an instance for each device of a class, and none is given")
	case len(service.Devices) > 1:
		check.add(dp, "keep one of them, or use mode service or perWorker for instances that have several devices",
			"mode perDevice runs an instance for each device of one class, and %d are asked for", len(service.Devices))
	case service.Devices[0].named():
		check.add(dp+"[0]", "ask for its class, perhaps with match, or use mode service for an instance with this device",
			"mode perDevice runs an instance for each device of a class, and %s is one device", service.Devices[0].wanted())
	case service.Devices[0].Count > 1:
		check.add(dp+"[0].count", "leave it out", "in mode perDevice each instance has one device, not %d", service.Devices[0].Count)
	}
	for i, port := range service.Ports {
		if port.HostPort > 0 {
			check.add(path+".ports["+strconv.Itoa(i)+"].hostPort",
				"write -1, which lets the worker choose a port for each, or use the service's address",
				"in mode perDevice several instances run on a worker, and one alone can have port %d there", port.HostPort)
		}
	}
}
