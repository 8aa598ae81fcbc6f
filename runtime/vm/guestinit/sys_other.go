//go:build linux && !amd64

package main

const sysFinitModule = 273
