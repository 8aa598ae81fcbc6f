package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

func TestNeighbourTable(t *testing.T) {
	const two = `entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast periodic_gc_runs forced_gc_runs unresolved_discards table_fulls
00000401 000018b3 00001da0 00000006   0002969d 00012979 00000094   00000000         00000000         000004fd         00000002       00000000            00000001
00000401 0000172a 0000123b 00000002   0001fc63 0000b7dc 000000d3   00000000         00000000         00000000         0000000c       00000000            0000000a
`
	for text, want := range map[string][2]int{two: {1025, 11}, "": {}, "entries\n\nzz 5 5\n": {}} {
		if used, full := neighbourTable(text); used != want[0] || full != want[1] {
			t.Errorf("%q: %d, %d", text, used, full)
		}
	}
}

// A worker that is started by "ip netns exec" does not see the machine's cgroups, and says so.
func TestIPNetnsExec(t *testing.T) {
	ip, err := exec.LookPath("ip")
	if err != nil || os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "ip netns exec", Why: "it needs iproute2 and root"})
	}
	skerry, err := exec.LookPath("skerry") // testscript's
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("skerry-test-%d", os.Getpid())
	if out, err := exec.Command(ip, "netns", "add", name).CombinedOutput(); err != nil {
		t.Skip(&testenv.Unsupported{What: "ip netns add", Why: string(out)})
	}
	t.Cleanup(func() {
		if out, err := exec.Command(ip, "netns", "del", name).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	dir := t.TempDir()
	says := fmt.Sprintf("the machine's cgroups are hidden: `ip netns exec %s` has mounted another /sys over them\n", name)
	cure := fmt.Sprintf(": start it by `nsenter --net=/run/netns/%s`, which leaves the mounts as they are\n", name)
	for _, c := range []struct{ args, says, cure string }{
		{"worker check --data " + dir, "error: runtime oci: " + says, "hint" + cure},
		{"worker --data " + dir + " --cluster 127.0.0.1:1", says, "hint" + cure},
		{"doctor --data " + dir, "cgroups: " + says, "cure" + cure},
		{"doctor --data " + dir, "runtimes: runtime oci: " + says, "cure" + cure},
	} {
		cmd := exec.CommandContext(t.Context(), ip, append([]string{"netns", "exec", name, skerry}, strings.Fields(c.args)...)...)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.says) || !strings.Contains(string(out), c.cure) {
			t.Errorf("%s ended with %v and lacks %q or %q:\n%s", c.args, err, c.says, c.cure, out)
		}
	}
	// The remedy works.
	if nsenter, err := exec.LookPath("nsenter"); err == nil {
		cmd := exec.CommandContext(t.Context(), nsenter, "--net=/run/netns/"+name, skerry, "doctor", "--data", dir)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		if out, _ := cmd.CombinedOutput(); !regexp.MustCompile(`(?m)^cgroups +ok `).Match(out) {
			t.Errorf("nsenter:\n%s", out)
		}
	}
}
