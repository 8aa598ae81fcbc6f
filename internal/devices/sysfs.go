package devices

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
)

// Tree is where a kernel tells of its devices. Tests make one.
type Tree struct {
	Sys, Dev string // empty: /sys, /dev
	// Captures reports whether a V4L node gives pictures: one camera has several nodes, of which some give only data about them.
	Captures func(node string) bool
	// Number gives the major and minor number of a device node as MAJOR:MINOR, or an error.
	Number func(node string) (string, error)
}

// Dirs lists where nodes of a kind come and go.
func (t *Tree) Dirs(kind string) []string {
	switch kind {
	case KindGPU:
		return []string{t.dev("dri")}
	case KindSound:
		return []string{t.dev("snd")}
	case KindMDNS, KindONVIF:
		return nil
	}
	return []string{t.dev("")}
}

func (t *Tree) sys(path string) string {
	if t.Sys == "" {
		return filepath.Join("/sys", path)
	}
	return filepath.Join(t.Sys, path)
}

func (t *Tree) dev(path string) string {
	if t.Dev == "" {
		return filepath.Join("/dev", path)
	}
	return filepath.Join(t.Dev, path)
}

// kindAt is where the kernel lists devices of a kind, and which of its entries are some.
type kindAt struct {
	kind, dir string
	entry     *regexp.Regexp
	find      func(t *Tree, dir, entry string) (Device, bool)
}

func kindsAt() []kindAt {
	return []kindAt{
		{KindSerial, "class/tty", regexp.MustCompile(`^tty(USB|ACM)[0-9]+$`), serialAt},
		{KindCamera, "class/video4linux", regexp.MustCompile(`^video[0-9]+$`), cameraAt},
		{KindGPU, "class/drm", regexp.MustCompile(`^renderD[0-9]+$`), gpuAt},
		{KindI2C, "class/i2c-dev", regexp.MustCompile(`^i2c-[0-9]+$`), i2cAt},
		{KindGPIO, "bus/gpio/devices", regexp.MustCompile(`^gpiochip[0-9]+$`), gpioAt},
		{KindSound, "class/sound", regexp.MustCompile(`^card[0-9]+$`), soundAt},
	}
}

// Find lists the devices of some kinds, each with its kind as its class, in order. A device without its node is none.
func (t *Tree) Find(kinds []string) []Device {
	var out []Device
	for _, k := range kindsAt() {
		if !slices.Contains(kinds, k.kind) {
			continue
		}
		list, _ := os.ReadDir(t.sys(k.dir)) // a kernel without them has no such directory
		for _, e := range list[:min(len(list), 4*spec.MaxDevices)] {
			if !k.entry.MatchString(e.Name()) {
				continue
			}
			if d, ok := k.find(t, filepath.Join(t.sys(k.dir), e.Name()), e.Name()); ok && d.Name != "" && len(d.Nodes) > 0 {
				d.Class = k.kind
				out = append(out, d)
			}
		}
	}
	return distinct(out)
}

// node gives the path of a device node if it is that of an entry, by the kernel's number of it.
func (t *Tree) node(entry, node string) []string {
	want, path := read(entry, "dev"), t.dev(node)
	if number, err := t.Number(path); err != nil || want == "" || number != want {
		return nil
	}
	return []string{path}
}

// origin is what a device hangs on.
type origin struct {
	labels    map[string]string
	name      string // as far as it is known by itself: vendor, product and serial number, or the place
	interfac  string // of a USB device with several
	placeName string
}

// originOf walks up from a device to the USB or PCI device that it belongs to, or takes the nearest one as it is.
func (t *Tree) originOf(entry string) origin {
	at, err := filepath.EvalSymlinks(filepath.Join(entry, "device"))
	if err != nil {
		if at, err = filepath.EvalSymlinks(entry); err != nil {
			return origin{}
		}
		at = filepath.Dir(at)
	}
	top, err := filepath.EvalSymlinks(t.sys(""))
	if err != nil {
		return origin{}
	}
	found := origin{placeName: filepath.Base(at)}
	driver := linked(at, "driver")
	for dir := at; strings.HasPrefix(dir, top+"/") && len(dir) > len(top)+1; dir = filepath.Dir(dir) {
		if driver == "" {
			driver = linked(dir, "driver")
		}
		if n := read(dir, "bInterfaceNumber"); n != "" {
			found.interfac = n
		}
		if vendor := read(dir, "idVendor"); vendor != "" {
			product, serial := read(dir, "idProduct"), read(dir, "serial")
			found.placeName = filepath.Base(dir)
			found.labels = labels(LabelBus, "usb", LabelVendor, vendor, LabelProduct, product, LabelSerial, serial, LabelDriver, driver,
				LabelModel, strings.TrimSpace(read(dir, "manufacturer")+" "+read(dir, "product")), LabelPlace, found.placeName)
			if found.name = joined(clean(vendor), clean(product), clean(serial)); clean(serial) == "" {
				found.name = joined(found.name, "at", clean(found.placeName))
			}
			return found
		}
		if linked(dir, "subsystem") == "pci" {
			found.placeName = filepath.Base(dir)
			found.labels = labels(LabelBus, "pci", LabelVendor, strings.TrimPrefix(read(dir, "vendor"), "0x"),
				LabelProduct, strings.TrimPrefix(read(dir, "device"), "0x"), LabelDriver, driver, LabelPlace, found.placeName)
			found.name = joined("pci", clean(found.placeName))
			return found
		}
	}
	found.labels = labels(LabelBus, "platform", LabelDriver, driver, LabelPlace, found.placeName)
	found.name = clean(found.placeName)
	return found
}

