package kernel

import (
	"fmt"
	"hash/fnv"
)

// DevicePrefix begins the names of all network devices of a worker. 13 more bits than "sk" and a digit fit; 24 are enough for the workers
// of one kernel.
func DevicePrefix(worker string) string {
	h := fnv.New32a()
	h.Write([]byte(worker))
	return fmt.Sprintf("sk%06x", h.Sum32()&0xffffff)
}
