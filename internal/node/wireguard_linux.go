package node

import (
	"errors"
	"path/filepath"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/wireguard"
)

// WireGuard says whether a worker uses the kernel's WireGuard. The empty one is auto.
type WireGuard string

// Whether it is used.
const (
	WireGuardAuto WireGuard = "auto" // where the kernel has it
	WireGuardOff  WireGuard = "off"
)

// CheckWireGuard reports whether there is such a choice.
func CheckWireGuard(w WireGuard) error {
	switch w {
	case "", WireGuardAuto, WireGuardOff:
		return nil
	}
	return skerry.Errorf(skerry.CodeInvalid, "--wireguard %q is not known", string(w)).WithHint("it is auto or off")
}

// openWireGuard opens the worker's WireGuard device, or says why there is none; one of an earlier agent is then taken away.
func openWireGuard(conf *WorkerConfig, name string, path Dataplane) (l *wireguard.Link, why string, err error) {
	if err := CheckWireGuard(conf.WireGuard); err != nil {
		return nil, "", err
	}
	switch {
	case conf.WireGuard == WireGuardOff:
		return nil, "it is switched off", wireguard.Remove(name)
	case path != DataplaneEBPF:
		return nil, "it requires the eBPF data plane", wireguard.Remove(name)
	}
	o := wireguard.Options{Worker: name, Port: conf.WGPort, Log: conf.Log}
	key, err := secret(filepath.Join(conf.Dir, "wireguard.key"))
	if err != nil {
		return nil, "", err
	}
	o.Key = key
	l, err = wireguard.New(o)
	if u, ok := errors.AsType[*wireguard.Unsupported](err); ok {
		conf.Log.Info("paths to other workers are encrypted by the datapath only", "reason", u.Reason, "hint", u.Cure)
		return nil, u.Error(), nil
	}
	return l, "", err
}
