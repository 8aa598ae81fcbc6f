package device

import (
	"fmt"
	"strconv"
	"strings"

	"skerry.dev/skerry/bench/report"
)

// Bare is the place that others are compared with.
const Bare = "bare"

// Classes of cases, as Figure 4 of the RISC-V paper (000, section 5) groups them.
const (
	Application = "application"
	System      = "system" // what the operating system does
)

// Case is something to measure. Its program prints what it found; parse reads that.
type Case struct {
	ID     string
	Group  string // cpu, memory, disk, os, ipc, net
	Class  string
	Title  string
	Unit   string
	Better string
	Tool   string

	args  func(size) []string
	parse func([]byte) (float64, error)
	// memory is the limit of the case where there is one, in bytes; killed says that the kernel is to end the program for it, and
	// what is measured is whether it does.
	memory int64
	killed bool
	// wired runs it beside another machine, whose address and port stand for addressHere and portHere; plain has the cable between them carry
	// packets as a wire does, without segmentation offload.
	wired, plain bool
	// mount has the directory of the files bind-mounted from the host, in place of one of the task's root file system.
	mount bool
	// copies of it run at once where it is not 0, each in an isolation of its own; what is measured is their sum.
	copies int
	// curve and at: see report.Figure.
	curve string
	at    float64
	// room is the memory of its task, in bytes, where it needs more than others.
	room int64
}

// figure is a case in a place, in a report.
func (c *Case) figure(r *report.Report, place string) *report.Figure {
	f := r.Figure(c.Group, strings.TrimPrefix(c.ID, c.Group+"."), place)
	f.Unit, f.Better, f.About, f.Curve, f.At = c.Unit, c.Better, c.Title, c.curve, c.at
	return f
}

// timed says that a case's program works for a time, and not until something is done.
func (c *Case) timed() bool {
	return c.wired || c.Tool != toolKernels && c.Tool != "7za" && c.Tool != "dd"
}

// size says how long a case takes.
type size struct {
	seconds int // of a tool that is told so
	scale   int // by which the work of the kernels is divided
	cores   int
	dir     string // for files
}

func (s size) n(work int) string { return strconv.Itoa(max(1, work/s.scale)) }

// kernel makes a case of a program of ours.
func kernel(id, group, title, unit, better, figure string, args func(size) []string) Case {
	return Case{ID: id, Group: group, Class: System, Title: title, Unit: unit, Better: better, Tool: toolKernels, args: args,
		parse: field(figure)}
}

