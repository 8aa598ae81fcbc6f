package convert

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNomad converts jobs of Nomad. Each directory has one, and in want the manifest and the report.
func TestNomad(t *testing.T) {
	files, err := filepath.Glob("testdata/nomad/*/job.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no files: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("read the job: %v", err)
		}
		if format := Detect(data); format != FormatNomad {
			t.Errorf("%s is taken for %q", file, format)
		}
		result, err := Nomad(data, Options{})
		golden(t, filepath.Join(filepath.Dir(file), "want"), result, err)
	}
}

// nomadFields are the fields of each block, as Nomad's reference of jobs has them; a name with {} is of a block.
var nomadFields = map[string]string{
	"job": "affinity{} all_at_once constraint{} datacenters group{} id meta{} migrate{} name namespace node_pool parameterized{} periodic{} " +
		"priority region reschedule{} spread{} type update{} vault{} ui{} other",
	"update": "max_parallel health_check min_healthy_time healthy_deadline progress_deadline auto_revert auto_promote canary stagger other",
	"group": "affinity{} constraint{} consul{} count disconnect{} ephemeral_disk{} meta{} migrate{} network{} reschedule{} restart{} " +
		"scaling{} service{} shutdown_delay spread{} task{} update{} vault{} volume{} stop_after_client_disconnect max_client_disconnect other",
	"network":        "mode hostname mbits dns{} cni{} port{} other",
	"port":           "static to host_network other",
	"restart":        "attempts interval delay mode render_templates other",
	"ephemeral_disk": "migrate size sticky other",
	"volume":         "type source read_only access_mode attachment_mode per_alloc sticky mount_options{} other",
	"service": "provider name port tags canary_tags enable_tag_override address address_mode meta{} tagged_addresses{} check{} " +
		"check_restart{} connect{} identity{} task on_update kind weights{} other",
	"check": "address_mode args check_restart{} command expose grpc_service grpc_use_tls header{} interval method body name on_update " +
		"path port protocol task timeout type tls_server_name tls_skip_verify failures_before_critical success_before_passing other",
	"task": "affinity{} artifact{} config{} constraint{} csi_plugin{} dispatch_payload{} driver env{} identity{} kill_signal kill_timeout " +
		"leader lifecycle{} logs{} meta{} resources{} restart{} schedule{} service{} shutdown_delay template{} user vault{} volume_mount{} other",
	"config": "image args auth{} auth_soft_fail cap_add cap_drop cgroupns command container_exists_attempts cpu_cfs_period cpu_hard_limit " +
		"cpuset_cpus devices dns_options dns_search_domains dns_servers entrypoint extra_hosts force_pull group_add healthchecks{} hostname " +
		"image_pull_timeout init interactive ipc_mode ipv4_address ipv6_address isolation labels load logging{} mac_address memory_hard_limit " +
		"mount{} mounts network_aliases network_mode oom_score_adj pid_mode pids_limit ports privileged readonly_rootfs runtime security_opt " +
		"shm_size storage_opt sysctl tty ulimit userns_mode uts_mode volume_driver volumes work_dir other",
	"resources": "cpu cores memory memory_max numa{} device{} network{} secrets other",
	"template": "change_mode change_script{} change_signal data destination env error_on_missing_key left_delimiter once perms " +
		"right_delimiter source splay uid gid vault_grace wait{} other",
	"volume_mount": "volume destination read_only propagation_mode selinux_label other",
	"lifecycle":    "hook sidecar other",
	"logs":         "max_files max_file_size disabled enabled destination other",
	"periodic":     "cron crons enabled prohibit_overlap time_zone other",
	"constraint":   "attribute operator value other",
}

