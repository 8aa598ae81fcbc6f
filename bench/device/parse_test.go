package device

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		file  string
		parse func([]byte) (float64, error)
		want  float64
	}{
		{"sysbench-cpu.txt", sysbenchEvents, 2427.46},
		{"sysbench-memory.txt", sysbenchMemory, 2740.83},
		{"stress-ng.txt", stressNG("matrix"), 2870.26},
		{"7zip.txt", sevenZip("compress"), 2200},
		{"7zip.txt", sevenZip("decompress"), 1573},
		{"openssl-aes.txt", opensslBytes, 4128.08866},
		{"openssl-rsa.txt", opensslRSA(0), 240},
		{"openssl-rsa.txt", opensslRSA(1), 15718.6},
		{"dd.txt", ddSpeed, 361.5798792019354},
		{"sysbench-large.txt", sysbenchEvents, 4.82},
		{"sysbench-large.txt", sysbenchLatency, 821.43},
		{"x265.txt", x265Frames, 39.69},
		{"povray.txt", povrayTrace, 0.034},
		{"bonnie.csv", bonnie(0), 341.906432},
		{"bonnie.csv", bonnie(1), 1030.6324479999998},
		{"bonnie.csv", bonnie(2), 3856.5611519999998},
		{"bonnie.csv", bonnie(3), 9630.0},
		{"fio.json", fioBandwidth, 55.244851},
	} {
		text, err := os.ReadFile("testdata/" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := c.parse(text); err != nil || v != c.want {
			t.Errorf("%s: %v, %v, want %v", c.file, v, err, c.want)
		}
		// What was cut off is no figure, nor is what another tool printed.
		if v, err := c.parse(text[:20]); err == nil {
			t.Errorf("the beginning of %s gives %v", c.file, v)
		}
		if v, err := c.parse([]byte("Killed\n")); err == nil {
			t.Errorf("%s: nothing gives %v", c.file, v)
		}
	}
	text, err := os.ReadFile("testdata/strace.txt")
	if err != nil {
		t.Fatal(err)
	}
	if calls, err := straceCalls(text); err != nil || len(calls) < 10 || !slices.Contains(calls, "openat") || !slices.IsSorted(calls) || slices.Contains(calls, "total") {
		t.Errorf("%q %v", calls, err)
	}
	if _, err := straceCalls([]byte("strace: attach: ptrace(PTRACE_SEIZE, 1): Operation not permitted\n")); err == nil {
		t.Error("a complaint was taken for system calls")
	}
	if _, err := bonnie(2)([]byte("1.98,2.00a,device,1,1,64M,,8192,5,,,400,46,1,1,,,+++++,+++,1,1" + strings.Repeat(",", 40))); err == nil || !strings.Contains(err.Error(), "too soon") {
		t.Error(err)
	}
	if v, err := field("ns")([]byte("us 7\nns 3.25\n")); v != 3.25 || err != nil {
		t.Error(v, err)
	}
	for _, bad := range []string{"ns NaN\n", "ns -1\n", "ns +Inf\n", "ns x\n", "nanos 3\n"} {
		if v, err := field("ns")([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, v)
		}
	}
}

// Whatever a program prints, there is a figure or an error.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"sysbench-cpu.txt", "sysbench-memory.txt", "stress-ng.txt", "7zip.txt", "openssl-aes.txt", "openssl-rsa.txt", "dd.txt", "fio.json", "sysbench-large.txt", "x265.txt", "povray.txt", "bonnie.csv", "strace.txt"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, parse := range []func([]byte) (float64, error){sysbenchEvents, sysbenchMemory, stressNG("matrix"), sevenZip("compress"), sevenZip("decompress"), opensslBytes, opensslRSA(0), opensslRSA(1), ddSpeed, fioBandwidth, field("ns"), sysbenchLatency, x265Frames, povrayTrace, bonnie(0), bonnie(3)} {
			if v, err := parse(text); err == nil && !(v >= 0 && v < 1e300) {
				t.Errorf("%v is no figure", v)
			}
		}
		if calls, err := straceCalls(text); err == nil && (len(calls) == 0 || slices.Contains(calls, "")) {
			t.Errorf("%q are no system calls", calls)
		}
	})
}
