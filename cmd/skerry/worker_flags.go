package main

import (
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
)

// workerFlags are those of a worker, on every system, so that help is the same everywhere.
type workerFlags struct {
	common         commonFlags
	join           joinFlags
	labels         []string
	area, location string
	capacity       skerry.Resources
	address        string
	subnet         string
	noNetwork      bool
	runDir, cgroup string
	pull, minFree  skerry.Bytes
	http           string
}

func (w *workerFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&w.http, "http", workerHTTP, "address for /metrics, /healthz and /readyz; empty for none")
	w.addMachine(fs)
}

func (w *workerFlags) addMachine(fs *pflag.FlagSet) {
	fs.StringSliceVar(&w.labels, "label", nil, "label of the worker, KEY=VALUE; may be repeated")
	fs.StringVar(&w.area, "area", "", "area in which the worker is")
	fs.StringVar(&w.location, "location", "", "where the worker is: latitude,longitude in degrees")
	fs.Var(cpuFlag(&w.capacity.CPU), "cpu", "cores that instances may use (default the machine's)")
	fs.Var(bytesFlag(&w.capacity.Memory), "memory", "memory that instances may use (default the machine's, less a share for itself)")
	fs.Var(bytesFlag(&w.capacity.Storage), "storage", "storage that instances may use (default what is free)")
	fs.StringVar(&w.address, "address", "", "address at which other machines reach host ports (default found out)")
	fs.StringVar(&w.subnet, "subnet", "", "IPv4 subnet of the instances, such as 10.31.5.0/24 (default one that is free)")
	fs.BoolVar(&w.noNetwork, "no-network", false, "give instances no network of their own")
	fs.StringVar(&w.runDir, "run-dir", "", "directory for what ends with the machine's uptime (default /run/skerry/NAME)")
	fs.StringVar(&w.cgroup, "cgroup-parent", "", "cgroup below which instances run (default skerry/NAME)")
	fs.Var(bytesFlag(&w.pull), "pull-limit", "bytes per second for pulling images (default no limit)")
	fs.Var(bytesFlag(&w.minFree), "min-free", "free space below which the worker takes nothing new (default 64Mi)")
}
