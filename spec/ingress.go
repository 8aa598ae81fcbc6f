package spec

import (
	"strconv"
	"strings"
)

// MaxCertificate is the most bytes of a certificate with its chain and its key.
const MaxCertificate = 32 << 10

// Entry names what clients come to: the port of the workers, the host and the path. At one site each leads to one service.
func (g Ingress) Entry() string {
	return strconv.Itoa(g.Listen) + " " + g.Host + strings.TrimSuffix(g.Path, "/")
}
