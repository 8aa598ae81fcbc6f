//go:build linux

package vm

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// standIn answers as Firecracker's API is documented to, and remembers what it was told. It shows what Skerry asks for, and nothing of
// Firecracker.
type standIn struct {
	mu    sync.Mutex
	asked []string
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path+" "+string(body))
	s.mu.Unlock()
	if r.URL.Path == "/drives/bad" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"fault_message":"Unable to open\u001b[2J the block device"}`)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *standIn) serve(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
}

// told is a stand-in for Firecracker, below a directory that is the current one, and a machine that it is told of.
func told(t *testing.T) (*firecracker, *standIn, *machine) {
	t.Helper()
	t.Chdir(t.TempDir()) // as vm-run in the task's directory
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	f := &firecracker{firecrackerProgram: firecrackerProgram{Path: "/opt/firecracker", Version: "1.16.1"}, dir: filepath.Join(dir, "jail"),
		called: "vsock_1024", patience: time.Minute}
	s := &standIn{}
	s.serve(t, f.below(jailAPI))
	mac, _ := net.ParseMAC("02:00:00:00:00:07")
	return f, s, &machine{
		RAM: 160 << 20, CPUs: 2, Cmdline: "quiet", Initrd: os.Stdin,
		Disks: []disk{{Serial: rootLabel, ReadOnly: true}, {Serial: scratchLabel}}, NIC: &nic{MAC: mac},
		Rates: rates{ReadBps: 1000, WriteBps: 500, WriteIOPS: 7, Out: 125000},
	}
}

// heard gives what the stand-in was told, with line breaks where a reader wants them.
func (s *standIn) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := strings.NewReplacer(" {", "\n{", ",\"rate_limiter", ",\n\"rate_limiter", ",\"tx_rate", ",\n\"tx_rate")
	return lines.Replace(strings.Join(s.asked, "\n"))
}

// TestWhatFirecrackerIsTold is the requests for a machine, in their order.
func TestWhatFirecrackerIsTold(t *testing.T) {
	f, s, m := told(t)
	if err := f.tell(m, nil); err != nil {
		t.Fatal(err)
	}
	want := `PUT /machine-config
{"mem_size_mib":160,"vcpu_count":2}
PUT /boot-source
{"boot_args":"quiet","initrd_path":"/initrd","kernel_image_path":"/kernel"}
PUT /balloon
{"amount_mib":0,"deflate_on_oom":true,"free_page_reporting":true,"stats_polling_interval_s":0}
PUT /drives/skerry_root
{"cache_type":"Writeback","drive_id":"skerry_root","is_read_only":true,"is_root_device":false,"path_on_host":"/skerry_root",
"rate_limiter":{"bandwidth":{"size":1000,"refill_time":1000}}}
PUT /drives/skerry_scratch
{"cache_type":"Writeback","drive_id":"skerry_scratch","is_read_only":false,"is_root_device":false,"path_on_host":"/skerry_scratch",
"rate_limiter":{"bandwidth":{"size":1500,"refill_time":1000}}}
PUT /network-interfaces/eth0
{"guest_mac":"02:00:00:00:00:07","host_dev_name":"vm0","iface_id":"eth0",
"tx_rate_limiter":{"bandwidth":{"size":125000,"refill_time":1000}}}
PUT /vsock
{"guest_cid":3,"uds_path":"/vsock"}
PUT /actions
{"action_type":"InstanceStart"}`
	if got := s.heard(); got != want {
		t.Errorf("got\n%s", got)
	}
	// Nobody can look into a process that has ended, nor into any where the host forbids it: that is no failure of the machine's.
	f.cmd = exec.Command("true")
	if err := f.cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := f.begin(m, nil); err != nil {
		t.Errorf("the machine does not begin: %v", err)
	}
	err := f.tell(&machine{Disks: []disk{{Serial: "bad"}}}, nil)
	if err == nil || err.Error() != "/drives/bad: Unable to open[2J the block device" {
		t.Errorf("a refusal is %v", err)
	}
	f.Version = "1.13.1" // it knows no reports of free pages
	s.asked = nil
	if err := f.tell(m, nil); err != nil || strings.Contains(s.heard(), "balloon") {
		t.Errorf("an older release: %v\n%s", err, s.heard())
	}
	ended := make(chan struct{})
	close(ended)
	f.dir = filepath.Join(filepath.Dir(f.dir), "elsewhere")
	if err := f.tell(m, ended); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("one that has ended: %v", err)
	}
}

// FuzzFirecrackerAnswer has Firecracker, which what runs in a machine may have taken over, answer anything: its words are fit to be shown.
func FuzzFirecrackerAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 204 \r\nServer: Firecracker API\r\nConnection: keep-alive\r\n\r\n",
		"HTTP/1.1 400 \r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n{\"fault_message\":\"no\\u001b[2J\"}",
		"HTTP/1.1 500 \r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"HTTP/1.1 400 \r\nContent-Length: 99\r\n\r\n{", "\x1b[2J", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := readAnswer(bufio.NewReader(strings.NewReader(string(data)))); err != nil && clean(err.Error()) != err.Error() {
			t.Errorf("%q would go to a terminal", err)
		}
	})
}

// TestFirstCaller takes the first connection, and no other.
func TestFirstCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{l: l}
	if _, err := io.WriteString(c, "early"); err == nil {
		t.Error("something was written to nobody")
	}
	first, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := io.WriteString(first, "hello"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if second, err := net.Dial("unix", path); err == nil {
		second.Close()
		t.Error("another one was let in")
	}
	if _, err := io.WriteString(c, "there"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(first, b); err != nil || string(b) != "there" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestRates are those of a machine's disks, in words of Firecracker's.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		r        rates
		readOnly bool
		want     string
	}{
		{rates{}, true, `null`},
		{rates{ReadBps: 10}, true, `{"bandwidth":{"size":10,"refill_time":1000}}`},
		{rates{WriteBps: 10, WriteIOPS: 1}, true, `null`},
		{rates{WriteBps: 10}, false, `null`}, // else reads would be bounded, too
		{rates{ReadBps: 3, WriteBps: 10, ReadIOPS: 1, WriteIOPS: 1}, false,
			`{"bandwidth":{"size":13,"refill_time":1000},"ops":{"size":2,"refill_time":1000}}`},
	} {
		if got, _ := json.Marshal(c.r.disk(c.readOnly)); string(got) != c.want {
			t.Errorf("%+v, %v: %s, not %s", c.r, c.readOnly, got, c.want)
		}
	}
}