func serialAt(t *Tree, dir, entry string) (Device, bool) {
	o := t.originOf(dir)
	port := read(filepath.Join(dir, "device"), "port_number") // of an adapter with several
	part := ""
	if o.interfac != "" && o.interfac != "00" {
		part = "if" + clean(o.interfac)
	}
	if port != "" && port != "0" {
		part = joined(part, "port"+clean(port))
	}
	return Device{Name: joined(o.name, part), Labels: o.labels, Nodes: t.node(dir, entry)}, o.labels[LabelBus] == "usb"
}

func cameraAt(t *Tree, dir, entry string) (Device, bool) {
	o := t.originOf(dir)
	d := Device{Name: o.name, Labels: merge(o.labels, labels(LabelModel, read(dir, "name"))), Nodes: t.node(dir, entry)}
	if i := read(dir, "index"); i != "" && i != "0" { // such as a second lens
		d.Name = joined(d.Name, "index"+clean(i))
	}
	return d, len(d.Nodes) > 0 && t.Captures(d.Nodes[0])
}

func gpuAt(t *Tree, dir, entry string) (Device, bool) {
	o := t.originOf(dir)
	// NVIDIA's driver needs its own nodes and libraries beside this one: its toolkit describes them in /etc/cdi.
	return Device{Name: o.name, Labels: o.labels, Nodes: t.node(dir, "dri/"+entry)}, o.labels[LabelDriver] != "nvidia"
}

func i2cAt(t *Tree, dir, entry string) (Device, bool) {
	o := t.originOf(filepath.Join(dir, "device")) // an adapter is a child of what it belongs to
	if o.labels == nil {
		return Device{}, false
	}
	own := read(filepath.Join(dir, "device"), "name")
	place := o.placeName
	if at, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil {
		place = filepath.Base(filepath.Dir(at)) // i2c-3 is a number that changes
	}
	return Device{Name: joined(clean(place), clean(own)), Labels: merge(o.labels, labels(LabelModel, own, LabelPlace, place)),
		Nodes: t.node(dir, entry)}, true
}

func gpioAt(t *Tree, dir, entry string) (Device, bool) {
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Device{}, false
	}
	parent := filepath.Dir(at)
	place := filepath.Base(parent)
	return Device{Name: clean(place), Labels: labels(LabelBus, linked(parent, "subsystem"), LabelDriver, linked(parent, "driver"),
		LabelPlace, place), Nodes: t.node(dir, entry)}, true
}

// soundAt takes all nodes of a card, the one that controls it first.
func soundAt(t *Tree, dir, entry string) (Device, bool) {
	o, number := t.originOf(dir), strings.TrimPrefix(entry, "card")
	d := Device{Name: o.name, Labels: merge(o.labels, labels(LabelModel, read(dir, "id")))}
	mine := regexp.MustCompile(`^(control|pcm|hw|midi)C` + number + `(D[0-9]+[cp]?)?$`)
	list, _ := os.ReadDir(dir)
	for _, e := range list[:min(len(list), spec.MaxDevices)] {
		if mine.MatchString(e.Name()) {
			d.Nodes = append(d.Nodes, t.node(filepath.Join(dir, e.Name()), "snd/"+e.Name())...)
		}
	}
	return d, len(d.Nodes) > 0 && strings.HasPrefix(filepath.Base(d.Nodes[0]), "control")
}

// read gives a line of a directory of sysfs; empty: there is none.
func read(dir, name string) string {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	buf := make([]byte, 512)
	n, _ := f.Read(buf)
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	return strings.TrimSpace(line)
}

// linked gives the last part of where a link leads; empty: it is none.
func linked(dir, name string) string {
	to, err := os.Readlink(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}
