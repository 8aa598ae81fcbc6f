package spec

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DeviceRequest asks for devices of a worker. One instance at a time has a device, or as many as its operator lets share it. Exactly one of
// CDI, Class and Path is given.
type DeviceRequest struct {
	CDI   string            `json:"cdi,omitempty" doc:"Class of devices, as vendor.com/class, or one of them by name, as vendor.com/class=name. Workers offer what is described in /etc/cdi and /var/run/cdi (Container Device Interface)."`
	Class string            `json:"class,omitempty" doc:"Class of devices that a worker finds, or its operator lists by hand (--device-class, --device-file), such as serial or camera; or one device by name, as class=name. The variables SKERRY_DEVICE_SERIAL_0 and so on hold the path or the network address of each."`
	Match map[string]string `json:"match,omitempty" doc:"Labels that each must have, such as vendor: \"0403\" (see skerry get devices). Those of cdi are the annotations of its description, and what the operator adds."`
	Count int               `json:"count,omitempty" doc:"How many of a class. Default: 1." min:"1" max:"64"`
	At    string            `json:"at,omitempty" doc:"Path below /dev in the container for the device node of one device of a class. Default: its path on the worker, such as /dev/ttyUSB0."`
	Path  string            `json:"path,omitempty" doc:"A device by its stable name on the worker, below /dev/serial or /dev/v4l, such as /dev/serial/by-id/usb-FTDI_FT232R_A50285BI-if00-port0. It is at the same path in the container. When it is unplugged the instance ends, and starts again where the device is."`
}

// wanted names the class or device that is asked for.
func (r *DeviceRequest) wanted() string { return r.CDI + r.Class + r.Path }

// named reports whether one certain device is asked for.
func (r *DeviceRequest) named() bool { return r.Path != "" || strings.Contains(r.CDI+r.Class, "=") }

// String tells for people what is asked for.
func (r *DeviceRequest) String() string {
	if len(r.Match) == 0 {
		return r.wanted()
	}
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(r.Match)) {
		labels = append(labels, k+"="+r.Match[k])
	}
	return r.wanted() + " (" + strings.Join(labels, ", ") + ")"
}

