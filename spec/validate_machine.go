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
func (c *checker) machine(path string, service *ServiceSpec) {
	want := service.Machine
	if want == nil {
		return
	}
	path += ".machine"
	if service.Runtime != RuntimeVM {
		c.add(path, "write runtime: vm, or leave it out", "it is for machines that boot a disk")
	}
	c.oneOf(path+".durability", want.Durability, "durable", DurabilityRelaxed)
	if want.Disk < 0 {
		c.add(path+".disk", "", "must be zero or more")
	}
	if len(want.UserData) > int(userDataMax) {
		c.add(path+".userData", "have the machine fetch it", "has more than %s", userDataMax)
	}
	if want.UserData != "" && !strings.HasPrefix(want.UserData, "#") && !strings.HasPrefix(want.UserData, "Content-Type:") &&
		!strings.HasPrefix(want.UserData, "MIME-Version:") {
		c.add(path+".userData", "begin it with a line #cloud-config, or #!/bin/sh for a script", "cloud-init would not know what it is")
	}
	if len(want.SSHKeys) > sshKeysMax {
		c.add(path+".sshKeys", "", "has more than %d", sshKeysMax)
	}
	for i, k := range want.SSHKeys {
		if f := strings.Fields(k); len(f) < 2 || strings.ContainsAny(k, "\r\n") {
			c.add(fmt.Sprintf("%s.sshKeys[%d]", path, i), "give one line, as ssh-keygen writes into a file .pub", "it is no public key")
		}
	}
}
