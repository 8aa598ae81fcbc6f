package convert

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

var update = flag.Bool("update", false, "write the golden files")

// TestCompose converts Compose files. Each has a directory with compose.yaml, what it refers to, and want: the manifest and the report.
func TestCompose(t *testing.T) {
	t.Setenv("HOME", "/root")
	dirs, err := filepath.Glob("testdata/compose/*")
	if err != nil || len(dirs) == 0 {
		t.Fatal("no files", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			abs, err := filepath.Abs(dir)
			if err != nil {
				t.Fatal(err)
			}
			if f := Detect(data); f != FormatCompose {
				t.Errorf("it is taken for %q", f)
			}
			var got bytes.Buffer
			r, err := Compose(t.Context(), data, Options{Dir: abs})
			if r != nil {
				text, badErr := r.Manifest()
				if badErr != nil {
					t.Fatal(badErr)
				}
				got.Write(text)
				for _, f := range r.Fields {
					fmt.Fprintf(&got, "# line %d, %s %s: %s\n", f.Line, f.Verdict, f.Path, f.Note)
				}
			}
			if err != nil {
				fmt.Fprintf(&got, "# error: %v\n", err)
			}
			text := bytes.ReplaceAll(got.Bytes(), []byte(abs), []byte("DIR"))
			file := filepath.Join(dir, "want")
			if *update {
				if err := os.WriteFile(file, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || !bytes.Equal(text, want) {
				t.Errorf("it became (-update writes it):\n%s%v", text, err)
			}
		})
	}
}

// Every field of the format is kept, approximated or refused: of a file that has them all, each has a verdict.
func TestNothingIsIgnored(t *testing.T) {
	const file = `
name: all
services:
  web:
    image: web
    restart: always
    %s
  other: {image: other, restart: always}
volumes: {data: {}}
configs: {c: {content: x}}
secrets: {s: {environment: HOME}}
`
	for _, line := range []string{
		"annotations: {a: b}", "attach: false", "blkio_config: {weight: 300}",
		"build: .", "cap_add: [NET_ADMIN]", "cap_drop: [ALL]", "cgroup: host",
		"cgroup_parent: x", "command: [x]", "configs: [c]", "container_name: xyz",
		"cpu_count: 2", "cpu_percent: 50", "cpu_period: 100000", "cpu_quota: 50000",
		"cpu_rt_period: 100000", "cpu_rt_runtime: 100000", "cpu_shares: 100",
		"cpus: 1.5", "cpuset: 0-1", "credential_spec: {config: c}",
		"depends_on: [other]", "deploy: {replicas: 2}",
		"deploy: {mode: global}", "deploy: {endpoint_mode: dnsrr}", "deploy: {labels: {a: b}}",
		"deploy: {placement: {max_replicas_per_node: 2}}",
		"deploy: {restart_policy: {condition: any}}", "device_cgroup_rules: ['c 1:3 mr']",
		"devices: ['/dev/ttyUSB0:/dev/ttyUSB0']", "dns: 8.8.8.8", "dns_opt: [x]",
		"dns_search: x.org", "domainname: x.org", "entrypoint: [x]",
		"environment: {A: b}", "expose: ['80']", "external_links: [x]", "extra_hosts: ['a:1.2.3.4']", "gpus: all", "group_add: [audio]",
		"healthcheck: {test: x}", "hostname: x", "init: true", "ipc: host", "isolation: default", "labels: {a: b}", "links: [other]",
		"logging: {driver: syslog}", "mac_address: 02:42:ac:11:65:43", "mem_limit: 1g",
		"mem_reservation: 1g", "mem_swappiness: 5", "memswap_limit: 2g",
		"network_mode: host", "oom_kill_disable: true", "oom_score_adj: 5", "pid: host", "pids_limit: 10", "platform: linux/arm64",
		"platform: windows/amd64",
		"ports: ['80:80']", "privileged: true", "pull_policy: always", "read_only: true", "runtime: runc", "scale: 2", "secrets: [s]",
		"security_opt: ['label:disable']", "shm_size: 1g", "stdin_open: true",
		"stop_grace_period: 5s", "stop_signal: SIGINT", "storage_opt: {size: 1G}",
		"sysctls: {net.core.somaxconn: 1024}", "tmpfs: /run", "tty: true",
		"ulimits: {nofile: 100}", "user: '1'", "userns_mode: host", "uts: host",
		"volumes: ['data:/data']", "volumes_from: [other]", "working_dir: /x", "post_start: [{command: x}]", "pre_stop: [{command: x}]",
		"develop: {watch: [{path: ., action: sync, target: /x}]}", "x-mine: 1",
	} {
		data := fmt.Appendf(nil, file, line)
		r, err := Compose(t.Context(), data, Options{})
		if r == nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		key, _, _ := strings.Cut(line, ":")
		if !slices.ContainsFunc(r.Fields, func(f Field) bool {
			return strings.HasPrefix(f.Path, "services.web."+key) && (f.Note != "" || f.Verdict == Kept)
		}) && key != "x-mine" {
			t.Errorf("%s has no verdict: %v", line, r.Fields)
		}
	}
}

// Each port is published, however their numbers look side by side, and the options of a file system in memory are not lost.
func TestPortsAndMemory(t *testing.T) {
	const file = "services: {web: {image: x, restart: always, ports: ['8080:80', '80:8080', '80'], expose: ['80']," +
		" tmpfs: '/run:size=1m,mode=1777'}}"
	r, err := Compose(t.Context(), []byte(file), Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := r.App.Spec.Services[0]
	want := []spec.Port{{Port: 80, HostPort: 8080}, {Port: 8080, HostPort: 80}, {Name: "tcp-80-2", Port: 80, HostPort: -1}}
	if !slices.Equal(web.Ports, want) {
		t.Errorf("the ports are %+v, expected %+v", web.Ports, want)
	}
	if size := web.Volumes[0].Empty.Size; size != skerry.MiB || r.Count(Approximated) != 1 {
		t.Errorf("its memory is %s, and the report says %+v", size, r.Fields)
	}
}

// What a stranger's file names elsewhere on this machine does not come along: neither by its path, nor by a link, nor as variables.
func TestFilesElsewhereStay(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(elsewhere, []byte("PRIVATE=key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"volumes: ['" + elsewhere + ":/key:ro']", "volumes: ['./link:/key:ro']", "env_file: '" + elsewhere + "'",
		"configs: [c]"} {
		file := fmt.Appendf(nil, "services: {web: {image: x, restart: always, %s}}\nconfigs: {c: {file: %q}}\n", field, elsewhere)
		for _, at := range []string{dir, ""} {
			r, err := Compose(t.Context(), file, Options{Dir: at})
			if at == "" && err != nil {
				continue // a path beside it leads nowhere
			}
			if r == nil || r.Count(Refused) != 1 || len(r.App.Spec.Services[0].Config) > 0 {
				t.Errorf("%s, read in %q: %v, %+v", field, at, err, r)
			}
		}
	}
}

func TestBadFiles(t *testing.T) {
	for name, text := range map[string]string{
		"unknown field":   "services: {web: {image: x, imagee: y}}",
		"no YAML":         "services: {web: [",
		"cycle":           "services: {a: {image: x, depends_on: [b]}, b: {image: x, depends_on: [a]}}",
		"unknown service": "services: {a: {image: x, depends_on: [b]}}",
		"nothing":         "services: {}",
		"other type":      "services: {a: {image: [1]}}",
		"missing value":   "services: {a: {image: 'x:${TAG_THAT_NOBODY_SETS:?write one}'}}",
		"bomb": "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n" +
			"g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\nservices: {a: {image: x, command: *g}}",
	} {
		if _, err := Compose(t.Context(), []byte(text), Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	const file = "services:\n  my.web:\n    image: x\n    ports:\n    - '80'\n    - {target: 81, publishd: '8'}\n"
	_, err := Compose(t.Context(), []byte(file), Options{})
	want := "line 6, column 20: services.my.web.ports.1.publishd is no field of Compose"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}

func TestDetect(t *testing.T) {
	for text, want := range map[string]Format{
		"services: {a: {}}":                        FormatCompose,
		"version: '3'\nservices: {a: {}}":          FormatCompose,
		"services: [a]":                            FormatUnknown,
		"apiVersion: skerry/v1\nkind: Application": FormatSkerry,
		"apiVersion: apps/v1\nkind: Deployment":    FormatKubernetes,
		`{"apiVersion":"v1","kind":"List"}`:        FormatKubernetes,
		"[]":                                       FormatUnknown,
		"a: [":                                     FormatUnknown,
		"":                                         FormatUnknown,
		"kind: Application\nmetadata: {name: hello}": FormatUnknown,
	} {
		if got := Detect([]byte(text)); got != want {
			t.Errorf("%q is taken for %q, expected %q", text, got, want)
		}
	}
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"web": "web", "My_App": "my-app", "a--b": "a-b",
		"_x_": "x", "9lives": "x9lives", "": "", "ä": "", strings.Repeat("a", 70): strings.Repeat("a", 63),
	} {
		if got := Name(in); got != want {
			t.Errorf("%q became %q, expected %q", in, got, want)
		}
	}
}

// addFiles has a fuzz target begin with files.
func addFiles(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("there is no %s: %v", pattern, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzCompose holds that no file ends the program, and that what is converted without a refusal is a manifest.
func FuzzCompose(f *testing.F) {
	addFiles(f, "testdata/compose/*/compose.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		reads := slices.ContainsFunc([]string{"include", "extends", "file"}, func(s string) bool { return bytes.Contains(data, []byte(s)) })
		if len(data) > 1<<16 || reads {
			return
		}
		Detect(data)
		if r, err := Compose(t.Context(), data, Options{}); err == nil {
			if _, err := r.Manifest(); err != nil {
				t.Error(err)
			}
		}
	})
}
