package spec

import (
	"fmt"
	"strings"

	"skerry.dev/skerry"
)

// The most that a machine can be told.
const (
	userDataMax = 64 * skerry.KiB
	sshKeysMax  = 64
)

// machine checks what a machine is given that boots a disk.
func (c *checker) machine(p string, s *ServiceSpec) {
	m := s.Machine
	if m == nil {
		return
	}
	p += ".machine"
	if s.Runtime != RuntimeVM {
		c.add(p, "write runtime: vm, or leave it out", "it is for machines that boot a disk")
	}
	c.oneOf(p+".durability", m.Durability, "durable", DurabilityRelaxed)
	if m.Disk < 0 {
		c.add(p+".disk", "", "must be zero or more")
	}
	if len(m.UserData) > int(userDataMax) {
		c.add(p+".userData", "have the machine fetch it", "has more than %s", userDataMax)
	}
	if m.UserData != "" && !strings.HasPrefix(m.UserData, "#") && !strings.HasPrefix(m.UserData, "Content-Type:") && !strings.HasPrefix(m.UserData, "MIME-Version:") {
		c.add(p+".userData", "begin it with a line #cloud-config, or #!/bin/sh for a script", "cloud-init would not know what it is")
	}
	if len(m.SSHKeys) > sshKeysMax {
		c.add(p+".sshKeys", "", "has more than %d", sshKeysMax)
	}
	for i, k := range m.SSHKeys {
		if f := strings.Fields(k); len(f) < 2 || strings.ContainsAny(k, "\r\n") {
			c.add(fmt.Sprintf("%s.sshKeys[%d]", p, i), "give one line, as ssh-keygen writes into a file .pub", "it is no public key")
		}
	}
}
