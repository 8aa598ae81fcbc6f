//go:build linux

package vm

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// seed is what the system on a disk is told of the instance that it is: a disc labelled CIDATA, as cloud-init's data source NoCloud
// reads it. It is in memory alone, for there may be secrets on it.
type seed struct {
	InstanceID string
	Hostname   string
	UserData   string   `json:",omitempty"`
	SSHKeys    []string `json:",omitempty"`
	Env        []string `json:",omitempty"`
	Search     []string `json:",omitempty"`
	// Files are to be written to the disk.
	Files []seedFile `json:",omitempty"`
}

// seedFile is a file of the host and where it is to be in the machine.
type seedFile struct{ Source, Target string }

const (
	// seedFiles bounds what all files of a seed may have.
	seedFiles = 1 << 20
	// environmentFile is where the machine finds its environment, as systemd's EnvironmentFile= takes it.
	environmentFile = "/etc/skerry/environment"
	seedLabel       = "cidata"
)

// file gives the disc as a file in memory.
func (s *seed) file(n *nic, dns []string) (*os.File, error) {
	files, err := s.files(n, dns)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("seed", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "seed")
	defer f.Close()
	if _, err := f.Write(isoImage(seedLabel, files)); err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)) // for reading alone
}

// files are those of the disc. What is YAML there is written as JSON, which is YAML, too.
func (s *seed) files(n *nic, dns []string) ([]isoFile, error) {
	env := map[string]string{}
	for _, e := range s.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	meta := map[string]any{"instance-id": s.InstanceID, "local-hostname": s.Hostname, "environment": env}
	if len(s.SSHKeys) > 0 {
		meta["public-keys"] = s.SSHKeys
	}
	user := s.UserData
	if user == "" {
		user = "#cloud-config\n{}\n"
	}
	vendor, err := s.vendorData()
	if err != nil {
		return nil, err
	}
	var out []isoFile
	for name, v := range map[string]any{"meta-data": meta, "network-config": networkConfig(n, dns, s.Search)} {
		data, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		out = append(out, isoFile{name, append(data, '\n')})
	}
	return append(out, isoFile{"user-data", []byte(user)}, isoFile{"vendor-data", vendor}), nil
}

// vendorData is a program that writes the environment and the files, early and at each start. It stands beside whatever the user's
// data says, where lists of files would replace each other.
func (s *seed) vendorData() ([]byte, error) {
	var b strings.Builder
	b.WriteString("#cloud-boothook\n#!/bin/sh\nset -eu\numask 077\n")
	put := func(target string, data []byte, mode os.FileMode) {
		fmt.Fprintf(&b, "mkdir -p %s\nbase64 -d > %s <<'.'\n%s\n.\nchmod %o %s\n", quoted(path.Dir(target)), quoted(target),
			lines(base64.StdEncoding.EncodeToString(data)), mode, quoted(target))
	}
	var env strings.Builder
	for _, e := range s.Env {
		name, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(&env, "%s=%s\n", name, quoted(value))
	}
	put(environmentFile, []byte(env.String()), 0o600)
	total := 0
	for _, f := range s.Files {
		data, err := os.ReadFile(f.Source)
		if err != nil {
			return nil, err
		}
		if total += len(data); total > seedFiles {
			return nil, fmt.Errorf("mounts: the files for the machine have more than %d bytes together", seedFiles)
		}
		st, err := os.Stat(f.Source)
		if err != nil {
			return nil, err
		}
		put(f.Target, data, st.Mode().Perm())
	}
	return []byte(b.String()), nil
}

// quoted is a word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// lines divides what has no spaces into lines.
func lines(s string) string {
	const width = 76
	var b strings.Builder
	for len(s) > width {
		b.WriteString(s[:width] + "\n")
		s = s[width:]
	}
	return b.String() + s
}

// networkConfig is that of cloud-init's version 2 for the only card.
func networkConfig(n *nic, dns, search []string) map[string]any {
	cards := map[string]any{}
	if n != nil {
		addresses, routes := []string{}, []map[string]any{}
		for _, a := range n.Addresses {
			addresses = append(addresses, a.String())
		}
		for _, r := range n.Routes {
			if r.Via != "" {
				route := map[string]any{"to": r.To, "via": r.Via}
				if r.OnLink { // systems refuse a gateway that no address leads to
					route["on-link"] = true
				}
				routes = append(routes, route)
			}
		}
		cards["instance"] = map[string]any{
			"match": map[string]any{"macaddress": n.MAC.String()}, "mtu": n.MTU, "dhcp4": false, "dhcp6": false, "accept-ra": false,
			"addresses": addresses, "routes": routes, "nameservers": map[string]any{"addresses": append([]string{}, dns...),
				"search": append([]string{}, search...)},
		}
	}
	return map[string]any{"version": 2, "ethernets": cards}
}
