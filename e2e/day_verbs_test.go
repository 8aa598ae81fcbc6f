//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/lab"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// day is what an operator does in a day, from a machine outside, to a federation of one site with two workers. A client writes all the while.
type day struct {
	t        *testing.T
	l        *lab.Lab
	manifest string // file with DB and WEB for the versions
	files    string // of the operator
	images   map[string]string
	db, web  string // versions that are in use
	books    []*book
	off      map[string]bool
	exported struct{ from, until int } // rows of the database: when its export began, and when that was put in its place
}

const dayLab = `
name: NAME
hosts:
- {name: root, role: root}
- {name: site, role: cluster}
- {name: w1, role: worker, args: [--wireguard, "off"]}
- {name: w2, role: worker, args: [--wireguard, "off"]}
- {name: outside}
`

// newDay brings the federation up. images are folders or programs by the names of the images to be made of them.
func newDay(t *testing.T, manifest string, images map[string]string) *day {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "day") // short enough for sockets
	if err == nil {
		err = testenv.Note(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testenv.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // users of user namespaces enter it
		t.Fatal(err)
	}
	var top lab.Topology
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(dayLab, "NAME", fmt.Sprintf("day%04x-%d", rand.N(0x10000), os.Getpid()), 1)), &top); err != nil {
		t.Fatal(err)
	}
	o := lab.Options{Dir: filepath.Join(dir, "r"), Data: filepath.Join(dir, "d"), Binary: testenv.Program(t), Log: t.Logf}
	d := &day{t: t, manifest: manifest, files: dir, images: images, off: map[string]bool{}}
	if d.l, err = lab.Up(t.Context(), top, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, b := range d.books {
			b.end()
		}
		d.explain()
		if err := lab.Down(context.Background(), top.Name, o); err != nil {
			t.Error(err)
		}
	})
	for _, at := range []string{"root", "site"} {
		api := map[string]string{"root": "7480", "site": "7481"}[at]
		d.must(at, "login", "--trust", "-u", "admin", "--password-file", filepath.Join(d.l.Data, at, "admin-password"), at+":"+api)
	}
	d.push()
	return d
}

func (d *day) file(name string) string { return filepath.Join(d.files, name) }

// on runs any program on a host.
func (d *day) on(host string, argv ...string) (out, problems string, status int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 15*time.Minute) // what hangs is to be named
	defer cancel()
	var o, p bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &o, &p
	status, err := d.l.Exec(ctx, host, cmd)
	if err != nil {
		d.t.Fatalf("%v on %s: %v", argv, host, err)
	}
	return o.String(), p.String(), status
}

// skerry runs a command of the operator's about the root or the site.
func (d *day) skerry(at string, args ...string) (out, problems string, status int) {
	d.t.Helper()
	return d.on("outside", append([]string{d.l.Binary, "--context", at}, args...)...)
}

// ends expects how a command ends.
func (d *day) ends(status int, at string, args ...string) (text string) {
	d.t.Helper()
	out, problems, got := d.skerry(at, args...)
	if got != status {
		d.t.Fatalf("skerry %s at the %s ends with %d, want %d\n%s%s", strings.Join(args, " "), at, got, status, out, problems)
	}
	return out + problems
}

// must expects that a command succeeds.
func (d *day) must(at string, args ...string) string {
	d.t.Helper()
	return d.ends(0, at, args...)
}

// run runs a command of a role's own machine.
func (d *day) run(host string, args ...string) {
	d.t.Helper()
	if out, problems, status := d.on(host, append([]string{d.l.Binary}, args...)...); status != 0 {
		d.t.Fatalf("skerry %s on %s ends with %d\n%s%s", strings.Join(args, " "), host, status, out, problems)
	}
}

// push makes the images and gives them to the root.
func (d *day) push() {
	d.t.Helper()
	for name, of := range d.images {
		d.must("root", "image", "build", of, "-t", name, "--push", "-q")
	}
}

// listed is what "skerry get" tells.
func listed[T any](d *day, at, kind string) []T {
	d.t.Helper()
	out, problems, status := d.skerry(at, "get", kind, "-o", "json")
	var list struct {
		Items []T `json:"items"`
	}
	if err := json.Unmarshal([]byte(out), &list); status != 0 || err != nil {
		d.t.Fatalf("get %s at the %s: %d, %v\n%s%s", kind, at, status, err, out, problems)
	}
	return list.Items
}

// await waits for what comes about by itself.
func (d *day) await(what string, ok func() bool) {
	d.t.Helper()
	began := time.Now()
	for deadline := began.Add(4 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("waited in vain: %s", what)
		}
	}
	d.t.Logf("%s: after %.1f s", what, time.Since(began).Seconds())
}

