package convert

import (
	"fmt"
	"strings"
	"testing"
)

// What becomes of services that are made one is said of each of their fields, and what cannot be right is refused.
func TestServicesMadeOne(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		want []string // notes, or lines of the manifest
		not  string
	}{
		"what a sidecar has not": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"]}
  log: {image: log, restart: on-failure, deploy: {update_config: {parallelism: 2}}, volumes: ["vol:/v"]}`,
			[]string{"services.log.restart approximated left out: a sidecar that ends is started again, whatever its status",
				"services.log.deploy.update_config approximated left out: it is updated with web"}, ""},
		"a name of both": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], networks: {default: {aliases: [door]}}}
  log: {image: log, restart: always, volumes: ["vol:/v"], networks: {default: {aliases: [door]}}}`,
			[]string{"aliases: - door - log"}, ""},
		"the stronger condition": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], depends_on: [db]}
  log: {image: log, restart: always, volumes: ["vol:/v"], depends_on: {db: {condition: service_healthy}}}
  db: {image: db, restart: always, healthcheck: {test: [CMD, x]}}`,
			[]string{"startAfter: - service: db condition: ready"}, "condition: running"},
		"the other way in": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], networks: [inner]}
  log: {image: log, restart: always, volumes: ["vol:/v"], networks: [outer]}
networks: {inner: {internal: true}, outer: {}}`,
			[]string{"services.web.networks approximated what is outside is reached: log, beside it, does"}, "egress"},
		"a way out": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], networks: [outer]}
  log: {image: log, restart: always, volumes: ["vol:/v"], networks: [inner]}
networks: {inner: {internal: true}, outer: {}}`,
			[]string{"services.log.networks approximated what is outside is reached: web, beside it, does"}, ""},
		"their secrets": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"]}
  log: {image: log, restart: always, volumes: ["vol:/v"], secrets: [s]}
secrets: {s: {environment: HOME}}`,
			[]string{"services.log.secrets approximated the container web has them, too"}, ""},
		"the order between them": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], depends_on: {log: {condition: service_healthy}}}
  log: {image: log, restart: always, volumes: ["vol:/v"], healthcheck: {test: [CMD, x]}}
  tail: {image: tail, restart: always, volumes: ["vol:/v"], depends_on: [web]}`,
			[]string{"services.web.depends_on.log approximated it starts before, as a sidecar, and its check is not waited for",
				"services.tail.depends_on.web approximated left out: the containers of an instance start together"}, ""},
		"a job that needs one of them": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], depends_on: {load: {condition: service_completed_successfully}}}
  db: {image: db, restart: always, volumes: ["vol:/v"]}
  load: {image: load, restart: "no", volumes: ["vol:/v"], depends_on: [db]}`,
			[]string{"refused it is shared by db and load and web"}, ""},
		"a job that needs a later one": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], depends_on: {a: {condition: service_completed_successfully}}}
  a: {image: a, restart: "no", volumes: ["vol:/v"], depends_on: {b: {condition: service_completed_successfully}}}
  b: {image: b, restart: "no", volumes: ["vol:/v"]}`,
			[]string{"refused it is shared by a and b and web"}, ""},
		"jobs in order": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], depends_on: {
    a: {condition: service_completed_successfully}, b: {condition: service_completed_successfully}}}
  a: {image: a, restart: "no", volumes: ["vol:/v"], pre_stop: [{command: x}]}
  b: {image: b, restart: "no", volumes: ["vol:/v"], depends_on: {a: {condition: service_completed_successfully}}}`,
			[]string{"init: - name: a", "services.a.pre_stop approximated left out: an init container ends by itself"}, "preStop"},
		"around another": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], depends_on: [between]}
  between: {image: between, restart: always, depends_on: [log]}
  log: {image: log, restart: always, volumes: ["vol:/v"]}`,
			[]string{"refused it is shared by log and web"}, ""},
		"one is called main": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"]}
  main: {image: log, restart: always, volumes: ["vol:/v"]}`,
			[]string{"refused it is shared by main and web"}, ""},
		"other permissions": {`
  web: {image: web, ports: ["80:80"], restart: always, volumes: ["vol:/v"], configs: [{source: c, target: /c, mode: 0444}]}
  log: {image: log, restart: always, volumes: ["vol:/v"], configs: [{source: c, target: /c, mode: 0555}]}
configs: {c: {content: x}}`,
			[]string{"refused it is shared by log and web"}, ""},
		"a job that some only want started": {`
  web: {image: web, restart: always, depends_on: {once: {condition: service_completed_successfully}}}
  log: {image: log, restart: always, depends_on: [once]}
  once: {image: once, restart: "on-failure:3", healthcheck: {test: [CMD, x]}}`,
			[]string{"services.log.depends_on.once approximated startAfter: once is a job", "job: backoffLimit: 3",
				"services.once.healthcheck approximated left out: a job is done when it has ended"}, "condition: running"},
		"a check that is not here": {`
  web: {image: web, restart: always, depends_on: {db: {condition: service_healthy}}}
  db: {image: db, restart: always}`,
			[]string{"services.web.depends_on.db approximated startAfter: db has no check in this file"}, ""},
	} {
		file := "services:" + test.file + "\n"
		if strings.Contains(file, "vol:/v") {
			file += "volumes: {vol: {}}\n"
		}
		made, err := Compose(t.Context(), []byte(file), Options{Name: "test"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		manifest, err := made.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(manifest)), " ")
		for _, field := range made.Fields {
			text += fmt.Sprintf("\n%s %s %s", field.Path, field.Verdict, field.Note)
		}
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		if test.not != "" && strings.Contains(string(manifest), test.not) {
			t.Errorf("%s: it has %q:\n%s", name, test.not, manifest)
		}
	}
}
