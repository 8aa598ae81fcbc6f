package devices

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry/spec"
)

// maxFile bounds a file of devices, in bytes.
const maxFile = 1 << 20

// listed is a device as an operator writes it.
type listed struct {
	Class   string            `json:"class"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Nodes   []string          `json:"nodes"`
	Address string            `json:"address"`
	Shares  int               `json:"shares"`
}

// ReadFile reads a file of devices.
func ReadFile(name string) ([]Device, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	return ParseFile(data)
}

// ParseFile reads devices that are listed by hand, in YAML or JSON. One that is wrong refuses the file: nobody should miss it later.
func ParseFile(data []byte) (out []Device, err error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	var file struct {
		Devices []listed `json:"devices"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, err
	}
	if len(file.Devices) > spec.MaxDevices {
		return nil, fmt.Errorf("it lists %d devices; at most %d are offered", len(file.Devices), spec.MaxDevices)
	}
	seen := map[string]bool{}
	for i, l := range file.Devices {
		d := Device(l)
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("devices[%d]: %w", i, err)
		}
		if seen[d.ID()] {
			return nil, fmt.Errorf("devices[%d]: %s is there twice", i, d.ID())
		}
		seen[d.ID()] = true
		out = append(out, d)
	}
	return out, nil
}

func (l *listed) check() error {
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
	case len(l.Labels) > spec.MaxDeviceLabels:
		return fmt.Errorf("%d labels; at most %d are allowed", len(l.Labels), spec.MaxDeviceLabels)
	}
	for k, v := range l.Labels {
		if !spec.CheckDeviceLabel(k, v) {
			return fmt.Errorf("label %q with the value %q: a key is a word, a value one line of at most 128 bytes", k, v)
		}
	}
	for _, n := range l.Nodes {
		if !strings.HasPrefix(n, "/") || path.Clean(n) != n || n == "/" || len(n) > 255 || strings.ContainsAny(n, "\x00\n") {
			return fmt.Errorf("node %q is no absolute path", n)
		}
	}
	return nil
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
