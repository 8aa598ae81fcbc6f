//go:build linux && amd64

package guest

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

var speed = flag.Bool("speed", false, "have TestWireGuard compare the speed of both ways, which takes two minutes")

// TestWireGuard runs two workers in one guest, each in a network namespace of its own and with a cable to the cluster, whose
// kernel has WireGuard: what their instances say to each other goes by it, and by the datapath when it does not get through.
func TestWireGuard(t *testing.T) {
	testenv.Long(t, "overlay/wireguard and its worlds in overlay/tunnel")
	dir := t.TempDir()
	installed(t, dir)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "talk"), "./e2e/guest/talk")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := boot(t, plain, image(t), dir)
	g := &pair{machine: m}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"roles", g.roles},
		{"by WireGuard", g.by},
		{"wire", g.wire},
		{"agent killed", g.killed},
		{"port blocked", g.blocked},
		{"device deleted", g.deleted},
		{"behind NATs", g.nats},
		{"speed", g.speed}, // with -speed alone
		{"gone", g.gone},
	} {
		if step.name == "speed" && !*speed {
			continue
		}
		if !t.Run(step.name, step.run) {
			if m.dead == nil {
				for _, w := range []string{"wa", "wb"} {
					m.run(t, g.in(w, "skerry worker status --data /var/lib/"+w+"; skerry worker status -o json --data /var/lib/"+w+" | tr -d '\\n ' | cut -c1-2500; ip -d link show type wireguard; journalctl -b --no-pager -n 25 -u "+w+" | cut -c1-300"))
				}
				m.run(t, "skerry get instances; skerry logs net/client | tail -3")
			}
			return
		}
	}
}

// pair is a guest with two workers, wa and wb.
type pair struct {
	*machine
}

const (
	wgPort = 51820
	dpPort = 7446
)

// in gives a script that runs where a worker is, with the machine's own mounts.
func (g *pair) in(worker, script string) string {
	return fmt.Sprintf("nsenter --net=/run/netns/%s sh -c '%s'", worker, strings.ReplaceAll(script, "'", `'\''`))
}

func (g *pair) roles(t *testing.T) {
	g.must(t, "mkdir /payload && mount -o ro /dev/nvme1n1 /payload && cp -a /payload/stage/. / && systemctl daemon-reload && cp -r /payload/etc/. /etc/ && cp /payload/talk /usr/local/bin/")
	g.must(t, "ip link add br0 type bridge && ip addr add 10.9.0.1/24 dev br0 && sysctl -qw net.ipv6.conf.br0.disable_ipv6=1 && ip link set br0 up")
	for i, w := range []string{"wa", "wb"} {
		g.must(t, fmt.Sprintf(`ip netns add %[1]s && ip link add %[1]s type veth peer name eth0 netns %[1]s && ip link set %[1]s master br0 up &&
			ip -n %[1]s addr add 10.9.0.%[2]d/24 dev eth0 && ip -n %[1]s link set eth0 up && ip -n %[1]s link set lo up && ip -n %[1]s route add default via 10.9.0.1 &&
			nsenter --net=/run/netns/%[1]s sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1 && sysctl -qw net.ipv6.conf.%[1]s.disable_ipv6=1`, w, i+2))
	}
	g.must(t, `systemctl enable --now skerry-root && token=$(skerry token create --role cluster --data /var/lib/skerry/root) &&
		echo "SKERRY_JOIN=$token" >>/etc/skerry/cluster.env && systemctl enable --now skerry-cluster`)
	for _, w := range []string{"wa", "wb"} {
		g.must(t, fmt.Sprintf(`token=$(skerry token create --role worker --data /var/lib/skerry/cluster) &&
			systemd-run -q --unit %[1]s --service-type=notify -p Restart=always -p RestartSec=1 -p KillMode=process nsenter --net=/run/netns/%[1]s /usr/local/bin/skerry worker \
			--name %[1]s --cluster 10.9.0.1 --join $token --data /var/lib/%[1]s --wireguard-port %[2]d --overlay-port %[3]d --probe-address off`, w, wgPort, dpPort))
		g.await(t, g.in(w, "skerry worker status --data /var/lib/"+w+" | grep '^Parent: *connected'"))
		g.await(t, g.in(w, fmt.Sprintf("skerry worker status --data /var/lib/%s | grep '^WireGuard: *kernel, UDP port %d$'", w, wgPort)))
	}
	g.must(t, "skerry login --trust -u admin --password-file /var/lib/skerry/root/admin-password 127.0.0.1")
}

// way waits until a worker reaches the other one in a way, and gives the line that tells of it.
func (g *pair) way(t *testing.T, worker, way string) string {
	t.Helper()
	return g.await(t, g.in(worker, fmt.Sprintf("skerry worker status --data /var/lib/%s | grep -E '^w[ab]  *%s '", worker, way)))
}

