package devices

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry/spec"
)

// maxFile bounds a file of devices, in bytes.
const maxFile = 1 << 20

// File is what an operator's file says.
type File struct {
	Devices []Device
	// Labels are more labels of devices by the Container Device Interface: by vendor.com/class=name, and by vendor.com/class of all of it.
	Labels map[string]map[string]string
}

// listed is a device as an operator writes it, or more labels of one that a vendor describes.
type listed struct {
	CDI     string            `json:"cdi"`
	Class   string            `json:"class"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Nodes   []string          `json:"nodes"`
	Address string            `json:"address"`
	Shares  int               `json:"shares"`
}

// ReadFile reads a file of devices.
func ReadFile(name string) (none File, err error) {
	f, err := os.Open(name)
	if err != nil {
		return none, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return none, err
	}
	return ParseFile(data)
}

// ParseFile reads devices that are listed by hand, in YAML or JSON. One that is wrong refuses the file: nobody should miss it later.
func ParseFile(data []byte) (none File, err error) {
	if len(data) > maxFile {
		return none, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	var file struct {
		Devices []listed `json:"devices"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return none, err
	}
	if len(file.Devices) > spec.MaxDevices {
		return none, fmt.Errorf("it lists %d devices; at most %d are offered", len(file.Devices), spec.MaxDevices)
	}
	out := File{Labels: map[string]map[string]string{}}
	seen := map[string]bool{}
	for i, l := range file.Devices {
		d := Device{Class: l.Class, Name: l.Name, Labels: l.Labels, Nodes: l.Nodes, Address: l.Address, Shares: l.Shares}
		if err := l.check(); err != nil {
			return none, fmt.Errorf("devices[%d]: %w", i, err)
		}
		id := d.ID()
		if l.CDI != "" {
			id = l.CDI
		}
		if seen[id] {
			return none, fmt.Errorf("devices[%d]: %s is there twice", i, id)
		}
		seen[id] = true
		if l.CDI != "" {
			out.Labels[id] = l.Labels
		} else {
			out.Devices = append(out.Devices, d)
		}
	}
	return out, nil
}

func (l *listed) check() error {
	if l.CDI != "" {
		return l.checkCDI()
	}
	switch {
	case !spec.CheckDeviceClass(l.Class):
		return fmt.Errorf("class %q is not small letters, digits and dashes", l.Class)
	case !spec.CheckDeviceName(l.Name):
		return fmt.Errorf("name %q is not letters, digits and _.:- between them", l.Name)
	case (len(l.Nodes) > 0) == (l.Address != ""):
		return fmt.Errorf("%s=%s has either nodes, such as [/dev/ttyS1], or an address", l.Class, l.Name)
	case len(l.Nodes) > spec.MaxDevicesInstance:
		return fmt.Errorf("%s=%s has %d nodes; at most %d are allowed", l.Class, l.Name, len(l.Nodes), spec.MaxDevicesInstance)
	case l.Address != "" && !plainAddress(l.Address):
		return fmt.Errorf("address %q is neither a URL nor HOST:PORT, or has more than 512 bytes", l.Address)
	case l.Shares < 0 || l.Shares > spec.MaxDeviceShares:
		return fmt.Errorf("shares %d is not from 1 to %d", l.Shares, spec.MaxDeviceShares)
	}
	if err := l.checkLabels(); err != nil {
		return err
	}
	for _, n := range l.Nodes {
		if !strings.HasPrefix(n, "/") || path.Clean(n) != n || n == "/" || len(n) > 255 || strings.ContainsAny(n, "\x00\n") {
			return fmt.Errorf("node %q is no absolute path", n)
		}
	}
	return nil
}

// checkCDI checks labels of what a vendor describes. Everything else is said there, and shares by a rule.
func (l *listed) checkCDI() error {
	if _, _, _, ok := spec.ParseCDI(l.CDI); !ok {
		return fmt.Errorf("cdi %q is neither vendor.com/class nor vendor.com/class=name", l.CDI)
	}
	if l.Class != "" || l.Name != "" || len(l.Nodes) > 0 || l.Address != "" || l.Shares != 0 {
		return fmt.Errorf("%s has labels here and nothing else; shares are for --device-class", l.CDI)
	}
	return l.checkLabels()
}

func (l *listed) checkLabels() error {
	if len(l.Labels) > spec.MaxDeviceLabels {
		return fmt.Errorf("%d labels; at most %d are allowed", len(l.Labels), spec.MaxDeviceLabels)
	}
	for k, v := range l.Labels {
		if !spec.CheckDeviceLabel(k, v) {
			return fmt.Errorf("label %q with the value %q: a key is a word, perhaps after a prefix and /, a value one line of at most 128 bytes",
				k, v)
		}
	}
	return nil
}

// LabelsOf gives the labels of a device by the Container Device Interface. The operator's file comes before what its vendor says of it, and
// a single device before its class. An annotation that can be no label, or for which there is no room, is none.
func (f *File) LabelsOf(name string, own, all map[string]string) map[string]string {
	out := map[string]string{}
	for _, from := range []map[string]string{f.Labels[name], f.Labels[spec.DeviceClass(name)], own, all} {
		for _, k := range slices.Sorted(maps.Keys(from)) {
			if _, said := out[k]; !said && len(out) < spec.MaxDeviceLabels && spec.CheckDeviceLabel(k, from[k]) {
				out[k] = from[k]
			}
		}
	}
	return out
}

// plainAddress reports whether a text can be an address that an instance is told: a URL with a host, or HOST:PORT, in printable ASCII.
func plainAddress(s string) bool {
	if s == "" || len(s) > 512 || strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune("\"'`\\<>$", c)
	}) {
		return false
	}
	if !strings.Contains(s, "://") {
		s = "tcp://" + s
	}
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && u.Hostname() != "" && (u.Scheme != "tcp" || u.Port() != "")
}

// Host gives where in the network a device is, without anything that its address may hold beside that, such as a password.
func (d *Device) Host() string {
	s := d.Address
	if !strings.Contains(s, "://") {
		s = "tcp://" + s
	}
	if u, err := url.Parse(s); err == nil {
		return u.Host
	}
	return ""
}
