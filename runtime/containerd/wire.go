package containerd

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// errMessage is given for an answer that is no message of the daemon's.
var errMessage = errors.New("the answer makes no sense")

// message is a Protocol Buffers message on its way out. Fields with the zero value are left out, as proto3 has it.
type message []byte

func (m message) text(field protowire.Number, s string) message {
	if s == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), s)
}

func (m message) number(field protowire.Number, n uint64) message {
	if n == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), n)
}

func (m message) flag(field protowire.Number, on bool) message {
	return m.number(field, protowire.EncodeBool(on))
}

// in puts another message into a field, also an empty one.
func (m message) in(field protowire.Number, sub message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), sub)
}

// anything is google.protobuf.Any.
func anything(url string, value []byte) message {
	return message{}.text(1, url).in(2, value)
}

// fields goes through a message. text is what a field of bytes has; number what one of a number has.
func fields(data []byte, each func(field protowire.Number, number uint64, text []byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMessage, protowire.ParseError(n))
		}
		data = data[n:]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(data)
		default: // none that we ask for
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errMessage, protowire.ParseError(n))
		}
		if data = data[n:]; kind == protowire.VarintType || kind == protowire.BytesType {
			if err := each(field, number, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Container is what the daemon keeps of a container.
type Container struct {
	ID     string
	Labels map[string]string
}

// parseContainers reads a ListContainersResponse.
func parseContainers(data []byte) (out []Container, err error) {
	err = fields(data, func(f protowire.Number, _ uint64, text []byte) error {
		if f != 1 || text == nil {
			return nil
		}
		c := Container{Labels: map[string]string{}}
		err := fields(text, func(f protowire.Number, _ uint64, text []byte) error {
			switch {
			case f == 1 && text != nil:
				c.ID = string(text)
			case f == 2 && text != nil:
				var k, v string
				if err := fields(text, func(f protowire.Number, _ uint64, text []byte) error {
					switch f {
					case 1:
						k = string(text)
					case 2:
						v = string(text)
					}
					return nil
				}); err != nil {
					return err
				}
				c.Labels[k] = v
			}
			return nil
		})
		out = append(out, c)
		return err
	})
	return out, err
}

// parseMounts reads a PrepareSnapshotResponse.
func parseMounts(data []byte) (out []Mount, err error) {
	err = fields(data, func(f protowire.Number, _ uint64, text []byte) error {
		if f != 1 || text == nil {
			return nil
		}
		var m Mount
		err := fields(text, func(f protowire.Number, _ uint64, text []byte) error {
			switch f {
			case 1:
				m.Type = string(text)
			case 2:
				m.Source = string(text)
			case 4:
				m.Options = append(m.Options, string(text))
			}
			return nil
		})
		out = append(out, m)
		return err
	})
	return out, err
}

// Status is what a process of a task does.
type Status uint64

// The statuses, as the daemon numbers them.
const (
	StatusUnknown Status = iota
	StatusCreated
	StatusRunning
	StatusStopped
	StatusPaused
	StatusPausing
)

// Process is the first process of a task. Code and At are set when it has stopped.
type Process struct {
	PID    int
	Status Status
	Code   int
	At     time.Time
}

// parseProcess reads a GetResponse.
func parseProcess(b []byte) (p Process, err error) {
	err = fields(b, func(f protowire.Number, _ uint64, text []byte) error {
		if f != 1 {
			return nil
		}
		return fields(text, func(f protowire.Number, n uint64, text []byte) (err error) {
			switch f {
			case 3:
				p.PID = int(uint32(n))
			case 4:
				p.Status = Status(n)
			case 9:
				p.Code = int(uint32(n))
			case 10:
				p.At, err = parseTime(text)
			}
			return err
		})
	})
	return p, err
}

// parseWait reads a WaitResponse.
func parseWait(b []byte) (code int, at time.Time, err error) {
	err = fields(b, func(f protowire.Number, n uint64, text []byte) (err error) {
		switch f {
		case 1:
			code = int(uint32(n))
		case 2:
			at, err = parseTime(text)
		}
		return err
	})
	return code, at, err
}

// parseTime reads google.protobuf.Timestamp.
func parseTime(b []byte) (time.Time, error) {
	var sec, nano uint64
	err := fields(b, func(f protowire.Number, n uint64, _ []byte) error {
		switch f {
		case 1:
			sec = n
		case 2:
			nano = n
		}
		return nil
	})
	return time.Unix(int64(sec), int64(uint32(nano)%1e9)), err
}

// parseNumber reads the one number that is asked for.
func parseNumber(b []byte, field protowire.Number) (out uint64, err error) {
	err = fields(b, func(f protowire.Number, n uint64, _ []byte) error {
		if f == field {
			out = n
		}
		return nil
	})
	return out, err
}

// parseText reads the one text that is asked for.
func parseText(b []byte, field protowire.Number) (out string, err error) {
	err = fields(b, func(f protowire.Number, _ uint64, text []byte) error {
		if f == field {
			out = string(text)
		}
		return nil
	})
	return out, err
}
