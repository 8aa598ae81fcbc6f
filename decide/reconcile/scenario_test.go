package reconcile

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

var rewrite = flag.Bool("rewrite", false, "rewrite what the scenarios in testdata/*.txt show")

// TestScenarios plays testdata/*.txt: a line of commands, then "----" and what they show, then an empty line. Lines that
// begin with # tell the story.
//
//	put k=v ... | delete k ...        at the source
//	send                              the source puts what it may on the wire
//	deliver [n] | drop [n]            frames downward, in order, all without n
//	answer [n] | lose [n]             frames upward
//	connect | cut                     a new connection; the end of one, with all that was on the wire
//	wait 6s                           time passes
//	restart source|replica            from its records
//	backup | restore INCARNATION      of the source; restore - does not say so
//	show                              both sides
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play := &play{world: newWorld(t, 1)}
			play.opt.Chunk, play.world.src.opt.Chunk, play.world.rep.opt.Chunk = 90, 90, 90
			var out strings.Builder
			var cmds, skip = []string{}, false
			flush := func() {
				if len(cmds) == 0 {
					return
				}
				out.WriteString("----\n")
				for _, c := range cmds {
					out.WriteString(play.do(c))
				}
				cmds = nil
			}
			for line := range strings.Lines(string(b)) {
				switch line = strings.TrimSuffix(line, "\n"); {
				case line == "----":
					skip = true
					flush()
				case line == "":
					skip = false
					flush()
					out.WriteString("\n")
				case skip:
				case strings.HasPrefix(line, "#"):
					out.WriteString(line + "\n")
				default:
					cmds = append(cmds, line)
					out.WriteString(line + "\n")
				}
			}
			flush()
			if out.String() == string(b) {
				return
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("the story went otherwise:\n%s", out.String())
		})
	}
}

type play struct {
	*world
	backup map[string][]byte
}

func (p *play) do(line string) string {
	f := strings.Fields(line)
	n := 1 << 30
	if len(f) > 1 {
		if i, err := strconv.Atoi(f[1]); err == nil {
			n = i
		}
	}
	var out strings.Builder
	switch f[0] {
	case "put":
		for _, kv := range f[1:] {
			k, v, _ := strings.Cut(kv, "=")
			p.put(k, v)
		}
		p.save()
		fmt.Fprintf(&out, "source is at %s/%d\n", p.src.inc, p.src.gen)
	case "delete":
		for _, k := range f[1:] {
			p.delete(k)
		}
		p.save()
		fmt.Fprintf(&out, "source is at %s/%d\n", p.src.inc, p.src.gen)
	case "send":
		at := len(p.down)
		p.save()
		p.down = append(p.down, p.src.Next(p.now)...)
		for _, m := range p.down[at:] {
			out.WriteString("-> " + tell(m) + "\n")
		}
		if len(p.down) == at {
			out.WriteString("nothing to send\n")
		}
	case "deliver":
		for ; n > 0 && len(p.down) > 0; n-- {
			m := take(p.rng, &p.down, false)
			at := len(p.up)
			o := p.toReplica(m)
			fmt.Fprintf(&out, "-> %s%s\n", tell(m), outcome(o))
			for _, m := range p.up[at:] {
				out.WriteString("   <- " + tell(m) + "\n")
			}
		}
	case "answer":
		for ; n > 0 && len(p.up) > 0; n-- {
			m := take(p.rng, &p.up, false)
			p.src.Handle(p.now, m)
			p.save()
			out.WriteString("<- " + tell(m) + "\n")
		}
	case "drop", "lose":
		q := &p.down
		if f[0] == "lose" {
			q = &p.up
		}
		for ; n > 0 && len(*q) > 0; n-- {
			out.WriteString("lost: " + tell(take(p.rng, q, false)) + "\n")
		}
	case "connect":
		p.down, p.up = nil, nil
		st := p.rep.State()
		p.src.Connect(p.now, st)
		p.save()
		out.WriteString("replica says: " + tell(&st) + "\n")
	case "cut":
		p.down, p.up = nil, nil
		p.src.Disconnect()
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			p.t.Fatal(err)
		}
		p.now = p.now.Add(d)
	case "restart":
		if f[1] == "source" {
			p.loadSource(p.srcDisk)
		} else {
			p.loadReplica(p.repDisk)
		}
	case "backup":
		p.backup = map[string][]byte{}
		for k, v := range p.srcDisk {
			p.backup[k] = v
		}
	case "restore":
		p.loadSource(p.backup)
		p.srcDisk = p.backup
		if f[1] != "-" {
			p.src.Reincarnate(skerry.Incarnation(f[1]))
		}
		p.save()
		fmt.Fprintf(&out, "source is at %s/%d\n", p.src.inc, p.src.gen)
	case "show":
		out.WriteString(p.show())
	default:
		p.t.Fatalf("unknown command %q", line)
	}
	return out.String()
}

