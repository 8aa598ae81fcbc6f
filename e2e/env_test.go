//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestLateVariables has a container see, in its environment and its arguments, what is known only when it starts, and what a secret holds.
func TestLateVariables(t *testing.T) {
	log := &logged{}
	s := (&site{t: t, log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}).open()
	s.image("test/workload:1", workload)
	const first, second = "tern-over-the-skerry", "gull-over-the-skerry"
	put := func(value string) {
		t.Helper()
		if _, err := s.Root.Do(t.Context(), apps.PutSecret{Namespace: "default", Name: "db", Rotate: value == second, Actor: "test",
			Value: spec.SecretValue{"password": []byte(value), "binary": {'a', 0}}}); err != nil {
			t.Fatal(err)
		}
	}
	put(first)
	late := func(x *spec.ServiceSpec) {
		x.Args = []string{"sleep", "$(NODE)", "$$(NODE)", "$(HOSTNAME)", "$(PASSWORD)"}
		x.Secrets = []spec.SecretUse{{Name: "db"}}
		x.Env = map[string]string{"URL": "postgres://app:$(PASSWORD)@$(IP)/$(date)"}
		x.EnvFields = map[string]spec.EnvField{"ID": spec.FieldInstance, "NODE": spec.FieldWorker, "IP": spec.FieldAddress,
			"IPS": spec.FieldAddresses, "HOST_IP": spec.FieldHostAddress, "SPACE": spec.FieldNamespace, "N": spec.FieldOrdinal,
			"APP": spec.FieldApp, "SERVICE": spec.FieldService}
		x.EnvSecrets = map[string]spec.SecretFile{"PASSWORD": "db/password"}
		soft := int64(1024)
		x.Ulimits = map[string]spec.Ulimit{"core": {Soft: &soft, Hard: 4096}} // a program in Go raises that of nofile itself
		x.Sysctls = map[string]string{"net.core.somaxconn": "321", "kernel.shm_rmid_forced": "1"}
	}
	s.do(app("shop", service("web", "test/workload:1", late)))
	reads := func(password string) func() bool {
		return func() bool {
			list, err := s.Worker.Instances(context.Background())
			if err != nil || len(list) != 1 || list[0].Phase != skerry.PhaseRunning {
				return false
			}
			out, _ := s.byWorker(list[0].ID, "/program", "env")
			of := func(name string) string {
				for line := range strings.Lines(out) {
					if value, ok := strings.CutPrefix(line, name+"="); ok {
						return strings.TrimSpace(value)
					}
				}
				return ""
			}
			if of("PASSWORD") != password {
				return false
			}
			ip := list[0].Address
			for name, want := range map[string]string{"ID": string(list[0].ID), "NODE": "w1", "IP": ip, "HOST_IP": "127.0.0.1", "SPACE": "default",
				"N": "0", "APP": "shop", "SERVICE": "web", "URL": "postgres://app:" + password + "@" + ip + "/$(date)"} {
				if got := of(name); got != want {
					t.Errorf("%s is %q, expected %q", name, got, want)
				}
			}
			for file, want := range map[string]string{"/proc/1/limits": `Max core file size +1024 +4096 `,
				"/proc/sys/net/core/somaxconn": "^321$", "/proc/sys/kernel/shm_rmid_forced": "^1$"} {
				if got, _ := s.byWorker(list[0].ID, "/program", "read", file); !regexp.MustCompile(want).MatchString(got) {
					t.Errorf("%s has %q, and not %s", file, got, want)
				}
			}
			if ips := strings.Split(of("IPS"), ","); !slices.Contains(ips, ip) {
				t.Errorf("the addresses are %q, without %s", ips, ip)
			}
			want := strings.Join([]string{"/program", "sleep", "w1", "$(NODE)", "$(HOSTNAME)", password}, "\x00") + "\x00"
			if got, _ := s.byWorker(list[0].ID, "/program", "read", "/proc/1/cmdline"); got != strings.TrimSpace(want) {
				t.Errorf("the command line is %q, expected %q", got, want)
			}
			return true
		}
	}
	s.await("it reads the first password", reads(first))
	put(second)
	s.await("it was replaced and reads the second password", reads(second))
	told := fmt.Sprint(s.Root.Journal().List(0, nil))
	view, err := s.Root.App(t.Context(), skerry.AppKey{Namespace: "default", Name: "shop"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	told += fmt.Sprintf("%+v", view)
	for _, value := range []string{first, second} {
		if holds([]byte(told), value) || holds(log.text(), value) {
			t.Errorf("%q was told or logged", value)
		}
	}
	if !bytes.Contains(log.text(), []byte("web-")) {
		t.Error("nothing was logged")
	}

	// A file that the secret lacks, and a value that no variable can have.
	for file, want := range map[string]string{"other": "has no file other", "binary": "holds a zero byte"} {
		s.do(app("shop", service("web", "test/workload:1", func(x *spec.ServiceSpec) {
			x.Args, x.Secrets = []string{"sleep"}, []spec.SecretUse{{Name: "db"}}
			x.EnvSecrets = map[string]spec.SecretFile{"PASSWORD": spec.SecretFile("db/" + file)}
		})))
		s.await("it says what is wrong with "+file, func() bool {
			list, err := s.Root.Instances(context.Background())
			return err == nil && slices.ContainsFunc(list, func(i wire.Instance) bool { return strings.Contains(i.Reason+fmt.Sprint(i.Why), want) })
		})
	}
}
