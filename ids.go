package skerry

import (
	"cmp"
	"fmt"
	"strings"
)

// InstanceID names one instance for its whole life, unique in the federation.
type InstanceID string

// MintedBy gives the letter of the tier that made an identifier, which is SERVICE-LETTER and a digest: r is the root, c a cluster, for an
// application of its own.
func (id InstanceID) MintedBy() string {
	digest := string(id[strings.LastIndexByte(string(id), '-')+1:])
	return digest[:min(len(digest), 1)]
}

// WorkerName names a worker within its site; ClusterName names a site within the federation.
type (
	WorkerName  string
	ClusterName string
)

// Generation counts changes of a desired thing; observed state repeats the generation it reflects. It starts at 1.
type Generation uint64

// Incarnation names one life of a parent's store. A restored backup or a take-over starts a new one.
type Incarnation string

// AppKey names an application.
type AppKey struct {
	Namespace string `json:"namespace" cbor:"1,keyasint"`
	Name      string `json:"name" cbor:"2,keyasint"`
}

// Compare orders by namespace, then by name.
func (k AppKey) Compare(o AppKey) int {
	return cmp.Or(strings.Compare(k.Namespace, o.Namespace), strings.Compare(k.Name, o.Name))
}

func (k AppKey) String() string { return k.Namespace + "/" + k.Name }

// ParseAppKey reads "namespace/name", or "name" in the namespace given.
func ParseAppKey(s, namespace string) (AppKey, error) {
	ns, name, ok := strings.Cut(s, "/")
	if !ok {
		ns, name = namespace, s
	}
	for _, p := range []string{ns, name} {
		if err := CheckName(p); err != nil {
			return AppKey{}, err
		}
	}
	return AppKey{ns, name}, nil
}

// ServiceKey names a service of an application.
type ServiceKey struct {
	App     AppKey `json:"app" cbor:"1,keyasint"`
	Service string `json:"service" cbor:"2,keyasint"`
}

// Compare orders by application, then by service.
func (k ServiceKey) Compare(o ServiceKey) int {
	return cmp.Or(k.App.Compare(o.App), strings.Compare(k.Service, o.Service))
}

func (k ServiceKey) String() string { return k.App.String() + "/" + k.Service }

// ParseServiceKey reads what ServiceKey.String writes.
func ParseServiceKey(s string) (ServiceKey, bool) {
	part := strings.Split(s, "/")
	if len(part) != 3 {
		return ServiceKey{}, false
	}
	for _, name := range part {
		if CheckName(name) != nil {
			return ServiceKey{}, false
		}
	}
	return ServiceKey{AppKey{part[0], part[1]}, part[2]}, true
}

// Fence orders placements of one instance: root epoch, then cluster term, then sequence. A higher token wins; the
// holder of a lower one must stop.
type Fence struct {
	RootEpoch   uint64 `json:"rootEpoch" cbor:"1,keyasint,omitempty"`
	ClusterTerm uint64 `json:"clusterTerm" cbor:"2,keyasint,omitempty"`
	Sequence    uint64 `json:"sequence" cbor:"3,keyasint,omitempty"`
}

// Compare gives -1, 0 or 1.
func (f Fence) Compare(g Fence) int {
	return cmp.Or(cmp.Compare(f.RootEpoch, g.RootEpoch), cmp.Compare(f.ClusterTerm, g.ClusterTerm), cmp.Compare(f.Sequence, g.Sequence))
}

func (f Fence) String() string {
	return fmt.Sprintf("%d.%d.%d", f.RootEpoch, f.ClusterTerm, f.Sequence)
}

// MaxNameLength is the length of a DNS label, because names become parts of addresses.
const MaxNameLength = 63

// CheckName accepts lower-case DNS labels: letters, digits and inner hyphens, at most 63, beginning with a letter.
func CheckName(s string) error {
	if s == "" {
		return fmt.Errorf("a name is missing")
	}
	if len(s) > MaxNameLength {
		return fmt.Errorf("name %q has %d characters; at most %d are allowed", s[:16]+"...", len(s), MaxNameLength)
	}
	for i, r := range s {
		switch {
		case r >= 'a' && r <= 'z':
		case i > 0 && (r >= '0' && r <= '9' || r == '-' && i < len(s)-1):
		default:
			return fmt.Errorf("name %q is not valid; use lower-case letters, digits and inner hyphens, beginning with a letter", s)
		}
	}
	return nil
}
