//go:build linux

package e2e

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"filippo.io/age"
	_ "modernc.org/sqlite"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// ledger is a database that a test writes numbered rows with checksums into.
type ledger struct {
	acked atomic.Int64 // rows that were committed, with everything on the disk
	stop  chan struct{}
	done  chan error
}

func sumOf(n int64) string {
	s := sha256.Sum256(fmt.Append(nil, "row ", n))
	return hex.EncodeToString(s[:])
}

func openLedger(dir string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+filepath.Join(dir, "ledger.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(60000)")
}

// write writes rows into a database below a directory until end is called.
func (l *ledger) write(dir string) error {
	db, err := openLedger(dir)
	if err != nil {
		return err
	}
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS rows (n INTEGER PRIMARY KEY, sum TEXT NOT NULL)"); err != nil {
		return errors.Join(err, db.Close())
	}
	l.stop, l.done = make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for n := l.acked.Load() + 1; err == nil; n++ {
			select {
			case <-l.stop:
				l.done <- db.Close()
				return
			default:
			}
			if _, err = db.Exec("INSERT INTO rows VALUES (?, ?)", n, sumOf(n)); err == nil {
				l.acked.Store(n)
			}
		}
		l.done <- errors.Join(err, db.Close())
	}()
	return nil
}

func (l *ledger) end() error {
	close(l.stop)
	return <-l.done
}

// check reads every row of a database, and gives how many there are.
func checkLedger(dir string) (n int64, err error) {
	db, err := openLedger(dir)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var ok string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
		return 0, fmt.Errorf("integrity_check: %s, %w", ok, err)
	}
	rows, err := db.Query("SELECT n, sum FROM rows ORDER BY n")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var at int64
		var sum string
		if err := rows.Scan(&at, &sum); err != nil {
			return n, err
		}
		if n++; at != n || sum != sumOf(n) {
			return n, fmt.Errorf("row %d has number %d and sum %s", n, at, sum)
		}
	}
	return n, rows.Err()
}