// Catalogue lists the cases in the order of the report.
func Catalogue() []Case {
	fixed := func(args ...string) func(size) []string { return func(size) []string { return args } }
	var out []Case
	add := func(c Case) { out = append(out, c) }
	application := func(c Case) {
		c.Class = Application
		add(c)
	}

	// Processor: sysbench as in Table 1 of 000, and the tools of its Table 2 that Debian has.
	for _, threads := range []string{"1", "n"} {
		add(Case{ID: "cpu.sysbench." + threads, Group: "cpu", Class: Application, Title: "sysbench, primes, threads: " + threads,
			Unit: "events/s", Better: report.Higher, Tool: "sysbench", args: func(s size) []string {
				return []string{"cpu", "--threads=" + s.threads(threads), "--cpu-max-prime=10000", "--time=" + strconv.Itoa(s.seconds), "run"}
			}, parse: sysbenchEvents})
	}
	for _, f := range []struct {
		id, unit, better string
		parse            func([]byte) (float64, error)
	}{{"events", "events/s", report.Higher, sysbenchEvents}, {"latency", "ms", report.Lower, sysbenchLatency}} { // as 001 has it
		add(Case{ID: "cpu.sysbench.large." + f.id, Group: "cpu", Class: Application, Title: "sysbench, primes to 10^6, 4 threads, " + f.id,
			Unit: f.unit, Better: f.better, Tool: "sysbench", args: func(s size) []string {
				return []string{"cpu", "--threads=4", "--cpu-max-prime=1000000", "--time=" + strconv.Itoa(s.seconds), "run"}
			}, parse: f.parse})
	}
	application(kernel("cpu.primes", "cpu", "sieve of 10^6, one thread", "sieves/s", report.Higher, "sieves",
		func(s size) []string { return []string{"primes", "1000000", s.n(400)} }))
	for _, kind := range []string{"integer", "memory", "floating"} { // the indices of Table 1 of 001
		application(kernel("cpu.index."+kind, "cpu", "index like nbench's, "+kind, "runs/s", report.Higher, "index",
			func(s size) []string { return []string{"index", kind, strconv.Itoa(1000 * s.seconds)} }))
	}
	application(kernel("cpu.linpack", "cpu", "LINPACK, N = 2000", "MFLOPS", report.Higher, "mflops",
		func(s size) []string { return []string{"linpack", s.order(2000)} }))
	for _, way := range []string{"compress", "decompress"} {
		add(Case{ID: "cpu.7zip." + way, Group: "cpu", Class: Application, Title: "7-Zip, " + way, Unit: "MIPS",
			Better: report.Higher, Tool: "7za", parse: sevenZip(way),
			args: func(s size) []string { return []string{"b", "1", "-mmt1", "-md" + s.dictionary()} }})
	}
	for _, c := range []struct{ id, name string }{{"sha256", "SHA-256"}, {"sha512", "SHA-512"}, {"aes128", "AES-128-GCM"},
		{"aes256", "AES-256-GCM"}, {"chacha20", "ChaCha20"}, {"poly1305", "ChaCha20-Poly1305"}} {
		add(Case{ID: "cpu.openssl." + c.id, Group: "cpu", Class: Application, Title: "OpenSSL, " + c.name + ", 16 KiB", Unit: "MB/s",
			Better: report.Higher, Tool: "openssl", args: func(s size) []string {
				return []string{"speed", "-seconds", strconv.Itoa(s.seconds), "-bytes", "16384", "-evp", c.name}
			}, parse: opensslBytes})
	}
	for i, way := range []string{"signatures", "verifications"} {
		add(Case{ID: "cpu.openssl.rsa4096" + []string{"", "v"}[i], Group: "cpu", Class: Application, Title: "OpenSSL, RSA-4096, " + way,
			Unit: "1/s", Better: report.Higher, Tool: "openssl",
			args: func(s size) []string { return []string{"speed", "-seconds", strconv.Itoa(s.seconds), "rsa4096"} }, parse: opensslRSA(i)})
	}
	for _, threads := range []string{"1", "n"} {
		application(kernel("cpu.lavamd."+threads, "cpu", "LavaMD, particles in boxes, threads: "+threads, "10^6 pairs/s", report.Higher,
			"mpairs",
			func(s size) []string {
				return []string{"lavamd", map[bool]string{true: "4", false: "8"}[s.scale > 1], s.threads(threads)}
			}))
	}
	for _, c := range mediaCases() {
		application(c)
	}
	for _, name := range []string{"matrix", "vecmath", "cache", "func-call"} {
		add(stressor("cpu", Application, name))
	}

	// Memory: STREAM as in Table 1 of 000, sysbench as in its Table 7.
	for _, threads := range []string{"1", "n"} { // the four are figures of one run
		for _, name := range []string{"copy", "scale", "add", "triad"} {
			application(kernel("memory."+name+"."+threads, "memory", "STREAM, "+name+", threads: "+threads, "MB/s", report.Higher, name,
				func(s size) []string { return []string{"stream", s.n(20_000_000), s.threads(threads), "4"} }))
		}
	}
	large := kernel("memory.large", "memory", "STREAM, triad, 1.8 GB, threads: n", "MB/s", report.Higher, "triad",
		func(s size) []string { return []string{"stream", s.n(75_000_000), s.threads("n"), "2"} })
	large.room = 2500 << 20
	application(large)
	for _, threads := range []string{"1", "4", "n"} {
		add(sysbenchMemoryCase(threads, 0))
	}
	add(sysbenchMemoryCase("1", 4))

	// Files: what the task's own root file system does, and a directory of the host's mounted into it (Table 3 of 000).
	// Buffered and durable are two figures.
	for _, mount := range []bool{false, true} {
		where, title := ".overlay", "in the root file system"
		if mount {
			where, title = ".mount", "in a mounted directory"
		}
		for _, f := range []struct{ id, title, size string }{{"empty", "empty files", "0"}, {"1k", "files of 1 KiB", "1024"},
			{"1m", "files of 1 MiB", "1048576"}} {
			work := map[string]int{"empty": 20000, "1k": 20000, "1m": 400}[f.id]
			c := kernel("disk.files."+f.id+where, "disk", "make and delete "+f.title+" "+title, "us", report.Lower, "us",
				func(s size) []string { return []string{"files", s.n(work), f.size, s.dir} })
			c.mount = mount
			add(c)
		}
		appended := kernel("disk.append"+where, "disk", "append 1 KiB to a file "+title, "us", report.Lower, "us",
			func(s size) []string { return []string{"append", s.n(20000), "1024", s.dir} })
		appended.mount = mount
		add(appended)
		mixed := kernel("disk.mixed"+where, "disk", "a server's files made, read, appended to and deleted "+title, "MB/s", report.Higher,
			"mbytes", func(s size) []string { return []string{"mixed", s.n(4000), s.dir} })
		mixed.mount = mount
		add(mixed)
		for i, what := range []string{"write", "rewrite", "read", "seeks"} {
			unit := "MB/s"
			if what == "seeks" {
				unit = "1/s"
			}
			add(Case{ID: "disk.bonnie." + what + where, Group: "disk", Class: System, Title: "bonnie++, 3 GiB, " + what + " " + title, Unit: unit,
				Better: report.Higher, Tool: "bonnie++", mount: mount, args: func(s size) []string {
					mib := 3072
					if s.scale > 1 {
						mib = 1024 // with less it finds that it is over too soon
					}
					return []string{"-d", s.dir, "-s", strconv.Itoa(mib), "-r", strconv.Itoa(mib / 2), "-n", "0", "-f", "-q", "-x", "1", "-u", "root",
						"-m", "device"}
				}, parse: bonnie(i)})
		}
		add(Case{ID: "disk.dd" + where, Group: "disk", Class: System, Title: "dd, 3 GiB, 1 MiB at a time, durable, " + title, Unit: "MB/s",
			Better: report.Higher, Tool: "dd", mount: mount, args: func(s size) []string {
				return []string{"if=/dev/zero", "of=" + s.dir + "/dd", "bs=1M", "count=" + s.n(3072), "conv=fdatasync"}
			}, parse: ddSpeed})
		for _, f := range []struct{ id, rw, bs, how string }{
			{"read.seq", "read", "1m", "buffered"}, {"write.seq", "write", "1m", "buffered"}, {"write.durable", "write", "64k", "durable"},
			{"read.random", "randread", "4k", "buffered"}, {"write.random", "randwrite", "4k", "buffered"},
		} {
			add(Case{ID: "disk." + f.id + where, Group: "disk", Class: System, Title: fmt.Sprintf("fio, %s, %s, %s, %s", f.rw, f.bs, f.how, title),
				Unit: "MB/s", Better: report.Higher, Tool: "fio", mount: mount, args: fio(f.rw, f.bs, f.how == "durable"), parse: fioBandwidth})
		}
	}

	// The operating system: Tables 3 and 4 of 000.
	os := func(id, title, unit string, args func(size) []string) {
		add(kernel("os."+id, "os", title, unit, report.Lower, unit, args))
	}
	os("syscall", "one system call", "ns", func(s size) []string { return []string{"syscall", s.n(10_000_000)} })
	os("fork", "make a process", "us", func(s size) []string { return []string{"fork", s.n(2000)} })
	os("exec", "launch a program", "us", func(s size) []string { return []string{"exec", s.n(1000)} })
	os("thread", "make a thread", "us", func(s size) []string { return []string{"thread", s.n(10000)} })
	os("switch", "switch to another process and back", "us", func(s size) []string { return []string{"switch", s.n(100_000)} })
	os("malloc", "allocate memory", "ns", func(s size) []string { return []string{"malloc", s.n(10_000_000)} })
	os("mutex", "take and give a mutex, two threads", "ns", func(s size) []string { return []string{"mutex", s.n(10_000_000)} })
	os("sem", "wake another thread and be woken", "ns", func(s size) []string { return []string{"sem", s.n(50_000)} })
	for _, kind := range []string{"pipe", "fifo", "unix", "tcp"} {
		for _, bytes := range []string{"64", "4096"} {
			add(kernel("ipc."+kind+"."+bytes, "ipc", kind+", message and answer of "+bytes+" bytes", "us", report.Lower, "us",
				func(s size) []string { return []string{"ipc", kind, bytes, s.n(50_000)} }))
		}
	}
	out = append(append(out, sweepCases()...), networkCases()...)
	for _, name := range []string{"fork", "pthread", "sem", "context", "mutex", "malloc"} {
		add(stressor("os", System, name))
	}
	oom := kernel("os.oom", "os", "allocate 256 MiB where 128 are allowed: it is killed (1) or not (0)", "killed", report.Higher, "mib",
		fixed("memory", "256"))
	oom.memory, oom.killed = 128<<20, true
	add(oom)
	return out
}