// apply applies the shop in these versions, and expects how the command ends.
func (d *day) apply(db, web string, status int) (said string) {
	d.t.Helper()
	text, err := os.ReadFile(d.manifest)
	if err == nil {
		text = []byte(strings.NewReplacer(`"DB"`, `"`+db+`"`, `"WEB"`, `"`+web+`"`).Replace(string(text)))
		err = os.WriteFile(d.file("shop.yaml"), text, 0o644)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	said = d.ends(status, "root", "apply", "-f", d.file("shop.yaml"), "--timeout", "4m")
	if status == 0 {
		d.db, d.web = db, web
	}
	return said
}

// instances are those of a service, as the site tells.
func (d *day) instances(service string) (out []wire.Instance) {
	d.t.Helper()
	for _, i := range listed[wire.Instance](d, "site", "instances") {
		if i.Service.Service == service && !i.Stopping {
			out = append(out, i)
		}
	}
	return out
}

// worker is the one that has the volumes of the database.
func (d *day) worker() (has, other string) {
	d.t.Helper()
	for _, v := range listed[view.VolumeView](d, "site", "volumes") {
		if v.Service == "db" {
			has = string(v.Worker)
		}
	}
	return has, map[string]string{"w1": "w2", "w2": "w1"}[has]
}

// processes are what runs, whatever anybody says: the first process of each container.
func (d *day) processes() map[skerry.InstanceID]int {
	d.t.Helper()
	out := map[skerry.InstanceID]int{}
	for _, w := range []string{"w1", "w2"} {
		if d.off[w] {
			continue
		}
		for id, pid := range containerPIDs(d.t, filepath.Join(d.l.Data, w)) {
			out[id] = pid
		}
	}
	return out
}

// kept are the processes of instances that are to be the same afterwards.
func (d *day) kept(what string, before map[skerry.InstanceID]int, service func(skerry.InstanceID) bool) {
	d.t.Helper()
	after := d.processes()
	for id, pid := range before {
		if service(id) && after[id] != pid {
			d.t.Errorf("%s: %s was process %d, and is %d", what, id, pid, after[id])
		}
	}
}

func all(skerry.InstanceID) bool { return true }

func of(services ...string) func(skerry.InstanceID) bool {
	return func(id skerry.InstanceID) bool {
		service, _, _ := strings.Cut(string(id), "-")
		return slices.Contains(services, service)
	}
}

// isTrue compares what both tiers say with what is: at once, since a command has just said that it is so.
func (d *day) isTrue(what, status string) {
	d.t.Helper()
	var app view.AppView
	for _, a := range listed[view.AppView](d, "root", "apps") {
		app = a
	}
	if app.Status != status {
		d.t.Errorf("%s: the application is %s, want %s: %s", what, app.Status, status, app.Reason)
	}
	runs := d.processes()
	for _, at := range []string{"root", "site"} {
		ready := map[string]int{}
		told := listed[wire.Instance](d, at, "instances")
		for _, i := range told {
			isReady := i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready)
			if isReady && runs[i.ID] == 0 {
				d.t.Errorf("%s: the %s says that %s is ready, and nothing runs", what, at, i.ID)
			}
			if isReady {
				ready[i.Service.Service]++
			}
		}
		for id := range runs {
			if !slices.ContainsFunc(told, func(i wire.Instance) bool { return i.ID == id }) {
				d.t.Errorf("%s: %s runs, and the %s does not know", what, id, at)
			}
		}
		for _, s := range app.Services {
			if ready[s.Name] != s.Want || s.Ready != s.Want || s.UpToDate != s.Want || s.Instances != s.Want || s.Rollout == nil || s.Rollout.Phase != view.RolloutDone {
				d.t.Errorf("%s: of service %s %d instances are ready at the %s; the application says %d of %d, %d up to date, rollout %+v",
					what, s.Name, ready[s.Name], at, s.Ready, s.Want, s.UpToDate, s.Rollout)
			}
		}
	}
	for _, w := range []string{"w1", "w2"} {
		for range 5 {
			if got, err := d.ask(w, http.MethodGet, "/version"); err != nil || got != d.web {
				d.t.Errorf("%s: at %s the shop answers %q, %v; it is said to have version %s", what, w, got, err, d.web)
			}
		}
	}
	if d.t.Failed() {
		d.t.FailNow()
	}
}

// ready waits until all is well by itself, and says so truly.
func (d *day) ready(what string) {
	d.t.Helper()
	d.must("root", "wait", "shop", "--timeout", "4m")
	d.isTrue(what, "Ready")
}

// event expects one of the application's.
func (d *day) event(reason string) {
	d.t.Helper()
	if !slices.ContainsFunc(listed[wire.Event](d, "root", "events"), func(e wire.Event) bool { return e.Reason == reason }) {
		d.t.Errorf("there is no event %s", reason)
	}
}

// cut ends all that runs on a host at once; start switches it on again.
func (d *day) cut(host string) {
	d.t.Helper()
	d.off[host] = true
	if err := d.l.PowerOff(d.t.Context(), host); err != nil {
		d.t.Fatal(err)
	}
	for _, b := range d.books {
		if rows := b.rows(); b.store == "mqtt" && len(rows) > 0 {
			b.unsaved[rows[len(rows)-1]] = true
		}
	}
}