// TestDatabaseSurvivesItsMachine has a database written to while a snapshot is taken, exports that, encrypted, and brings it to another
// worker when the first one is gone: every row that was acknowledged before is there, and none is damaged. The machine that comes back
// removes what it has. A snapshot that is restored in its place has the instance started again; clones, quotas, deletion, and what a crash leaves.
func TestDatabaseSurvivesItsMachine(t *testing.T) {
	ctx := t.Context()
	p := newProcesses(t, "w1", "w2")
	if err := os.WriteFile(p.data("places.yaml"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start(&role{name: "cluster", args: []string{"cluster", "--standalone", "--name", "island", "--data", p.data("cluster"), "--link", "127.0.0.1:7444", "--api", "127.0.0.1:7481",
		"--relay", "", "--admission", p.admission(), "--snapshot-places", p.data("places.yaml")}})
	const server = "https://127.0.0.1:7481"
	c := login(t, server, p.data("cluster"))
	for d := p.dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) { // users of user namespaces enter it
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	worker := func(name string) *role {
		token := joinToken(t, server, p.data("cluster"), wire.TierWorker)
		return p.start(&role{name: name, args: []string{"worker", "--name", name, "--data", p.data(name), "--cluster", "127.0.0.1:7444", "--join", token, "--run-dir", p.data("run-" + name),
			"--cgroup-parent", p.cgroup() + "-" + name, "--address", "127.0.0.1", "--http", "", "--no-network"}})
	}
	connected := func(n int) func() bool {
		return func() bool {
			list, err := c.Workers(ctx)
			return err == nil && len(list) >= n && n == len(slices.DeleteFunc(list, func(w view.WorkerView) bool { return !w.Connected }))
		}
	}
	w1 := worker("w1")
	bin := filepath.Join(p.dir, "program")
	testenv.Build(t, bin, workload)
	pushFile(t, c, p.dir, "test/workload:1", bin)
	manifest := []byte(`{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"ledger"},"spec":{"services":[{"name":"db","image":"test/workload:1","args":["sleep"],
"terminationGrace":"1s","resources":{"cpu":0.05,"memory":"32Mi"},"volumes":[{"name":"data","local":{"size":"32Mi"}},{"name":"plain","local":{}}],
"mounts":[{"volume":"data","path":"/data"},{"volume":"plain","path":"/plain"}],"snapshots":{"before":{"command":["/program","write","/plain/flushed","yes"]}}}]}}`)
	applied(t, c, "ledger", manifest, 1)
	worker("w2")
	await(t, "the other worker is there", connected(2))
	claim := spec.VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "ledger"}, Service: "db"}}
	dir := func(worker, volume string) string {
		return filepath.Join(p.data(worker), "local", "default", "ledger", "db", "0", volume, "data")
	}
	run := func(stdin []byte, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(ctx, p.program, args...)
		cmd.Env = append(os.Environ(), "SKERRY_CONFIG="+p.data("config"))
		var out, why bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &why
		if err := cmd.Run(); err != nil {
			t.Fatalf("skerry %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), why.String())
		}
		return out.Bytes()
	}
	run(nil, "login", "--trust", "-u", "admin", "--password-file", filepath.Join(p.data("cluster"), parents.AdminPasswordFile), server)

	var l ledger
	if err := l.write(dir("w1", "data")); err != nil {
		t.Fatal(err)
	}
	await(t, "rows are written", func() bool { return l.acked.Load() > 100 })
	before := l.acked.Load()
	out := string(run(nil, "volume", "snapshot", "ledger/db/0"))
	after := l.acked.Load()
	list, err := c.Snapshots(ctx, "default")
	if err != nil || len(list) != 1 {
		t.Fatalf("%d snapshots are listed, %v", len(list), err)
	}
	snap := list[0]
	if !strings.Contains(out, string(snap.ID)) || snap.State != spec.SnapshotReady || snap.Worker != "w1" || snap.Org != "default" || snap.Size == 0 || len(snap.SHA256) != 64 ||
		snap.Paused == 0 || snap.How != spec.SnapshotFrozen && snap.How != spec.SnapshotReflink || len(snap.Volumes) != 2 || snap.Volumes[0].Size != 32*skerry.MiB {
		t.Errorf("the snapshot is %+v; the command says %q", snap, out)
	}
	await(t, "rows are written on", func() bool { return l.acked.Load() > after+20 })
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := p.data("key")
	if err := os.WriteFile(identity, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := run(nil, "volume", "export", string(snap.ID), "--to", key.Recipient().String())
	if !bytes.HasPrefix(file, []byte("age-encryption.org/v1")) {
		t.Errorf("the file begins with %q", file[:min(30, len(file))])
	}

	// The machine is gone, with its snapshots.
	w1.kill()
	await(t, "the machine is gone", connected(1))
	refused := func(what string, code skerry.Code, hint string, err error) {
		t.Helper()
		if e := skerry.AsError(err); err == nil || e.Code != code || !strings.Contains(e.Hint, hint) {
			t.Errorf("%s: %v, want %s with the hint %q", what, err, code, hint)
		}
	}
	_, err = c.RestoreSnapshot(ctx, snap.ID, spec.RestoreRequest{})
	refused("a snapshot on a machine that is gone", skerry.CodeUnavailable, "", err)
	run(file, "volume", "import", "ledger/db/0", "--worker", "w2", "--identity", identity)
	list, err = c.Snapshots(ctx, "default")
	i := slices.IndexFunc(list, func(s spec.Snapshot) bool { return s.Worker == "w2" })
	if err != nil || i < 0 || list[i].SHA256 != snap.SHA256 || list[i].How != spec.SnapshotImported || !list[i].At.Equal(snap.At) {
		t.Fatalf("snapshots: %+v, %v", list, err)
	}
	imported := list[i].ID
	_, err = c.RestoreSnapshot(ctx, imported, spec.RestoreRequest{})
	refused("volumes on a machine that is gone", skerry.CodeUnavailable, "--worker", err)
	run(nil, "volume", "restore", string(imported), "--worker", "w2")
	on := func(worker string) func() bool {
		return func() bool {
			list, err := c.Instances(ctx, api.InstanceFilter{App: "ledger"})
			return err == nil && len(list) == 1 && string(list[0].Worker) == worker && skerry.HasCondition(list[0].Conditions, skerry.Ready)
		}
	}
	await(t, "it runs on the other worker", on("w2"))
	n, err := checkLedger(dir("w2", "data"))
	if err != nil || n < before || n > after {
		t.Errorf("it has %d rows; %d were acknowledged before the snapshot and %d when it was there; %v", n, before, after, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir("w2", "plain"), "flushed")); err != nil || string(text) != "yes" {
		t.Errorf("the command before the snapshot left %q, %v", text, err)
	}

	// It comes back, and its volume is no longer the one. What a snapshot left that was being taken is none.
	partial := filepath.Join(p.data("w1"), "snapshots", ".partial-ledger-db-0-cut")
	if err := os.MkdirAll(partial, 0o700); err != nil {
		t.Fatal(err)
	}
	w1.start(t, p.program, p.log)
	await(t, "the machine is back", connected(2))
	await(t, "it has removed what is elsewhere now", func() bool {
		_, volume := os.Stat(filepath.Dir(filepath.Dir(dir("w1", "data"))))
		_, half := os.Stat(partial)
		return errors.Is(volume, os.ErrNotExist) && errors.Is(half, os.ErrNotExist)
	})
	await(t, "it runs on the other worker", on("w2"))

	// In its place, while it runs; and under another name, at the worker that is back.
	l.acked.Store(n)
	if err := l.write(dir("w2", "data")); err != nil {
		t.Fatal(err)
	}
	await(t, "rows are written", func() bool { return l.acked.Load() > n+20 })
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	was, err := c.Instances(ctx, api.InstanceFilter{App: "ledger"})
	if err != nil {
		t.Fatal(err)
	}
	run(nil, "volume", "restore", string(imported))
	await(t, "it runs again", func() bool {
		now, err := c.Instances(ctx, api.InstanceFilter{App: "ledger"})
		return err == nil && len(now) == 1 && now[0].StartedAt.After(was[0].StartedAt) && on("w2")()
	})
	if again, err := checkLedger(dir("w2", "data")); err != nil || again != n {
		t.Errorf("restored in its place it has %d rows, want %d; %v", again, n, err)
	}
	run(nil, "volume", "clone", string(imported), "copy/db/0", "--worker", "w1")
	cloned := filepath.Join(p.data("w1"), "local", "default", "copy", "db", "0", "data")
	if st, err := os.Stat(filepath.Join(cloned, "image")); err != nil || st.Size() != 32<<20 {
		t.Errorf("the clone: %v, %v", st, err)
	}
	manifest = bytes.Replace(manifest, []byte(`"name":"ledger"`), []byte(`"name":"copy"`), 1)
	applied(t, c, "copy", manifest, 1)
	if again, err := checkLedger(filepath.Join(cloned, "data")); err != nil || again != n {
		t.Errorf("the clone has %d rows, want %d; %v", again, n, err)
	}
	_, err = c.RestoreSnapshot(ctx, imported, spec.RestoreRequest{To: "copy/db/0"})
	refused("a clone over what is there", skerry.CodeConflict, "", err)

	// What is damaged is found, and changes nothing; what is deleted is gone; and all of it counts.
	data := filepath.Join(p.data("w2"), "snapshots", string(imported), "data")
	if f, err := os.OpenFile(data, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	} else if _, err := f.WriteAt([]byte("damage"), int64(len(file)/2)); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if _, err := c.RestoreSnapshot(ctx, imported, spec.RestoreRequest{}); err == nil {
		t.Error("a damaged snapshot was restored")
	}
	await(t, "it runs again", on("w2"))
	if again, err := checkLedger(dir("w2", "data")); err != nil || again != n {
		t.Errorf("after a damaged snapshot it has %d rows, want %d; %v", again, n, err)
	}
	usage, err := c.Usage(ctx, "default")
	if err != nil || usage.Need.Storage < 2*32*skerry.MiB+snap.Size+list[i].Size {
		t.Errorf("%s of storage are counted, %v", usage.Need.Storage, err)
	}
	if _, err := c.SetQuota(ctx, "default", apps.Quota{Storage: usage.Need.Storage}); err != nil {
		t.Fatal(err)
	}
	_, err = c.TakeSnapshot(ctx, claim, 0)
	refused("a snapshot beyond the quota", skerry.CodeQuota, "delete snapshots", err)
	for _, id := range []spec.SnapshotID{snap.ID, imported} {
		run(nil, "delete", "snapshot", string(id))
		await(t, "its files are gone", func() bool {
			left, err := filepath.Glob(filepath.Join(p.dir, "w?", "snapshots", "*"+string(id)+"*"))
			return err == nil && len(left) == 0
		})
	}
	if list, err := c.Snapshots(ctx, ""); err != nil || len(list) != 0 {
		t.Errorf("snapshots are left: %+v, %v", list, err)
	}

	if _, err := c.SetQuota(ctx, "default", apps.Quota{}); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) string { return string(run(nil, args...)) }
	far := testenv.NewS3(t, "..")
	far.Bucket(t, "backups")
	far.Setenv(t)
	id, exported := scheduledSnapshots(t, p, c, manifest, command, far, key.Recipient().String())
	if _, err := c.SetQuota(ctx, "default", apps.Quota{}); err != nil {
		t.Fatal(err)
	}

	// To S3, encrypted, and back. What was damaged there is no snapshot.
	command("volume", "import", "copy/db/6", "--identity", identity, exported)
	list, err = c.Snapshots(ctx, "")
	for _, s := range list {
		if s.Replica == 6 {
			err = errors.Join(err, c.DeleteSnapshot(ctx, s.ID))
		}
	}
	if err != nil {
		t.Error(err)
	}
	const object = "s3://backups/shop/db.snapshot"
	command("volume", "export", id, "--to", key.Recipient().String(), object)
	stored, err := os.ReadFile(filepath.Join(far.Dir, strings.TrimPrefix(object, "s3://")))
	if err != nil || !bytes.HasPrefix(stored, []byte("age-encryption.org/v1")) {
		t.Errorf("the object begins with %q, %v", stored[:min(30, len(stored))], err)
	}
	command("volume", "import", "copy/db/7", "--identity", identity, object)
	sums := map[string]int{}
	list, err = c.Snapshots(ctx, "")
	for _, s := range list {
		if string(s.ID) == id || s.Replica == 7 {
			sums[s.SHA256]++
		}
	}
	if err != nil || len(list) != 3 || len(sums) != 1 {
		t.Errorf("exported and imported: %+v, %v", list, err)
	}
	stored[len(stored)/2] ^= 1
	if err := os.WriteFile(filepath.Join(far.Dir, strings.TrimPrefix(object, "s3://")), stored, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, p.program, "volume", "import", "copy/db/8", "--identity", identity, object)
	cmd.Env = append(os.Environ(), "SKERRY_CONFIG="+p.data("config"))
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("decrypt")) && !bytes.Contains(out, []byte("sha256")) {
		t.Errorf("damaged: %v, %s", err, out)
	}
	await(t, "nothing is left of it", func() bool { // the cluster notices a little later that its client is gone
		now, err := c.Snapshots(ctx, "")
		return err == nil && len(now) == len(list)
	})
}

