package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A packet is RTP (RFC 3550) that carries one line of an uncompressed picture, eight bits of brightness for each pixel, as RFC 4175 carries lines. The
// time at which the picture was taken is in its header extension abs-capture-time (RFC 8285, one-byte header), so that
// latency is known where clocks agree.
type packet struct {
	camera   uint32 // its SSRC
	sequence uint16
	frame    uint32 // its timestamp, at 90 kHz
	last     bool   // of the picture
	captured time.Time
	width    int
	height   int
	line     int
	pixels   []byte
}

const (
	rtpVersion     = 2
	payloadType    = 96 // the first dynamic one
	extensionOne   = 0xBEDE
	captureID      = 1
	headLength     = 12 + 4 + 12 + 8 // fixed header, extension header, extension, payload header
	maxWidth       = 1400
	maxHeight      = 2160
	ntpEpochToUnix = 2208988800
)

func (p *packet) encode(b []byte) []byte {
	b = append(b, rtpVersion<<6|1<<4, payloadType)
	if p.last {
		b[len(b)-1] |= 0x80
	}
	b = binary.BigEndian.AppendUint16(b, p.sequence)
	b = binary.BigEndian.AppendUint32(b, p.frame)
	b = binary.BigEndian.AppendUint32(b, p.camera)
	b = binary.BigEndian.AppendUint16(b, extensionOne)
	b = binary.BigEndian.AppendUint16(b, 3) // words
	b = append(b, captureID<<4|(8-1))
	seconds, part := uint64(p.captured.Unix()+ntpEpochToUnix), uint64(p.captured.Nanosecond())<<32/1e9
	b = binary.BigEndian.AppendUint64(b, seconds<<32|part)
	b = append(b, 0, 0, 0) // padding
	// RFC 4175 has length, line and offset; the size of the picture is in its session description, for which there is none here.
	for _, v := range []int{len(p.pixels), p.line, p.width, p.height} {
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return append(b, p.pixels...)
}

func decode(b []byte) (*packet, error) {
	switch {
	case len(b) < headLength:
		return nil, errors.New("it is too short")
	case b[0] != rtpVersion<<6|1<<4 || b[1]&0x7f != payloadType:
		return nil, errors.New("it is no RTP of this kind")
	case binary.BigEndian.Uint16(b[12:]) != extensionOne || binary.BigEndian.Uint16(b[14:]) != 3 || b[16] != captureID<<4|7:
		return nil, errors.New("it does not say when it was captured")
	}
	at := binary.BigEndian.Uint64(b[17:])
	p := &packet{sequence: binary.BigEndian.Uint16(b[2:]), frame: binary.BigEndian.Uint32(b[4:]), camera: binary.BigEndian.Uint32(b[8:]), last: b[1]&0x80 != 0,
		captured: time.Unix(int64(at>>32)-ntpEpochToUnix, int64(at&0xffffffff*1e9>>32)), width: int(binary.BigEndian.Uint16(b[32:])), height: int(binary.BigEndian.Uint16(b[34:])),
		line: int(binary.BigEndian.Uint16(b[30:])), pixels: b[headLength:]}
	if n := int(binary.BigEndian.Uint16(b[28:])); n != len(p.pixels) || n != p.width {
		return nil, fmt.Errorf("it has %d pixels of a line of %d", len(p.pixels), p.width)
	}
	if p.width == 0 || p.width > maxWidth || p.height == 0 || p.height > maxHeight || p.line >= p.height {
		return nil, fmt.Errorf("line %d of %dx%d pixels is none", p.line, p.width, p.height)
	}
	return p, nil
}

// assembler puts the lines of pictures together. A picture of which a line is missing when the next one begins is lost.
type assembler struct {
	now  *picture
	have []bool
	left int
	// lost counts pictures that were not complete.
	lost int
}

// add takes a packet, and gives the picture that it completes.
func (a *assembler) add(p *packet) *picture {
	if a.now == nil || a.now.Frame != p.frame || a.now.Width != p.width || a.now.Height != p.height {
		if a.now != nil && int32(p.frame-a.now.Frame) < 0 {
			return nil // of a picture that was given up
		}
		if a.left > 0 {
			a.lost++
		}
		a.now = &picture{Camera: p.camera, Frame: p.frame, Captured: p.captured, Width: p.width, Height: p.height, pixels: make([]byte, p.width*p.height)}
		a.have, a.left = make([]bool, p.height), p.height
	}
	if a.left == 0 || a.have[p.line] {
		return nil
	}
	a.have[p.line] = true
	copy(a.now.pixels[p.line*p.width:], p.pixels)
	if a.left--; a.left > 0 {
		return nil
	}
	return a.now
}