const byKernel = `wireguard \(kernel\)`

func (g *pair) by(t *testing.T) {
	g.must(t, "skerry apply -f /payload/net.yaml")
	for _, w := range []string{"wa", "wb"} {
		g.way(t, w, byKernel+fmt.Sprintf(` *10\.9\.0\.[23]:%d *[0-9.]+[mµ]?s *0\.0%%`, wgPort))
	}
	g.flows(t)
	// 1500 - 120 for instances, and 40 around them.
	if mtu := g.must(t, g.in("wa", "ip -o link show type wireguard | grep -o 'mtu [0-9]*'; ip -o addr show type wireguard")); mtu != "mtu 1420" {
		t.Errorf("MTU and addresses of the device: %q", mtu)
	}
}

// flows says that datagrams of all sizes get through, and that the connection goes on.
func (g *pair) flows(t *testing.T) {
	t.Helper()
	for _, size := range []int{1, 100, 1352, 9000} { // 1352 is what fits into one packet
		if out := g.must(t, fmt.Sprintf("skerry exec net/client -- /usr/local/bin/talk udp 10.30.1.1:9000 %d 20", size)); out != "all came back" {
			t.Errorf("datagrams of %d bytes: %s", size, out)
		}
	}
	g.goesOn(t)
}

// goesOn says that the one connection of the client is still the first, and carries large messages.
func (g *pair) goesOn(t *testing.T) {
	t.Helper()
	n := g.messages(t)
	g.await(t, fmt.Sprintf("test $(skerry logs net/client | tail -n 1 | cut -d' ' -f2) -gt %d", n+45))
	if out := g.must(t, "skerry logs net/client | grep -vc '^message '"); out != "1" {
		t.Errorf("the client said: %s", g.must(t, "skerry logs net/client | grep -v '^message '"))
	}
	for _, i := range g.instances(t) {
		if i.Restarts != 0 {
			t.Errorf("%s was restarted", i.ID)
		}
	}
}