// Fits reports whether a device is one of those that are asked for.
func (r *DeviceRequest) Fits(d *DeviceOffer) bool {
	if want := r.wanted(); r.named() && d.Name != want || !r.named() && !strings.HasPrefix(d.Name, want+"=") {
		return false
	}
	for k, v := range r.Match {
		if have, ok := d.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// DeviceOffer is a device that a worker can give to an instance.
type DeviceOffer struct {
	Name   string // vendor.com/class=name, class=name or a path
	Labels map[string]string
	Node   string // of the host; offers with the same one are one device. Empty: it is not known
	Host   string // where it answers in a network; empty: it is a device of the worker itself
}

// MaxDevices bounds the devices that a worker offers, and those of an instance.
const (
	MaxDevices         = 512
	MaxDevicesInstance = 64
	// MaxDeviceShares bounds the instances that have one device at a time.
	MaxDeviceShares = 1000
	// MaxDeviceLabels bounds the labels of a device, and those of a request.
	MaxDeviceLabels = 16
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

// CheckDeviceClass reports whether a text can name a class of devices that a worker finds: small letters, digits and dashes.
func CheckDeviceClass(s string) bool {
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// CheckDeviceName reports whether a text can name a device of a class.
func CheckDeviceName(s string) bool {
	_, _, _, ok := ParseCDI("a/a=" + s)
	return ok
}

// CheckDeviceLabel reports whether a device can have a label: its key is a word, perhaps after a prefix as annotations of CDI have
// (vendor.com/word), and its value one line of at most 128 bytes.
func CheckDeviceLabel(key, value string) bool {
	word := func(s string) bool {
		return CheckDeviceClass(strings.ToLower(strings.NewReplacer(".", "", "_", "").Replace(s)))
	}
	prefix, name, both := strings.Cut(key, "/")
	return word(prefix) && (!both || word(name)) && len(key) <= 128 && len(value) <= 128 &&
		utf8.ValidString(value) && !strings.ContainsFunc(value, unicode.IsControl)
}

// DeviceVariable names the variable that tells an instance where the device of a class with that number is.
func DeviceVariable(class string, n int) string {
	return "SKERRY_DEVICE_" + strings.ToUpper(strings.ReplaceAll(class, "-", "_")) + "_" + strconv.Itoa(n)
}

// DeviceClass is what is told of a device beyond its site: its class, or its stable name.
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
		if c := DeviceClass(r.wanted()); !slices.Contains(out, c) {
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

// inOrder lists requests, one for each device, as PickDevices gives these: first those for certain ones.
func inOrder(requests []DeviceRequest) (out []*DeviceRequest) {
	for _, named := range []bool{true, false} {
		for i := range requests {
			if r := &requests[i]; r.named() == named {
				for range max(r.Count, 1) {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// RequestsOf gives for each device of a service's instance the request that it was chosen for; nil: it stands for gpus or tpus.
func RequestsOf(s *ServiceSpec, names []string) []*DeviceRequest {
	out := make([]*DeviceRequest, len(names))
	copy(out, inOrder(s.Devices))
	return out
}

// wellKnownNodes are in every container, or lead to something else of it.
var wellKnownNodes = []string{"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "mqueue", "fd", "stdin",
	"stdout", "stderr", "core"}

// nodePath reports whether a device can be at a path in a container.
func nodePath(p string) bool {
	rest, ok := strings.CutPrefix(p, "/dev/")
	first, _, _ := strings.Cut(rest, "/")
	return ok && rest != "" && path.Clean(p) == p && len(p) < 256 && !strings.ContainsFunc(p, unicode.IsControl) &&
		!slices.Contains(wellKnownNodes, first)
}

// devices checks what a service asks for of its worker's devices.
func (c *checker) devices(path string, service *ServiceSpec) {
	n := 0
	taken := map[string]bool{}
	for i := range service.Devices {
		r := &service.Devices[i]
		dp := path + ".devices[" + strconv.Itoa(i) + "]"
		n += max(r.Count, 1)
		checkDevice(c, dp, r)
		if r.At != "" && taken[r.At] {
			c.add(dp+".at", "choose another path", "another device is at %s", r.At)
		}
		taken[r.At] = true
	}
	if n > MaxDevicesInstance {
		c.add(path+".devices", "", "%d devices; at most %d are allowed", n, MaxDevicesInstance)
	}
}

// checkDevice checks one request.
func checkDevice(check *checker, dp string, request *DeviceRequest) {
	given := 0
	for _, s := range []string{request.CDI, request.Class, request.Path} {
		if s != "" {
			given++
		}
	}
	_, _, _, cdi := ParseCDI(request.CDI)
	class, name, one := strings.Cut(request.Class, "=")
	switch {
	case given != 1:
		check.add(dp, "write cdi: vendor.com/class, class: serial or path: /dev/serial/by-id/...",
			"a device is named by one of cdi, class and path")
	case request.CDI != "" && !cdi:
		check.add(dp+".cdi", "write it as vendor.com/class, or vendor.com/class=name", "%q names no device", request.CDI)
	case request.Class != "" && (!CheckDeviceClass(class) || one && !CheckDeviceName(name)):
		check.add(dp+".class", "write it as serial, or serial=name; classes with a / are for cdi", "%q names no class of devices", request.Class)
	case request.Path != "" && !stablePath(request.Path):
		check.add(dp+".path", "use a name in one of "+strings.Join(deviceDirs, ", "), "%q is not a stable name of a device", request.Path)
	}
	check.between(dp+".count", request.Count, 0, MaxDevicesInstance)
	if request.Count > 1 && request.named() {
		check.add(dp+".count", "leave it out", "there is one device of a name")
	}
	if request.Path != "" && len(request.Match) > 0 {
		check.add(dp+".match", "ask for a class", "only devices of a class have labels")
	}
	if len(request.Match) > MaxDeviceLabels {
		check.add(dp+".match", "", "%d labels; at most %d are allowed", len(request.Match), MaxDeviceLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(request.Match)) {
		if !CheckDeviceLabel(k, request.Match[k]) {
			check.add(dp+".match", "`skerry get devices` shows the labels of devices",
				"no device has a label %q with the value %q", k, request.Match[k])
		}
	}
	switch {
	case request.At == "":
	case request.Class == "" || request.Count > 1:
		check.add(dp+".at", "leave it out, or ask for each device by itself", "a path in the container is for one device of a class")
	case !nodePath(request.At):
		check.add(dp+".at", "write it as /dev/plc", "%q is no place for a device", request.At)
	}
}
