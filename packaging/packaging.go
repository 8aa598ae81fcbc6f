// Package packaging has the systemd units of Skerry's roles, as packages and `make install` bring them.
package packaging

import "embed"

// Units are the files of the directory systemd. Their programs are in /usr/local/bin.
//
//go:embed systemd
var Units embed.FS