// scheduledSnapshots has an application of the name "copy", which runs, copied on a schedule. Older snapshots go from the list and from the
// disk. Without room there are no new ones, and the reason is shown; with the application the schedule ends, and what there is stays: one of
// it is returned. Each is sent to S3, too, as soon as there is such a place, and the URL of one there is returned.
func scheduledSnapshots(t *testing.T, p *processes, c *api.Client, manifest []byte, run func(args ...string) string,
	far *testenv.S3, recipient string,
) (id, object string) {
	t.Helper()
	ctx := t.Context()
	was, err := c.Instances(ctx, api.InstanceFilter{App: "copy"})
	if err != nil || len(was) != 1 {
		t.Fatalf("%+v, %v", was, err)
	}
	apply := func(recipients string) {
		t.Helper()
		text := `"snapshots":{"schedule":"@every 1s","keep":2,"export":{"to":"offsite","keep":2` + recipients + `},`
		applied(t, c, "copy", bytes.Replace(manifest, []byte(`"snapshots":{`), []byte(text), 1), 1)
	}
	apply("")
	taken := func() (ids []string) {
		list, err := c.Snapshots(ctx, "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Scheduled && s.State == spec.SnapshotReady {
				ids = append(ids, string(s.ID))
			}
		}
		return ids
	}
	schedule := func() wire.VolumeSchedule {
		list, err := c.Volumes(ctx, "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			if v.App == "copy" && v.Scheduled != nil {
				return *v.Scheduled
			}
		}
		return wire.VolumeSchedule{}
	}
	first := ""
	await(t, "there is a snapshot", func() bool {
		if ids := taken(); len(ids) > 0 {
			first = ids[0]
		}
		return first != ""
	})
	await(t, "there are newer ones in its place", func() bool { return len(taken()) == 2 && !slices.Contains(taken(), first) })
	await(t, "its files are gone", func() bool {
		left, err := filepath.Glob(filepath.Join(p.dir, "w?", "snapshots", "*"+first+"*"))
		return err == nil && len(left) == 0
	})
	await(t, "it is said that there is no such place", func() bool {
		e := schedule().Export
		return e != nil && strings.Contains(e.Reason, `no place "offsite"`)
	})
	place := fmt.Sprintf("offsite: {to: s3://backups/edge, endpoint: %q, region: %s, accessKey: %s, secretKey: %s}\n",
		far.URL, far.Region, far.Key, far.Secret)
	if err := os.WriteFile(p.data("places.yaml"), []byte(place), 0o600); err != nil {
		t.Fatal(err)
	}
	apply(`,"recipients":["` + recipient + `"]`)
	objects := func() []string {
		list, err := filepath.Glob(filepath.Join(far.Dir, "backups", "edge", "island", "default", "copy", "db", "0", "*.snapshot"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	sent := ""
	await(t, "one is sent away", func() bool {
		if list := objects(); len(list) > 0 {
			sent = list[0]
		}
		return sent != ""
	})
	await(t, "there are newer ones in its place", func() bool {
		e := schedule().Export
		return e.Kept == 2 && e.Reason == "" && !e.Last.IsZero() && !slices.Contains(objects(), sent)
	})
	if _, err := c.SetQuota(ctx, "default", apps.Quota{Storage: skerry.MiB}); err != nil {
		t.Fatal(err)
	}
	await(t, "there is no room for more", func() bool { return strings.Contains(schedule().Reason, "of storage") && len(taken()) == 2 })
	ids, s := taken(), schedule()
	if s.Kept != 2 || s.Keep != 2 || s.Last.IsZero() || s.Failed.Before(s.Last) {
		t.Errorf("it is shown as %+v", s)
	}
	if text := run("describe", "volume", "copy/db/0"); !strings.Contains(text, "2 of 2 kept") || !strings.Contains(text, "of storage") {
		t.Errorf("it is described as\n%s", text)
	}
	now, err := c.Instances(ctx, api.InstanceFilter{App: "copy"})
	if err != nil || len(now) != 1 || now[0].ID != was[0].ID || !now[0].StartedAt.Equal(was[0].StartedAt) {
		t.Errorf("with the schedule it was started again: %+v, %v", now, err)
	}
	run("delete", "app", "copy", "--wait")
	await(t, "the schedule ends", func() bool { return schedule().Schedule == "" })
	if left := taken(); !slices.Equal(left, ids) {
		t.Errorf("snapshots %v were there, and %v are", ids, left)
	}
	list := objects()
	for _, name := range list {
		stored, err := os.ReadFile(name)
		_, noSum := os.Stat(name + ".sha256")
		if err != nil || noSum != nil || !bytes.HasPrefix(stored, []byte("age-encryption.org/v1")) {
			t.Errorf("%s begins with %q, %v, %v", name, stored[:min(30, len(stored))], err, noSum)
		}
	}
	if len(list) != 2 {
		t.Fatalf("%v are sent away", list)
	}
	return ids[0], "s3:/" + strings.TrimPrefix(list[0], far.Dir)
}
