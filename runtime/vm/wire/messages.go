package wire

// Process is a program to execute in the guest.
type Process struct {
	Args, Env []string
	Dir       string
	UID, GID  uint32
	Groups    []uint32
	TTY       bool
	Size      Size // of the terminal; zero: unknown
}

// Size is that of a terminal.
type Size struct{ Rows, Cols uint32 }

// Config is what the guest is to become.
type Config struct {
	Seed     string // for the guest's random numbers
	Time     uint64 // the host's, in nanoseconds since 1970
	Hostname string
	Process  Process
	// Ambient are capabilities the program gets although it is not root, Drop those it can never have.
	Ambient, Drop []uint32
	NewPrivs      bool
	Privileged    bool
	Rlimits       []Rlimit
	Sysctls       []string // path below /proc/sys and value in turn
	// Scratch says that a second disk is there for what is written to the root; without it the root is read-only.
	Scratch bool
	// Memory in bytes and Pids limit the program; 0 is no limit.
	Memory, Pids uint64
	Mounts       []Mount
	Net          *Net
	// Copied says that the shared directory comes in frames of KindFile, after this one.
	Copied bool
}

// Rlimit is a resource limit by number.
type Rlimit struct {
	Resource   uint32
	Soft, Hard uint64
}

// Mount is one file system at Target. Share is the name below the shared directory of the host, or empty for a tmpfs with the
// options Data. File says that it is a regular file.
type Mount struct {
	Share, Target, Data string
	ReadOnly, File      bool
}

// Net is the guest's only interface: its number, and requests of rtnetlink(7) that give it addresses and routes.
type Net struct {
	Index    uint32
	Requests []string
}

// File is a file, directory or symbolic link of the shared directory, or a part of a file: Path is relative to it, Mode is st_mode, and 0
// for what is gone. Data is the link's target, or what the file has at Offset; with Last set it ends there and takes its place.
type File struct {
	Path           string
	Mode, UID, GID uint32
	Offset         uint64
	Last           bool
	Data           string
}

func (f *File) encode(e *Encoder) {
	e.Str(f.Path)
	e.U32(f.Mode)
	e.U32(f.UID)
	e.U32(f.GID)
	e.U64(f.Offset)
	e.Bool(f.Last)
	e.Str(f.Data)
}

func (f *File) decode(d *Decoder) {
	f.Path, f.Mode, f.UID, f.GID, f.Offset, f.Last, f.Data = d.Str(), d.U32(), d.U32(), d.U32(), d.U64(), d.Bool(), d.Str()
}

// Failure says why a process was not started; Field is that of the runtime's Spec.
type Failure struct{ Field, Message string }

// Exit is how a process ended. Usage is the last one for the task's program.
type Exit struct {
	Code  uint32
	OOM   bool
	Usage Usage
}

// Usage is what the program and its children use, in bytes and numbers.
type Usage struct {
	Memory, WorkingSet, Peak, OOMKills, Pids uint64
}

func (p *Process) encode(e *Encoder) {
	e.Strs(p.Args)
	e.Strs(p.Env)
	e.Str(p.Dir)
	e.U32(p.UID)
	e.U32(p.GID)
	putU32s(e, p.Groups)
	e.Bool(p.TTY)
	p.Size.encode(e)
}

func (p *Process) decode(d *Decoder) {
	p.Args, p.Env, p.Dir, p.UID, p.GID, p.Groups, p.TTY = d.Strs(), d.Strs(), d.Str(), d.U32(), d.U32(), getU32s(d), d.Bool()
	p.Size.decode(d)
}

func (s *Size) encode(e *Encoder) { e.U32(s.Rows); e.U32(s.Cols) }
func (s *Size) decode(d *Decoder) { s.Rows, s.Cols = d.U32(), d.U32() }

func putU32s(e *Encoder, l []uint32) {
	e.U32(uint32(len(l)))
	for _, n := range l {
		e.U32(n)
	}
}