func (d *day) start(host string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 4*time.Minute)
	defer cancel()
	err := d.l.Start(ctx, host)
	if err == nil {
		err = d.l.Await(ctx, host)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	delete(d.off, host)
}

// ask asks the shop through the ingress of a worker.
func (d *day) ask(worker, method, path string) (string, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+d.l.Topology.Host(worker).Address+path, nil)
	if err != nil {
		return "", err
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = d.l.In("outside", func() error {
			conn, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %.200s", resp.Status, body)
	}
	return string(body), err
}

// book is what a client knows of a store that it writes numbered rows into, one after the other, each until it is acknowledged.
type book struct {
	store string
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu     sync.Mutex
	acked  []int
	failed int   // tries
	last   error // of them

	// There are the rows read so far, and unsaved those that mosquitto may lose to a power cut: it saves when more than one has changed.
	// Both are the test's own.
	there, unsaved map[int]bool
}

func (d *day) write(stores ...string) {
	for _, store := range stores {
		ctx, cancel := context.WithCancel(context.Background())
		b := &book{store: store, stop: cancel, there: map[int]bool{}, unsaved: map[int]bool{}}
		d.books = append(d.books, b)
		b.done.Go(func() {
			for n, try := 1, 0; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
				_, err := d.ask([]string{"w1", "w2"}[try%2], http.MethodPost, fmt.Sprintf("/rows/%s/%d", store, n))
				b.mu.Lock()
				if err == nil {
					b.acked = append(b.acked, n)
					n++
				} else {
					b.failed, b.last = b.failed+1, err
					try++ // the next time by the other worker
				}
				b.mu.Unlock()
			}
		})
	}
}

func (b *book) end() {
	b.stop()
	b.done.Wait()
}

func (b *book) rows() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.acked)
}

func (b *book) failures() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed, b.last
}

// goesOn waits until every store takes rows.
func (d *day) goesOn(what string) {
	d.t.Helper()
	for _, b := range d.books {
		n := len(b.rows())
		d.await(what+": rows go on to "+b.store, func() bool { return len(b.rows()) >= n+5 })
	}
}

// failed counts the client's tries that failed, of all stores.
func (d *day) failed() (n int) {
	for _, b := range d.books {
		k, _ := b.failures()
		n += k
	}
	return n
}

// noneFailed expects that there were no more of them.
func (d *day) noneFailed(what string, before int) {
	d.t.Helper()
	for _, b := range d.books {
		if _, err := b.failures(); err != nil && d.failed() > before {
			d.t.Errorf("%s: %d tries of the client failed, of %s the last: %v", what, d.failed()-before, b.store, err)
		}
	}
}

// checkAll reads all stores: every row that was acknowledged must be there. What was written into the database between its export and its
// restoration elsewhere, if there was one, may be gone.
func (d *day) checkAll() {
	d.t.Helper()
	for i, b := range d.books {
		d.check(b, func(n int) bool { return i == 0 && n > d.exported.from && n <= d.exported.until })
	}
	if d.t.Failed() {
		d.t.FailNow()
	}
}

func (d *day) check(b *book, lost func(n int) bool) {
	d.t.Helper()
	acked := b.rows() // before those are read that are there
	text, err := d.ask("w1", http.MethodGet, "/rows/"+b.store)
	var rows []int
	if err == nil {
		err = json.Unmarshal([]byte(text), &rows)
	}
	if err != nil {
		d.t.Fatalf("read %s: %v", b.store, err)
	}
	there := b.there // of messages, which are read only once
	if b.store != "mqtt" {
		there = map[int]bool{}
	}
	for _, n := range rows {
		there[n] = true
	}
	var missing []int
	for _, n := range acked {
		if !there[n] && !b.unsaved[n] && !lost(n) {
			missing = append(missing, n)
		}
	}
	failed, _ := b.failures()
	d.t.Logf("%s: %d rows were acknowledged, %d tries failed, %d rows are there", b.store, len(acked), failed, len(there))
	if len(missing) > 0 || len(acked) == 0 {
		d.t.Errorf("%s: of %d acknowledged rows %d are missing: %v", b.store, len(acked), len(missing), missing[:min(20, len(missing))])
	}
}

// explain shows, when the test failed, what both tiers say.
func (d *day) explain() {
	if !d.t.Failed() {
		return
	}
	for _, at := range []string{"root", "site"} {
		for _, args := range [][]string{{"get", "apps"}, {"get", "services"}, {"get", "instances", "-o", "wide"}, {"get", "workers", "-o", "wide"}, {"get", "volumes"}, {"get", "orphans"}, {"events"}} {
			if d.off[at] {
				continue
			}
			cmd := exec.Command(d.l.Binary, append([]string{"--context", at}, args...)...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			_, err := d.l.Exec(ctx, "outside", cmd)
			cancel()
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			d.t.Logf("%s %v: %v\n%s", at, args, err, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	}
}
