package spec

import (
	"slices"
	"strconv"
	"strings"
)

// DeviceRequest asks for devices of a worker, which no other instance has meanwhile. Exactly one of its kinds is given.
type DeviceRequest struct {
	CDI   string `json:"cdi,omitempty" doc:"Class of devices, as vendor.com/class, or one of them by name, as vendor.com/class=name. Workers offer what is described in /etc/cdi and /var/run/cdi (Container Device Interface)."`
	Count int    `json:"count,omitempty" doc:"How many of a class. Default: 1." min:"1" max:"64"`
	Path  string `json:"path,omitempty" doc:"A device by its stable name on the worker, below /dev/serial or /dev/v4l, such as /dev/serial/by-id/usb-FTDI_FT232R_A50285BI-if00-port0. It is at the same path in the container. When it is unplugged the instance ends, and starts again where the device is."`
}

// MaxDevices bounds the devices that a worker offers, and those of an instance.
const (
	MaxDevices         = 512
	MaxDevicesInstance = 64
)

// deviceDirs are where devices have names that stay when they are plugged in elsewhere, or in another order.
// Disks are not among them: the worker's own would be.
var deviceDirs = []string{"/dev/serial/by-id", "/dev/serial/by-path", "/dev/v4l/by-id", "/dev/v4l/by-path"}

// DeviceDirs lists where devices have stable names.
func DeviceDirs() []string { return slices.Clone(deviceDirs) }

// stablePath reports whether a path is a stable name.
func stablePath(p string) bool {
	i := strings.LastIndexByte(p, '/')
	return i > 0 && slices.Contains(deviceDirs, p[:i]) && len(p) > i+1 && len(p) < 256 && !strings.ContainsAny(p[i+1:], "\x00\n") &&
		p[i+1:] != "." && p[i+1:] != ".."
}

// ParseCDI takes the name of a device, or of a class of them (no name), apart.
func ParseCDI(s string) (vendor, class, name string, ok bool) {
	kind, name, named := strings.Cut(s, "=")
	vendor, class, ok = strings.Cut(kind, "/")
	word := func(s string, more string) bool {
		for i, c := range []byte(s) {
			alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
			if !alnum && (i == 0 || i == len(s)-1 || strings.IndexByte(more, c) < 0) {
				return false
			}
		}
		return s != "" && len(s) < 128
	}
	return vendor, class, name, ok && word(vendor, "_-.") && word(class, "_-.") && (!named || word(name, "_-.:"))
}

// DeviceClass is what is told of a device beyond its site: the class of CDI, or its stable name.
func DeviceClass(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	class, _, _ := strings.Cut(name, "=")
	return class
}

// DeviceClasses lists the classes of the devices that a service asks for.
func (s *ServiceSpec) DeviceClasses() (out []string) {
	for _, r := range s.Devices {
		if c := DeviceClass(r.CDI + r.Path); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// Accelerators are the classes of devices that a worker hands an instance in for its gpus and tpus; empty: these are only counted.
type Accelerators struct {
	GPUs string `json:"gpus,omitempty" cbor:"1,keyasint,omitempty"` // vendor.com/class
	TPUs string `json:"tpus,omitempty" cbor:"2,keyasint,omitempty"`
}

// deviceRequests lists the devices that an instance is to have: those that the service asks for, and for its gpus and tpus as many of the
// worker's classes, unless it asks for devices of that class itself.
func (s *ServiceSpec) deviceRequests(a Accelerators) []DeviceRequest {
	list, own := s.Devices, s.DeviceClasses()
	for _, x := range []struct {
		class string
		count int
	}{{a.GPUs, s.Resources.GPUs}, {a.TPUs, s.Resources.TPUs}} {
		if x.class != "" && x.count > 0 && !slices.Contains(own, x.class) {
			list = append(list[:len(list):len(list)], DeviceRequest{CDI: x.class, Count: x.count})
		}
	}
	return list
}

// HasDevices reports whether instances in a runtime can have devices of their worker.
func HasDevices(runtime string) bool {
	return runtime == RuntimeOCI || runtime == RuntimeContainerd || Offers(runtime, runtimeSharedClass)
}

// WantsDevices reports whether an instance may have devices of its worker.
func (s *ServiceSpec) WantsDevices() bool {
	return len(s.Devices) > 0 || s.Resources.GPUs > 0 || s.Resources.TPUs > 0
}

// PickDevices chooses devices for a service among those that are free: first those that it names, then the first ones of each class. For
// its gpus and tpus it has those of the worker's classes. missing tells what there is too little of, and ok whether there is enough.
func (s *ServiceSpec) PickDevices(free []string, accelerators Accelerators) (names []string, missing string, ok bool) {
	requests := s.deviceRequests(accelerators)
	take := func(fits func(string) bool) bool {
		for _, f := range free {
			if fits(f) && !slices.Contains(names, f) {
				names = append(names, f)
				return true
			}
		}
		return false
	}
	for _, r := range requests {
		want := r.CDI + r.Path
		if named := r.Path != "" || strings.Contains(r.CDI, "="); named && !take(func(f string) bool { return f == want }) {
			return nil, want, false
		}
	}
	for _, r := range requests {
		if r.Path != "" || strings.Contains(r.CDI, "=") {
			continue
		}
		for range max(r.Count, 1) {
			if !take(func(f string) bool { return strings.HasPrefix(f, r.CDI+"=") }) {
				return nil, r.CDI, false
			}
		}
	}
	return names, "", true
}

// devices checks what a service asks for of its worker's devices.
func (c *checker) devices(path string, service *ServiceSpec) {
	n := 0
	for i, r := range service.Devices {
		dp := path + ".devices[" + strconv.Itoa(i) + "]"
		n += max(r.Count, 1)
		_, _, name, ok := ParseCDI(r.CDI)
		switch {
		case (r.CDI == "") == (r.Path == ""):
			c.add(dp, "write cdi: vendor.com/class or path: /dev/serial/by-id/...", "a device is named by either cdi or path")
		case r.CDI != "" && !ok:
			c.add(dp+".cdi", "write it as vendor.com/class, or vendor.com/class=name", "%q names no device", r.CDI)
		case r.Path != "" && !stablePath(r.Path):
			c.add(dp+".path", "use a name in one of "+strings.Join(deviceDirs, ", "), "%q is not a stable name of a device", r.Path)
		}
		c.between(dp+".count", r.Count, 0, MaxDevicesInstance)
		if r.Count > 1 && (r.Path != "" || name != "") {
			c.add(dp+".count", "leave it out", "there is one device of a name")
		}
	}
	if n > MaxDevicesInstance {
		c.add(path+".devices", "", "%d devices; at most %d are allowed", n, MaxDevicesInstance)
	}
}
