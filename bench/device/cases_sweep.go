package device

import (
	"fmt"
	"strconv"

	"skerry.dev/skerry/bench/report"
)

// sweepGroup are file requests of every size, as 003 has them. They are run only where they are asked for: one run of each in one
// place takes minutes.
const sweepGroup = "sweep"

// sweepCases read and write a directory of the host, so that places differ by how they reach it alone.
func sweepCases() (out []Case) {
	for _, kind := range [][2]string{{"read", "sequential reads"}, {"write", "sequential writes"}, {"randread", "random reads"},
		{"randwrite", "random writes"}} {
		for bytes := 256; bytes <= 1<<20; bytes *= 2 {
			out = append(out, Case{ID: fmt.Sprintf("%s.%s.%d", sweepGroup, kind[0], bytes), Group: sweepGroup, Class: System,
				Title: fmt.Sprintf("fio, %s of %d bytes in a mounted directory", kind[1], bytes), Unit: "MB/s", Better: report.Higher, Tool: "fio",
				mount: true, curve: kind[1] + " by bytes of a request", at: float64(bytes), args: fio(kind[0], strconv.Itoa(bytes), false),
				parse: fioBandwidth})
		}
	}
	return out
}

// fio gives the arguments of a run over a file of 64 MiB, flushed after each write where it is durable.
func fio(kind, bytes string, durable bool) func(size) []string {
	return func(s size) []string {
		args := []string{"--name=x", "--filename=" + s.dir + "/fio", "--size=64M", "--rw=" + kind, "--bs=" + bytes, "--ioengine=psync",
			"--time_based", "--runtime=" + strconv.Itoa(s.seconds), "--output-format=json", "--unlink=1", "--thread"}
		if durable {
			args = append(args, "--fdatasync=1")
		}
		return args
	}
}