func getU32s(d *Decoder) (l []uint32) {
	n := d.count(4)
	for i := 0; i < n && !d.bad; i++ {
		l = append(l, d.U32())
	}
	return l
}

func (c *Config) encode(e *Encoder) {
	e.Str(c.Seed)
	e.U64(c.Time)
	e.Str(c.Hostname)
	c.Process.encode(e)
	putU32s(e, c.Ambient)
	putU32s(e, c.Drop)
	e.Bool(c.NewPrivs)
	e.Bool(c.Privileged)
	e.U32(uint32(len(c.Rlimits)))
	for _, r := range c.Rlimits {
		e.U32(r.Resource)
		e.U64(r.Soft)
		e.U64(r.Hard)
	}
	e.Strs(c.Sysctls)
	e.Bool(c.Scratch)
	e.U64(c.Memory)
	e.U64(c.Pids)
	e.U32(uint32(len(c.Mounts)))
	for _, m := range c.Mounts {
		e.Str(m.Share)
		e.Str(m.Target)
		e.Str(m.Data)
		e.Bool(m.ReadOnly)
		e.Bool(m.File)
	}
	e.Bool(c.Net != nil)
	if c.Net != nil {
		e.U32(c.Net.Index)
		e.Strs(c.Net.Requests)
	}
	e.Bool(c.Copied)
}

func (c *Config) decode(d *Decoder) {
	c.Seed, c.Time, c.Hostname = d.Str(), d.U64(), d.Str()
	c.Process.decode(d)
	c.Ambient, c.Drop, c.NewPrivs, c.Privileged = getU32s(d), getU32s(d), d.Bool(), d.Bool()
	for n := d.count(20); n > 0 && !d.bad; n-- {
		c.Rlimits = append(c.Rlimits, Rlimit{d.U32(), d.U64(), d.U64()})
	}
	c.Sysctls, c.Scratch, c.Memory, c.Pids = d.Strs(), d.Bool(), d.U64(), d.U64()
	for n := d.count(14); n > 0 && !d.bad; n-- {
		c.Mounts = append(c.Mounts, Mount{d.Str(), d.Str(), d.Str(), d.Bool(), d.Bool()})
	}
	if d.Bool() {
		c.Net = &Net{d.U32(), d.Strs()}
	}
	c.Copied = d.Bool()
}

func (f *Failure) encode(e *Encoder) { e.Str(f.Field); e.Str(f.Message) }
func (f *Failure) decode(d *Decoder) { f.Field, f.Message = d.Str(), d.Str() }

func (x *Exit) encode(e *Encoder) { e.U32(x.Code); e.Bool(x.OOM); x.Usage.encode(e) }
func (x *Exit) decode(d *Decoder) { x.Code, x.OOM = d.U32(), d.Bool(); x.Usage.decode(d) }

func (u *Usage) encode(e *Encoder) {
	for _, n := range []uint64{u.Memory, u.WorkingSet, u.Peak, u.OOMKills, u.Pids} {
		e.U64(n)
	}
}

func (u *Usage) decode(d *Decoder) {
	u.Memory, u.WorkingSet, u.Peak, u.OOMKills, u.Pids = d.U64(), d.U64(), d.U64(), d.U64(), d.U64()
}

// Message is the content of a frame.
type Message interface {
	encode(*Encoder)
	decode(*Decoder)
}

// Encode gives the data of a frame.
func Encode(m Message) []byte {
	var e Encoder
	m.encode(&e)
	return e.b
}

// Decode reads the data of a frame.
func Decode(data []byte, m Message) error {
	d := Decoder{b: data}
	m.decode(&d)
	return d.Done()
}

// Number reads a frame that is one 32-bit number.
func Number(data []byte) (uint32, error) {
	d := Decoder{b: data}
	n := d.U32()
	return n, d.Done()
}