func (p *play) show() string {
	var out strings.Builder
	fmt.Fprintf(&out, "source  %s/%d:", p.src.inc, p.src.gen)
	for _, k := range p.src.Keys() {
		v, _ := p.src.Get(k)
		fmt.Fprintf(&out, " %s=%s", k, v)
	}
	if o, known := p.src.Orphans(); len(o) > 0 {
		out.WriteString(" | undecided:")
		for _, h := range o {
			fmt.Fprintf(&out, " %s=%s", h.Key, h.Value)
		}
		if !known {
			out.WriteString(" and perhaps more")
		}
	}
	if p.src.Settled() {
		out.WriteString(" | settled")
	}
	fmt.Fprintf(&out, "\nreplica %s/%d:", p.rep.inc, p.rep.gen)
	for k, v := range p.rep.All() {
		_, orphaned, _ := p.rep.Get(k)
		mark := ""
		if orphaned {
			mark = "(orphan)"
		}
		fmt.Fprintf(&out, " %s=%s%s", k, v, mark)
	}
	return out.String() + "\n"
}

func outcome(o Outcome) string {
	s := ""
	for _, x := range []struct {
		name string
		keys []string
	}{{"changed", o.Changed}, {"deleted", o.Deleted}, {"orphaned", o.Orphaned}, {"adopted", o.Adopted}} {
		if len(x.keys) > 0 {
			s += ", " + x.name + " " + strings.Join(x.keys, " ")
		}
	}
	if o.Refused != "" {
		s += ", refused: " + o.Refused
	}
	return s
}

// tell puts a message in words.
func tell(m wire.Message) string {
	items := func(list []wire.SetItem) string {
		s := ""
		for _, it := range list {
			if it.Deleted {
				s += " -" + it.Key
			} else {
				s += " " + it.Key + "=" + string(it.Value)
			}
		}
		return s
	}
	switch m := m.(type) {
	case *wire.SetDelta:
		return fmt.Sprintf("delta %s/%d-%d:%s", m.Incarnation, m.Base, m.Gen, items(m.Items))
	case *wire.SetChunk:
		kind, last := "snapshot", ""
		if m.Delta {
			kind = fmt.Sprintf("large delta from %d", m.Base)
		}
		if m.Last {
			last = " (last)"
		}
		return fmt.Sprintf("%s %s/%d part %d%s:%s", kind, m.Incarnation, m.Gen, m.Index, last, items(m.Items))
	case *wire.SetAck:
		s := fmt.Sprintf("have %s/%d", m.Incarnation, m.Gen)
		if m.Incarnation == "" {
			s = "have nothing"
		}
		if m.PartIncarnation != "" {
			s += fmt.Sprintf(", and %d parts of %s/%d", m.PartNext, m.PartIncarnation, m.PartGen)
		}
		if m.Orphans > 0 {
			s += fmt.Sprintf(", and %d orphans", m.Orphans)
		}
		return s
	case *wire.SetWant:
		return fmt.Sprintf("want again (%s of %s), have %s/%d", m.Reason, m.Of, m.Incarnation, m.Gen)
	case *wire.SetHeldWant:
		return fmt.Sprintf("which orphans? from part %d", m.Next)
	case *wire.SetHeld:
		s := fmt.Sprintf("orphans part %d:", m.Index)
		for _, h := range m.Items {
			s += fmt.Sprintf(" %s=%s of %s", h.Key, h.Value, h.Incarnation)
		}
		return s
	}
	return fmt.Sprintf("%T", m)
}
