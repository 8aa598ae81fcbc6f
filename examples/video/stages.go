package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"skerry.dev/skerry/examples/video/vision"
)

// pictureHeader has, in JSON, what is known of the picture in the body of a request.
const pictureHeader = "Video-Picture"

// source films: it sends pictures at a rate, as RTP over UDP, until ctx ends. The lines of a picture are spread over half of its time, as a socket
// holds less than a whole picture. What is filmed moves slower than life by a factor, which is in the pictures' RTP timestamps, too: so processors that
// are slow can follow what moves, with few pictures a second.
func source(ctx context.Context, to string, camera uint32, width, height int, rate float64, slow int64) error {
	if width < 64 || width > maxWidth || height < 64 || height > maxHeight || rate <= 0 || rate > 120 {
		return fmt.Errorf("%dx%d pixels, %g times a second, cannot be sent: at most %dx%d, 120 times", width, height, rate, maxWidth, maxHeight)
	}
	const burst = 16
	period := time.Duration(float64(time.Second) / rate)
	pause := period / 2 * burst / time.Duration(height)
	var conn net.Conn
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	p := packet{camera: camera, width: width, height: height}
	buffer := make([]byte, 0, headLength+width)
	for tick := time.NewTicker(period); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case now := <-tick.C:
			if conn == nil { // a name may not be known yet
				var err error
				if conn, err = net.Dial("udp", to); err != nil {
					log.Printf("source: %v", err)
					continue
				}
			}
			// The time goes on where another source of the same camera was.
			p.captured, p.frame = now, uint32(now.UnixMicro()*(vision.ClockRate/1000)/1000/slow)
			pixels := vision.Draw(camera, p.frame, width, height)
			for p.line = range height {
				p.last, p.pixels = p.line == height-1, pixels[p.line*width:(p.line+1)*width]
				// What is refused, because nobody listens yet, is lost like what a network loses.
				_, _ = conn.Write(p.encode(buffer[:0]))
				p.sequence++
				if p.line%burst == burst-1 {
					time.Sleep(pause)
				}
			}
		}
	}
}

// maxCameras are put together by one aggregation.
const maxCameras = 16

// aggregation puts pictures together and hands the newest of each camera on, one at a time: what the detection has no time for is left out.
type aggregation struct {
	to     string // URL of the detection
	mu     sync.Mutex
	lines  map[uint32]*assembler
	newest map[uint32]*picture
	some   chan struct{}
	// Left out, and lost because a line was.
	skipped, lost int
}

func newAggregation(to string) *aggregation {
	return &aggregation{to: to, lines: map[uint32]*assembler{}, newest: map[uint32]*picture{}, some: make(chan struct{}, 1)}
}

func (a *aggregation) receive(ctx context.Context, conn net.PacketConn) error {
	if c, ok := conn.(*net.UDPConn); ok {
		_ = c.SetReadBuffer(4 << 20) // as much as the system allows
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	b := make([]byte, 2048)
	for bad := 0; ; {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		p, err := decode(b[:n])
		if err != nil {
			if bad++; bad&(bad-1) == 0 { // ever more rarely
				log.Printf("aggregate: %d packets like one from %s are none of a camera: %v", bad, from, err)
			}
			continue
		}
		a.add(p, time.Now())
	}
}

func (a *aggregation) add(p *packet, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.lines[p.camera]
	if s == nil {
		if len(a.lines) == maxCameras {
			return
		}
		s = &assembler{}
		a.lines[p.camera] = s
	}
	before := s.lost
	done := s.add(p)
	a.lost += s.lost - before
	if done == nil {
		return
	}
	done.Aggregated = now
	if a.newest[p.camera] != nil {
		a.skipped++
	}
	a.newest[p.camera] = done
	select {
	case a.some <- struct{}{}:
	default:
	}
}

// take gives the picture that waits the longest.
func (a *aggregation) take() *picture {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first *picture
	for _, p := range a.newest {
		if first == nil || p.Aggregated.Before(first.Aggregated) {
			first = p
		}
	}
	if first != nil {
		delete(a.newest, first.Camera)
	}
	return first
}

func (a *aggregation) send(ctx context.Context) {
	client := &http.Client{Timeout: 10 * time.Second}
	for {
		p := a.take()
		if p == nil {
			select {
			case <-ctx.Done():
				return
			case <-a.some:
			}
			continue
		}
		p.Sent = time.Now()
		if err := post(ctx, client, a.to, p, p.pixels); err != nil && ctx.Err() == nil {
			log.Printf("aggregate: %v", err)
			time.Sleep(200 * time.Millisecond) // the detection may not be there yet
		}
	}
}

// post hands a picture on, with or without its pixels.
func post(ctx context.Context, client *http.Client, to string, p *picture, body []byte) error {
	head, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if body == nil {
		head, body = nil, head
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if head != nil {
		req.Header.Set(pictureHeader, string(head))
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s answered %s", to, resp.Status)
	}
	return nil
}

// detection answers when it is done with a picture, which keeps the aggregation from sending more than it can do; the tracking is told meanwhile.
type detection struct {
	cores chan struct{}
	found chan *picture
}

func newDetection(cores int) *detection {
	return &detection{cores: make(chan struct{}, cores), found: make(chan *picture, maxCameras)}
}

func (d *detection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p picture
	if err := json.Unmarshal([]byte(r.Header.Get(pictureHeader)), &p); err != nil || p.Width < 1 || p.Width > maxWidth || p.Height < 1 || p.Height > maxHeight {
		http.Error(w, "that is no picture", http.StatusBadRequest)
		return
	}
	pixels := make([]byte, p.Width*p.Height)
	if _, err := io.ReadFull(r.Body, pixels); err != nil {
		http.Error(w, "the picture has fewer pixels than it says", http.StatusBadRequest)
		return
	}
	d.cores <- struct{}{}
	p.Began = time.Now()
	p.Found = vision.Detect(pixels, p.Width, p.Height)
	p.Detected = time.Now()
	<-d.cores
	select {
	case d.found <- &p:
	default: // the tracking is not there, and old pictures are worth nothing to it
	}
	w.WriteHeader(http.StatusNoContent)
}

func (d *detection) tell(ctx context.Context, to string) {
	client := &http.Client{Timeout: 5 * time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-d.found:
			if err := post(ctx, client, to, p, nil); err != nil && ctx.Err() == nil {
				log.Printf("detect: %v", err)
			}
		}
	}
}