// sysbenchMemoryCase writes memory with so many threads, in so many copies at once.
func sysbenchMemoryCase(threads string, copies int) Case {
	id, title, room := threads, "sysbench, writes of 1 KiB, threads: "+threads, int64(0)
	if copies > 0 {
		room = 256 << 20 // a small device has no more for each
		id, title = fmt.Sprintf("%dx%s", copies, threads), fmt.Sprintf("%s, %d at once", title, copies)
	}
	return Case{ID: "memory.sysbench." + id, Group: "memory", Class: Application, Title: title, Unit: "MiB/s", Better: report.Higher,
		Tool: "sysbench", copies: copies, room: room, args: func(s size) []string {
			return []string{"memory", "--threads=" + s.threads(threads), "--memory-total-size=1T", "--time=" + strconv.Itoa(s.seconds), "run"}
		}, parse: sysbenchMemory}
}

// stressor is one of stress-ng's.
func stressor(group, class, name string) Case {
	return Case{ID: group + ".stress-ng." + name, Group: group, Class: class, Title: "stress-ng, " + name, Unit: "bogo ops/s",
		Better: report.Higher, Tool: "stress-ng", args: func(s size) []string {
			return []string{"--" + name, "1", "--metrics-brief", "-t", strconv.Itoa(s.seconds)}
		},
		parse: stressNG(name)}
}

func (s size) threads(n string) string {
	if n == "n" {
		return strconv.Itoa(s.cores)
	}
	return n
}

// order is that of a matrix, whose work grows with its third power.
func (s size) order(n int) string {
	for k := s.scale; k >= 8; k /= 8 {
		n /= 2
	}
	return strconv.Itoa(n)
}

func (s size) dictionary() string {
	if s.scale > 1 {
		return "18"
	}
	return "22"
}
