//go:build linux

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// TestOperatorsDay is the day of whoever runs a shop of PostgreSQL, Redis, mosquitto, nginx and a small web application of Debian's at a site
// with two workers, while a client writes into all three stores. Every row that was acknowledged is there in the evening, less those that were
// written between the database's export and its restoration elsewhere; and whatever a command, a status or an event said was so.
func TestOperatorsDay(t *testing.T) {
	testenv.Long(t, "TestOperatorsHour")
	recipe, err := os.ReadFile("testdata/day/packages.sh")
	if err != nil {
		t.Fatal(err)
	}
	debian := cached(t, "day", recipe, func(made string) {
		outside(t, "an image with Debian's packages", "sh", "testdata/day/packages.sh", made, mirror())
	})
	d := newDay(t, "testdata/day/shop.yaml", map[string]string{"day/debian:1": filepath.Join(debian, "root")})
	d.must("root", "secret", "create", "db", "--from-literal", "password=first")
	d.morning("postgres", "redis", "mqtt")
	d.backup()
	d.export()
	d.goodUpdates()
	d.badUpdate("web")
	d.badUpdate("db")
	d.rotation()
	d.drain()
	d.workerPowerCut()
	d.clusterPowerCut()
	d.rootLost()
	d.databaseElsewhere()
	d.evening()
}

// TestOperatorsHour is a part of that day, with small programs in place of the shop's.
func TestOperatorsHour(t *testing.T) {
	program := filepath.Join(t.TempDir(), "rows")
	testenv.Build(t, program, "skerry.dev/skerry/e2e/rows")
	d := newDay(t, "testdata/day/small.yaml", map[string]string{"day/rows:1": program})
	d.morning("file")
	d.backup()
	d.badUpdate("web")
	worker, _ := d.worker()
	d.cut(worker)
	d.comesBack(worker)
	d.rootLost()
	d.evening()
}

// morning deploys everything, and has the client begin.
func (d *day) morning(stores ...string) {
	d.t.Helper()
	d.apply("1", "1", 0)
	d.isTrue("deployed", "Ready")
	if slices.Contains(stores, "mqtt") { // whoever is to get messages must have asked for them before
		if _, err := d.ask("w1", http.MethodGet, "/rows/mqtt"); err != nil {
			d.t.Fatal(err)
		}
	}
	d.write(stores...)
	d.goesOn("deployed")
}

