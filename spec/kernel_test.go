package spec

import (
	"strings"
	"testing"
)

func TestKernel(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		edit func(*Container)
		want string // "" for what is right
	}{
		"one limit":      {func(k *Container) { k.Ulimits = map[string]Ulimit{"nofile": {Hard: 4096}} }, ""},
		"two limits":     {func(k *Container) { k.Ulimits = map[string]Ulimit{"core": {Soft: number(0), Hard: -1}} }, ""},
		"none":           {func(k *Container) { k.Ulimits = map[string]Ulimit{"memlock": {Hard: -1}} }, ""},
		"soft above":     {func(k *Container) { k.Ulimits = map[string]Ulimit{"nofile": {Soft: number(9), Hard: 8}} }, "are no limits"},
		"soft is none":   {func(k *Container) { k.Ulimits = map[string]Ulimit{"nofile": {Soft: number(-1), Hard: 8}} }, "are no limits"},
		"below none":     {func(k *Container) { k.Ulimits = map[string]Ulimit{"nofile": {Hard: -2}} }, "are no limits"},
		"real time":      {func(k *Container) { k.Ulimits = map[string]Ulimit{"rtprio": {Hard: 99}} }, "does not set"},
		"unknown":        {func(k *Container) { k.Ulimits = map[string]Ulimit{"NOFILE": {Hard: 99}} }, "does not set"},
		"own network":    {func(k *Container) { k.Sysctls = map[string]string{"net.ipv4.tcp_rmem": "4096\t87380 6291456"} }, ""},
		"queues":         {func(k *Container) { k.Sysctls = map[string]string{"fs.mqueue.msg_max": "20"} }, ""},
		"the machine's":  {func(k *Container) { k.Sysctls = map[string]string{"vm.max_map_count": "262144"} }, "whole machine"},
		"a path":         {func(k *Container) { k.Sysctls = map[string]string{"net/core/somaxconn": "1"} }, "whole machine"},
		"upwards":        {func(k *Container) { k.Sysctls = map[string]string{"fs.mqueue.../../vm/panic": "1"} }, "whole machine"},
		"nothing below":  {func(k *Container) { k.Sysctls = map[string]string{"fs.mqueue.": "1"} }, "whole machine"},
		"a line":         {func(k *Container) { k.Sysctls = map[string]string{"kernel.sem": "1\n2"} }, "is not a value"},
		"an empty value": {func(k *Container) { k.Sysctls = map[string]string{"kernel.sem": ""} }, "is not a value"},
		"a long value": {func(k *Container) {
			k.Sysctls = map[string]string{"kernel.sem": strings.Repeat("1", 257)}
		}, "is not a value"},
	} {
		s := ServiceSpec{Name: "web", Container: Container{Image: "web:1"}}
		c.edit(&s.Container)
		a := Application{APIVersion: APIVersion, Kind: KindApplication, Metadata: Metadata{Name: "shop"},
			Spec: ApplicationSpec{Services: []ServiceSpec{s}}}
		if text := problemsOf(a.Validate()); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, expected %q", name, text, c.want)
		}
	}
	soft, hard := Ulimit{Hard: -1}.Limits()
	if soft != hard || hard != 1<<64-1 {
		t.Errorf("no limit is %d and %d", soft, hard)
	}
	if soft, hard = (Ulimit{Soft: number(0), Hard: 7}).Limits(); soft != 0 || hard != 7 {
		t.Errorf("0 and 7 became %d and %d", soft, hard)
	}
	s := ServiceSpec{Container: Container{Sysctls: map[string]string{"kernel.sem": "1"}}, Sidecars: []SideContainer{{Container: Container{
		Ulimits: map[string]Ulimit{"cpu": {Hard: 1}}}}}}
	if got := strings.Join(FeaturesOf(&s), " "); got != "sysctls ulimits" {
		t.Errorf("an agent must know %q", got)
	}
}