// TestNoNomadFieldIsIgnored sets one field after the other: each changes the manifest or the report.
func TestNoNomadFieldIsIgnored(t *testing.T) {
	base := map[string]string{
		"job": "", "update": "", "group": "", "network": "", "port": "to = 80", "restart": "", "ephemeral_disk": "", "volume": `type = "host"`,
		"service": `port = "http"`, "check": `type = "http"`, "task": "", "config": `image = "x"`, "resources": "", "template": `data = "x"`,
		"volume_mount": `volume = "data"`, "lifecycle": "", "logs": "", "periodic": `cron = "@daily"`, "constraint": "",
	}
	file := func(set map[string]string) string {
		fields := maps.Clone(base)
		for block, line := range set {
			fields[block] += "\n" + line
		}
		optional := func(block string) string {
			if set[block] == "" && !slices.Contains([]string{"network", "service", "volume"}, block) {
				return ""
			}
			return block + " {\n" + fields[block] + "\n}\n"
		}
		driver := "driver = \"docker\"\n"
		if strings.HasPrefix(set["task"], "driver") {
			driver = ""
		}
		return fmt.Sprintf("job \"it\" {\n%s\n%s%s%sgroup \"g\" {\n%s\nnetwork {\n%s\nport \"http\" {\n%s\n}\n}\n%s%svolume \"data\" {\n%s\n}\n"+
			"service {\n%s\ncheck {\n%s\n}\n}\ntask \"side\" {\ndriver = \"docker\"\nconfig { image = \"s\" }\n%s}\n"+
			"task \"t\" {\n%s\nleader = true\n%s"+
			"config {\n%s\n}\nresources {\n%s\n}\ntemplate {\n%s\n}\nvolume_mount {\n%s\n}\n%s}\n}\n}\n",
			fields["job"], optional("update"), optional("periodic"), optional("constraint"), fields["group"], fields["network"], fields["port"],
			optional("restart"), optional("ephemeral_disk"), fields["volume"], fields["service"], fields["check"], optional("lifecycle"),
			fields["task"], driver, fields["config"], fields["resources"], fields["template"], fields["volume_mount"], optional("logs"))
	}
	outcome := func(text string) string {
		result, err := Nomad([]byte(text), Options{})
		if result == nil {
			return err.Error()
		}
		manifest, err := result.Manifest()
		if err != nil {
			t.Fatalf("write the manifest: %v", err)
		}
		var out strings.Builder
		out.Write(manifest)
		for _, field := range result.Fields {
			fmt.Fprintln(&out, field.Path, field.Verdict, field.Note)
		}
		return out.String()
	}
	without := outcome(file(nil))
	for block, names := range nomadFields {
		for name := range strings.FieldsSeq(names) {
			if block == "task" && name == "leader" {
				continue // it chooses the main container, and is in the base
			}
			line := name + " = 7"
			if inner, is := strings.CutSuffix(name, "{}"); is {
				line = inner + " \"l\" {\nother = 7\n}"
			}
			if got := outcome(file(map[string]string{block: line})); got == without {
				t.Errorf("nothing is said of %s in %s", name, block)
			}
		}
	}
}

// What cannot be read is refused with its place.
func TestBadNomad(t *testing.T) {
	for text, want := range map[string]string{
		"job \"a\" {":                       "line 1, column 10: a } is missing",
		"job \"a\" {\n} }":                  "line 2, column 3: there is no { for this }",
		"job \"a\" {\n  type = var.x\n}":    "line 2, column 10: a value is needed: variables, functions",
		"job \"a\" {\n  type = \"x\n}":      "line 2, column 10: a text does not end on its line",
		"job \"a\" {\n  type = 1\n type=2}": "type is there already",
		"job \"a\" {\n type = <<X\nabc\n}":  "a line with X alone is missing",
		"job \"a\" {}\njob \"b\" {}":        "the file has 2 jobs",
		"{}":                                "a name is needed",
		"job \"a\" {\n x = \"\\q\"}":        `\q is not known`,
		strings.Repeat("a {", 1000):         "more than 100 blocks are in each other",
		"a = " + strings.Repeat("[", 1000):  "more than 100 values are in each other",
		"job \"a\" {}":                      "no service that Skerry could run",
	} {
		if _, err := Nomad([]byte(text), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v does not say %q", text, err, want)
		}
	}
}

// FuzzNomad holds that no file ends the program, and that what is converted without a refusal is a manifest.
func FuzzNomad(f *testing.F) {
	addFiles(f, "testdata/nomad/*/job.hcl")
	f.Add([]byte("job \"a\" { x = <<-A\n  b\nA\n y = [1, {a: -2e3}, null] /* c */ // d\n}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		if result, err := Nomad(data, Options{}); err == nil {
			if _, err := result.Manifest(); err != nil {
				t.Errorf("write the manifest: %v", err)
			}
		}
	})
}

// The containers of an instance have one name; a second one is refused, as is what is none.
func TestNomadHostname(t *testing.T) {
	for name, c := range map[string]struct{ network, task, want, refused string }{
		"of the network": {network: "www", want: "www"},
		"of a task":      {task: "WWW.example", want: "www.example"},
		"twice the same": {network: "www", task: "www", want: "www"},
		"two":            {network: "www", task: "api", want: "www", refused: "one name"},
		"no name":        {task: "a_b", refused: "is not a host name"},
		"a variable":     {task: "${attr.unique.hostname}", refused: "is not known before it runs"},
	} {
		file := fmt.Sprintf("job \"it\" {\ngroup \"g\" {\nnetwork {\nhostname = %q\n}\ntask \"t\" {\ndriver = \"docker\"\n"+
			"config {\nimage = \"x\"\nhostname = %q\n}\n}\n}\n}\n", c.network, c.task)
		result, err := Nomad([]byte(file), Options{})
		if result == nil {
			t.Fatalf("%s: %v", name, err)
		}
		refused := ""
		for _, f := range result.Fields {
			if f.Verdict == Refused {
				refused += f.Note
			}
		}
		if got := result.App.Spec.Services[0].Hostname; c.refused == "" && got != c.want || !strings.Contains(refused, c.refused) ||
			c.refused == "" && refused != "" {
			t.Errorf("%s: the name is %q, and refused is %q; expected %q and %q", name, got, refused, c.want, c.refused)
		}
	}
}
