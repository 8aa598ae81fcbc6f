package device

import (
	"fmt"
	"strings"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
)

// published000 names, for cases, the row of the RISC-V paper (000) that measures the same with the same tool, or the same operation: native
// against a container under KubeEdge, on a RISC-V and an ARM64 board.
func published000(id string) (table, row string) {
	for _, k := range [][3]string{
		{"cpu.sysbench.n", "1", "Sysbench CPU"},
		{"memory.copy.n", "1", "Stream Copy"}, {"memory.scale.n", "1", "Stream Scale"}, {"memory.add.n", "1", "Stream Add"},
		{"memory.triad.n", "1", "Stream Triad"},
		{"cpu.7zip.compress", "2", "7-Zip Comp."}, {"cpu.7zip.decompress", "2", "7-Zip Decomp."},
		{"cpu.openssl.sha256", "2", "OpenSSL SHA256"}, {"cpu.openssl.rsa4096", "2", "OpenSSL RSA4096_s"},
		{"cpu.openssl.aes256", "2", "OpenSSL AES-256"}, {"cpu.openssl.chacha20", "2", "OpenSSL ChaCha20"},
		{"cpu.openssl.poly1305", "2", "OpenSSL Poly1305"}, {"cpu.openssl.sha512", "2", "OpenSSL SHA512"},
		{"cpu.openssl.aes128", "2", "OpenSSL AES-128"}, {"cpu.openssl.rsa4096v", "2", "OpenSSL RSA4096_v"},
		{"cpu.lavamd.n", "2", "Rodinia LavaMD"}, {"cpu.x265.1080p", "2", "x265 Bos. 1080p"}, {"cpu.x265.2160p", "2", "x265 Bos. 4K"},
		{"cpu.povray", "2", "POV-Ray Trace"},
		{"disk.files.empty.overlay", "3", "OSBench Create Files"}, {"disk.files.empty.mount", "3", "OSBench Create Files, mount"},
		{"os.thread", "3", "OSBench C. Thread"}, {"os.fork", "3", "OSBench C. Processes"}, {"os.exec", "3", "OSBench Launch Prog."},
		{"os.malloc", "3", "OSBench Malloc"},
		{"ipc.tcp.64", "3", "IPC bench. TCP Socket"}, {"ipc.pipe.64", "3", "IPC bench. PIPE Un."}, {"ipc.fifo.64", "3", "IPC bench. PIPE FIFO"},
		{"ipc.unix.64", "3", "IPC bench. Unix Socket"},
		{"os.stress-ng.mutex", "3", "Stress-ng Mutex"}, {"os.stress-ng.malloc", "3", "Stress-ng Malloc"},
		{"os.stress-ng.fork", "3", "Stress-ng Forking"}, {"os.stress-ng.pthread", "3", "Stress-ng Pthread"},
		{"os.stress-ng.sem", "3", "Stress-ng Semaphores"},
		{"cpu.stress-ng.cache", "3", "Stress-ng CPU cache"}, {"cpu.stress-ng.matrix", "3", "Stress-ng Matrix Math"},
		{"cpu.stress-ng.vecmath", "3", "Stress-ng Vector Math"},
		{"cpu.stress-ng.func-call", "3", "Stress-ng Functions"}, {"os.stress-ng.context", "3", "Stress-ng Cntx switch"},
	} {
		if k[0] == id {
			return k[1], k[2]
		}
	}
	return "", ""
}

// published001 names, for cases, the column of the paper about a Cubieboard2 (001) that measures the same.
func published001(id string) (table, column string) {
	at := map[string][2]string{"cpu.index.memory": {"I", "memory index"}, "cpu.index.integer": {"I", "integer index"},
		"cpu.index.floating": {"I", "floating-point index"}, "cpu.sysbench.large.latency": {"II", "second"}, "memory.copy.n": {"III", "copy"},
		"memory.scale.n": {"III", "scale"}, "memory.add.n": {"III", "add"}, "memory.triad.n": {"III", "triad"}}[id]
	return at[0], at[1]
}

// beside says what was published for a case: how many times the bare machine's figure the container's is. The paper has losses in
// percent, bare/measured - 1 where lower is better and measured/bare - 1 where higher is.
func beside(set *published.Set, c *Case) string {
	var out []string
	say := func(document, table string, words []string) {
		if len(words) > 0 {
			out = append(out, fmt.Sprintf("%s (%s table %s)", strings.Join(words, ", "), document, table))
		}
	}
	if table, row := published000(c.ID); table != "" {
		var words []string
		for _, f := range set.Find(published.Query{Document: "000", Table: table, Row: row}) {
			if machine, ok := strings.CutSuffix(f.Column, " overhead"); ok && f.Value != nil {
				times := 1 + *f.Value/100
				if c.Better == report.Lower {
					times = 1 / times
				}
				words = append(words, fmt.Sprintf("%s %.2fx", machine, times))
			}
		}
		say("000", table, words)
	}
	if table, column := published001(c.ID); table != "" {
		var words []string
		for _, f := range set.Find(published.Query{Document: "001", Table: table, Column: column + " change"}) {
			if f.Value != nil { // measured / native - 1, in percent
				words = append(words, fmt.Sprintf("%s %.2fx", f.Row, 1+*f.Value/100))
			}
		}
		say("001", table, words)
	}
	return strings.Join(out, "; ")
}
