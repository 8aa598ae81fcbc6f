package agent

import (
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

import ()

func parseLocation(s string) (*spec.Location, error) {
	if s == "" {
		return nil, nil
	}
	lat, lon, ok := strings.Cut(s, ",")
	a, err1 := strconv.ParseFloat(strings.TrimSpace(lat), 64)
	b, err2 := strconv.ParseFloat(strings.TrimSpace(lon), 64)
	if !ok || err1 != nil || err2 != nil || a < -90 || a > 90 || b < -180 || b > 180 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--location %q is not a location", s).
			WithHint("write latitude,longitude in degrees, such as 53.87,10.69")
	}
	return &spec.Location{Lat: a, Lon: b}, nil
}

// parsePower reads "IDLE,BUSY" in watts; empty: not known.
func parsePower(s string) (*wire.Power, error) {
	if s == "" {
		return nil, nil
	}
	idle, busy, ok := strings.Cut(s, ",")
	a, err1 := strconv.ParseFloat(strings.TrimSpace(idle), 64)
	b, err2 := strconv.ParseFloat(strings.TrimSpace(busy), 64)
	if !ok || err1 != nil || err2 != nil || !(a >= 0 && b >= a && b <= 1e6) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--power %q is not IDLE,BUSY",
			s).WithHint("write watts with nothing running and with all cores busy, such as 2.5,6.8")
	}
	return &wire.Power{Idle: a, Busy: b}, nil
}

// checkKeys accepts KEY and KEY=VALUE.
func checkKeys(flag string, list []string) error {
	for _, t := range list {
		if k, _, _ := strings.Cut(t, "="); k == "" || strings.ContainsAny(t, " \t") {
			return skerry.Errorf(skerry.CodeInvalid, "%s %q is not KEY or KEY=VALUE", flag, t)
		}
	}
	return nil
}

func parseLabels(list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--label %q is not KEY=VALUE", l)
		}
		m[k] = v
	}
	return m, nil
}
