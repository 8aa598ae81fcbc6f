package agent

import (
	"io"
	"strings"
	"testing"

	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/wire"
)

// A flag that is not given comes from the environment.
func TestFlagsFromEnvironment(t *testing.T) {
	t.Setenv("SKERRY_LOG_LEVEL", "debug")
	t.Setenv("SKERRY_LABEL", "a=1,b=2")
	t.Setenv("SKERRY_MEMORY", "64Mi")
	t.Setenv("SKERRY_AREA", "east")
	cmd := Command(Program{})
	cmd.SetOut(io.Discard)
	if err := cmd.ParseFlags([]string{"--area", "west"}); err != nil {
		t.Fatal(err)
	}
	if err := role.FromEnv(cmd); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"log-level": "debug", "label": "[a=1,b=2]", "memory": "64Mi", "area": "west"} {
		if got := cmd.Flag(name).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", name, got, want)
		}
	}
	t.Setenv("SKERRY_CPU", "many")
	if err := role.FromEnv(cmd); err == nil || !strings.Contains(err.Error(), "SKERRY_CPU") {
		t.Errorf("got %v", err)
	}
}

func TestParseLocation(t *testing.T) {
	for in, want := range map[string]wire.Power{"2.5, 6": {Idle: 2.5, Busy: 6}, "0,0": {}} {
		if p, err := parsePower(in); err != nil || *p != want {
			t.Errorf("--power %s: %+v, %v", in, p, err)
		}
	}
	for _, in := range []string{"3", "6,2", "-1,5", "NaN,5", "1,Inf", "a,b"} {
		if _, err := parsePower(in); err == nil {
			t.Errorf("--power %s is accepted", in)
		}
	}
	if err := checkKeys("--taint", []string{"=x"}); err == nil {
		t.Error("a taint without a key is accepted")
	}
	if l, err := parseLocation("53.87, 10.69"); err != nil || l.Lat != 53.87 || l.Lon != 10.69 {
		t.Errorf("%v %v", l, err)
	}
	for _, s := range []string{"1", "91,0", "0,181", "x,y"} {
		if _, err := parseLocation(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}