// backup saves what the root knows.
func (d *day) backup() {
	d.t.Helper()
	if err := os.WriteFile(d.file("passphrase"), []byte("a passphrase of a test\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.run("root", "backup", "--data", filepath.Join(d.l.Data, "root"), "--passphrase-file", d.file("passphrase"), d.file("root.backup"))
}

// export saves the database, as a snapshot on its worker and as a file of the operator's.
func (d *day) export() {
	d.t.Helper()
	d.must("site", "volume", "snapshot", "shop/db/0")
	d.exported.from = len(d.books[0].rows())
	d.must("site", "volume", "export", "shop/db/0", d.file("db.snapshot"))
	if list := listed[spec.Snapshot](d, "site", "snapshots"); len(list) != 1 || list[0].State != spec.SnapshotReady {
		d.t.Errorf("snapshots: %+v", list)
	}
	d.goesOn("exported")
}

// goodUpdates bring another version of the web application, during which the client waits for nothing and the database is left alone; and then
// another of the database, which is started anew once.
func (d *day) goodUpdates() {
	d.t.Helper()
	before, failed := d.processes(), d.failed()
	d.apply("1", "2", 0)
	d.isTrue("the web application is updated", "Ready")
	d.kept("an update of the web application", before, of("db", "cache", "broker", "front"))
	d.noneFailed("an update of the web application", failed)
	d.goesOn("the web application is updated")

	before, was := d.processes(), d.instances("db")[0]
	d.apply("2", "2", 0)
	d.isTrue("the database is updated", "Ready")
	d.kept("an update of the database", before, of("web", "cache", "broker", "front"))
	if now := d.instances("db")[0]; now.ID == was.ID || now.Restarts != 0 || now.Worker != was.Worker {
		d.t.Errorf("the database was %s on %s, and is %s on %s after %d restarts", was.ID, was.Worker, now.ID, now.Worker, now.Restarts)
	}
	d.goesOn("the database is updated")
}

// badUpdate brings a version that ends as soon as it is started: the command says so, the version before serves, and no healthy instance is touched.
func (d *day) badUpdate(service string) {
	d.t.Helper()
	before, failed, db, web := d.processes(), d.failed(), d.db, d.web
	said := ""
	if service == "web" {
		said = d.apply(db, "bad", 1)
		d.kept("a bad version of the web application", before, all)
		d.noneFailed("a bad version of the web application", failed)
	} else {
		said = d.apply("bad", web, 1)
		d.kept("a bad version of the database", before, func(id skerry.InstanceID) bool { return !of("db")(id) })
	}
	if !strings.Contains(said, "service shop/"+service+" was rolled back") {
		d.t.Errorf("apply says:\n%s", said)
	}
	d.isTrue("a bad version of "+service, view.AppRolledBack)
	d.event("RolledBack")
	if text := d.must("root", "describe", "app", "shop"); !strings.Contains(text, "RolledBack") {
		d.t.Errorf("describe says:\n%s", text)
	}
	d.ends(1, "root", "rollout", "status", "shop", "--watch")
	d.goesOn("a bad version of " + service)
	d.apply(db, web, 0) // which acknowledges it
	d.isTrue("after a bad version of "+service, "Ready")
}

// rotation gives the database another password, and takes that back.
func (d *day) rotation() {
	d.t.Helper()
	opens := func(password string) bool {
		_, _, status := d.skerry("root", "exec", string(d.instances("db")[0].ID), "--", "env", "PGPASSWORD="+password, "psql", "-h", "127.0.0.1", "-U", "postgres", "-c", "SELECT 1")
		return status == 0
	}
	uses := func(what, password, other string) {
		d.t.Helper()
		d.must("root", "rollout", "status", "shop", "--watch", "--timeout", "4m")
		d.isTrue(what, "Ready")
		if !opens(password) || opens(other) {
			d.t.Errorf("%s: the password %q opens the database: %v; %q: %v", what, password, opens(password), other, opens(other))
		}
		d.goesOn(what)
	}
	before := d.processes()
	d.must("root", "secret", "rotate", "db", "--from-literal", "password=second")
	uses("the password is rotated", "second", "first")
	d.must("root", "secret", "undo", "db")
	uses("the rotation is undone", "first", "second")
	d.kept("a rotation", before, of("cache", "broker", "front"))
}

// drain empties the worker of the database: what keeps data there stays, all else goes, and nobody waits.
func (d *day) drain() {
	d.t.Helper()
	worker, _ := d.worker()
	before, failed := d.processes(), d.failed()
	said := d.must("site", "drain", "worker", worker, "--timeout", "4m")
	for _, i := range listed[wire.Instance](d, "site", "instances") {
		stays := strings.Contains(said, string(i.ID)+" stays: ")
		if here := string(i.Worker) == worker; here != stays || here && !of("db", "cache", "broker")(i.ID) {
			d.t.Errorf("%s is on %s; drain says:\n%s", i.ID, i.Worker, said)
		}
	}
	d.isTrue("drained", "Ready")
	d.kept("a drain", before, of("db", "cache", "broker"))
	d.noneFailed("a drain", failed)
	d.must("site", "uncordon", worker)
	d.goesOn("uncordoned")
}

// workerPowerCut cuts the power of the database's worker: nobody takes it for ready any more, and it is ready again when that is back.
func (d *day) workerPowerCut() {
	d.t.Helper()
	worker, other := d.worker()
	d.cut(worker)
	for _, at := range []string{"root", "site"} {
		d.await("the "+at+" sees that the database is gone", func() bool {
			apps := listed[view.AppView](d, at, "apps")
			return len(apps) == 0 || apps[0].Status != "Ready" // at the site it may not be listed
		})
	}
	d.await("the rest runs on "+other, func() bool {
		out, err := d.ask(other, http.MethodGet, "/version")
		return err == nil && out == d.web
	})
	d.ends(1, "root", "wait", "shop", "--timeout", "1s")
	d.comesBack(worker)
}

// comesBack switches the database's worker on again: all that was acknowledged before is there.
func (d *day) comesBack(worker string) {
	d.t.Helper()
	d.start(worker)
	d.ready("the worker is back")
	d.goesOn("the worker is back")
	d.checkAll()
}

// clusterPowerCut cuts that of the site's orchestrator: nothing is touched, and the client goes on.
func (d *day) clusterPowerCut() {
	d.t.Helper()
	before, failed := d.processes(), d.failed()
	d.cut("site")
	d.goesOn("without the cluster")
	d.start("site")
	d.ready("the cluster is back")
	d.kept("a power cut of the cluster", before, all)
	d.noneFailed("a power cut of the cluster", failed)
}

// rootLost loses the root with its disk. The site lives on, and a root from the backup of the morning has it again.
func (d *day) rootLost() {
	d.t.Helper()
	before, failed := d.processes(), d.failed()
	d.cut("root")
	if err := os.RemoveAll(filepath.Join(d.l.Data, "root")); err != nil {
		d.t.Fatal(err)
	}
	d.goesOn("without the root")
	if err := os.Mkdir(filepath.Join(d.l.Data, "root"), 0o700); err != nil {
		d.t.Fatal(err)
	}
	d.run("site", "restore", "--data", filepath.Join(d.l.Data, "root"), "--passphrase-file", d.file("passphrase"), d.file("root.backup"))
	d.start("root")
	d.await("the site is back", func() bool {
		list := listed[view.ClusterView](d, "root", "clusters")
		return len(list) == 1 && list[0].Connected
	})
	d.kept("the loss of the root", before, all)
	d.noneFailed("the loss of the root", failed)
	d.push()
	d.await("nothing but what waits for orphans is to be placed", func() bool {
		for _, i := range listed[wire.Instance](d, "root", "instances") {
			if ready := i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready); !ready && !strings.Contains(i.Reason, "local volumes") {
				return false
			}
		}
		return true
	})
	d.kept("the restored root", before, all)
	for _, o := range listed[view.Orphan](d, "root", "orphans") {
		if of("db")(o.Instance) {
			d.must("root", "adopt", string(o.Instance))
		} else {
			d.must("root", "delete", "orphan", string(o.Instance))
		}
	}
	d.apply(d.db, d.web, 0)
	d.await("no orphan is left", func() bool { return len(listed[view.Orphan](d, "root", "orphans")) == 0 })
	d.ready("the root is restored")
	d.kept("the root is restored", before, of("db", "cache", "broker", "front"))
	d.goesOn("the root is restored")
}

// databaseElsewhere loses the machine of the database, and brings what was exported in the morning to the other worker. The machine that comes back
// has nothing of it any more.
func (d *day) databaseElsewhere() {
	d.t.Helper()
	worker, other := d.worker()
	d.cut(worker)
	d.await("the worker is gone", func() bool {
		for _, w := range listed[view.WorkerView](d, "site", "workers") {
			if string(w.Name) == worker {
				return w.Lost
			}
		}
		return false
	})
	d.exported.until = len(d.books[0].rows())
	d.must("site", "volume", "import", "shop/db/0", d.file("db.snapshot"), "--worker", other)
	for _, s := range listed[spec.Snapshot](d, "site", "snapshots") {
		if string(s.Worker) == other {
			d.must("site", "volume", "restore", string(s.ID), "--worker", other)
		}
	}
	d.await("the database is ready on "+other, func() bool {
		list := d.instances("db")
		return len(list) == 1 && string(list[0].Worker) == other && skerry.HasCondition(list[0].Conditions, skerry.Ready)
	})
	d.start(worker)
	d.ready("the database is elsewhere")
	d.await("the worker that is back has nothing of it", func() bool {
		left, err := filepath.Glob(filepath.Join(d.l.Data, worker, "local", "default", "shop", "db", "*"))
		return err == nil && len(left) == 0
	})
	d.goesOn("the database is elsewhere")
}

// evening reads everything.
func (d *day) evening() {
	d.t.Helper()
	for _, b := range d.books {
		b.end()
	}
	d.ready("evening")
	d.checkAll()
}