func (g *pair) messages(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(g.must(t, "skerry logs net/client | tail -n 1 | cut -d' ' -f2"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// seen is what talk tells of the wire.
type seen struct {
	WireGuard, Datapath, Control, Readable int
	Other                                  map[string]int
}

// look gives what was on wa's cable while f ran.
func (g *pair) look(t *testing.T, f func()) seen {
	t.Helper()
	g.must(t, fmt.Sprintf("rm -f /run/wire.json; systemd-run -q --collect --unit wire /usr/local/bin/talk wire wa /run/wire.json %d %d 10.9.0.2 10.9.0.3", wgPort, dpPort))
	g.await(t, "test -s /run/wire.json")
	f()
	g.must(t, "sleep 1; systemctl stop wire")
	var s seen
	if err := json.Unmarshal([]byte(g.must(t, "cat /run/wire.json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Readable != 0 || len(s.Other) != 0 {
		t.Errorf("on the wire there were %d readable packets, and others: %v", s.Readable, slices.Sorted(maps.Keys(s.Other)))
	}
	return s
}

// wire looks at what other machines would see.
func (g *pair) wire(t *testing.T) {
	g.goes(t, g.look(t, func() { g.flows(t) }))
}

// goes says that what was said went by WireGuard. The datapath asks its own questions; and where the guest has so little of a processor that answers to
// four questions in a row are late, it carries some messages until WireGuard has proved itself again.
func (g *pair) goes(t *testing.T, s seen) {
	t.Helper()
	if s.WireGuard < 500 || s.Datapath > max(50, s.WireGuard/5) {
		t.Errorf("%d datagrams of WireGuard, %d of the datapath", s.WireGuard, s.Datapath)
	}
}

// killed ends the agents, which nothing that goes by the kernel may notice.
func (g *pair) killed(t *testing.T) {
	g.goes(t, g.look(t, func() {
		for _, w := range []string{"wa", "wb"} {
			g.must(t, crash(w, "--kill-whom=main"))
			g.await(t, g.in(w, "skerry worker status --data /var/lib/"+w+" | grep '^Parent: *connected'"))
			g.way(t, w, byKernel)
		}
		g.goesOn(t)
		// Nor while there is none.
		g.must(t, "systemctl kill -s STOP --kill-whom=main wa wb")
		g.must(t, "sleep 5")
		g.must(t, "systemctl kill -s CONT --kill-whom=main wa wb")
		g.goesOn(t)
	}))
}

// blocked keeps WireGuard's datagrams from getting through.
func (g *pair) blocked(t *testing.T) {
	g.block(t)
	for _, w := range []string{"wa", "wb"} {
		line := g.way(t, w, "direct")
		if !strings.Contains(line, "no kernel WireGuard: nothing answers by it any more since ") {
			t.Errorf("the reason is missing: %s", line)
		}
	}
	s := g.look(t, func() { g.flows(t) })
	if s.Datapath < 500 {
		t.Errorf("%d datagrams of the datapath", s.Datapath)
	}
	g.unblock(t)
	g.goesOn(t)
}

func (g *pair) block(t *testing.T) {
	t.Helper()
	g.must(t, g.in("wa", fmt.Sprintf(`nft "table inet block { chain in { type filter hook prerouting priority -400; udp dport %[1]d drop; }; chain out { type filter hook output priority -400; udp dport %[1]d drop; }; }"`, wgPort)))
}

func (g *pair) unblock(t *testing.T) {
	t.Helper()
	g.must(t, g.in("wa", "nft delete table inet block"))
	g.way(t, "wa", byKernel)
	g.way(t, "wb", byKernel)
}

// deleted takes the device away, which the agent makes anew.
func (g *pair) deleted(t *testing.T) {
	g.must(t, g.in("wa", "ip link del $(ip -o link show type wireguard | cut -d: -f2)"))
	g.await(t, g.in("wa", "ip -o link show type wireguard | grep ."))
	g.way(t, "wa", byKernel)
	g.way(t, "wb", byKernel)
	g.flows(t)
}

// nats moves both workers behind NATs of their own, which give their ports other numbers, the same ones to whoever they are used for,
// and let in what was asked for alone. WireGuard's own port is punched, and the connection goes on.
func (g *pair) nats(t *testing.T) {
	for i, w := range []string{"wa", "wb"} {
		g.must(t, fmt.Sprintf(`ip netns add n%[1]s && ip link add n%[1]s type veth peer name out netns n%[1]s && ip link set n%[1]s master br0 up && sysctl -qw net.ipv6.conf.n%[1]s.disable_ipv6=1 &&
			ip -n n%[1]s addr add 10.9.0.%[2]d/24 dev out && ip -n n%[1]s link set out up &&
			ip -n n%[1]s link add in type veth peer name eth1 netns %[1]s && ip -n n%[1]s addr add 10.8.%[2]d.1/24 dev in && ip -n n%[1]s link set in up && nsenter --net=/run/netns/n%[1]s sysctl -qw net.ipv4.ip_forward=1 &&
			nsenter --net=/run/netns/n%[1]s nft "table ip nat {
				chain post { type nat hook postrouting priority 100; oifname out udp sport %[3]d snat to 10.9.0.%[2]d:4%[2]d20; oifname out udp sport %[4]d snat to 10.9.0.%[2]d:4%[2]d46; oifname out masquerade; }
				chain own { type filter hook input priority 0; iifname out ct state new drop; }; }" &&
			ip -n %[1]s link del eth0 && ip -n %[1]s addr add 10.8.%[2]d.2/24 dev eth1 && ip -n %[1]s link set eth1 up && ip -n %[1]s route add default via 10.8.%[2]d.1`, w, 12+i, wgPort, dpPort))
	}
	for w, at := range map[string]string{"wa": "10.9.0.13:41320", "wb": "10.9.0.12:41220"} {
		g.await(t, g.in(w, fmt.Sprintf("skerry worker status --data /var/lib/%s | grep -E '^w[ab]  *%s  *%s '", w, byKernel, at)))
	}
	g.flows(t)
}

// speed compares both ways. An emulated processor says nothing about either, and little about which is faster.
func (g *pair) speed(t *testing.T) {
	sum := map[string]float64{}
	for range 3 {
		for _, way := range []string{byKernel, "direct"} {
			if way == "direct" {
				g.block(t)
			}
			g.way(t, "wa", way)
			g.way(t, "wb", way)
			n, err := strconv.ParseFloat(g.must(t, "skerry exec net/client -- /usr/local/bin/talk bulk 10.30.1.1:9001 5"), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum[way] += n / 3
			if way == "direct" {
				g.unblock(t)
			}
		}
	}
	t.Logf("one TCP stream, emulated processor: kernel WireGuard %.0f Mbit/s, datapath %.0f Mbit/s: %.2f", sum[byKernel], sum["direct"], sum[byKernel]/sum["direct"])
}

// gone removes a worker's traces.
func (g *pair) gone(t *testing.T) {
	g.must(t, "skerry delete app net --wait")
	g.must(t, "systemctl stop wa && "+g.in("wa", "skerry worker cleanup --data /var/lib/wa --yes"))
	if out := g.must(t, g.in("wa", "ip -o link show type wireguard")); out != "" {
		t.Errorf("what is left: %s", out)
	}
}
