package spec

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// OnDisconnect says what a copy does whose worker has lost its cluster. Run and the zero value: it runs on, and so two
// copies may exist for as long as the partition lasts. Else the worker stops it by its own monotonic clock after a time,
// and no other starts before that has surely passed. In a manifest it is `run`, or `{stopAfter: 30s}`.
type OnDisconnect string

// OnDisconnectRun lets copies that are cut off run on.
const OnDisconnectRun OnDisconnect = "run"

const stopAfter = "stopAfter "

// StopAfter makes the other kind. It gives the zero value's meaning, run, to a span of 0 or less.
func StopAfter(d time.Duration) OnDisconnect {
	if d <= 0 {
		return OnDisconnectRun
	}
	return OnDisconnect(stopAfter + d.String())
}

// StopAfter gives the time without the cluster after which a copy is stopped; ok is false for one that runs on.
func (o OnDisconnect) StopAfter() (d time.Duration, ok bool) {
	text, ok := strings.CutPrefix(string(o), stopAfter)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

// MarshalJSON writes what a manifest has.
func (o OnDisconnect) MarshalJSON() ([]byte, error) {
	if d, ok := o.StopAfter(); ok {
		return json.Marshal(map[string]Duration{"stopAfter": Duration(d)})
	}
	return json.Marshal(string(o))
}

// UnmarshalJSON reads what MarshalJSON gives, also what no manifest may have: records and answers stay readable, and a word of a later
// version is none of this one's.
func (o *OnDisconnect) UnmarshalJSON(data []byte) error {
	var m struct {
		StopAfter Duration `json:"stopAfter"`
	}
	err := json.Unmarshal(data, (*string)(o))
	if err != nil {
		if err = json.Unmarshal(data, &m); err == nil {
			*o = StopAfter(time.Duration(m.StopAfter))
		}
	}
	return err
}

// UnmarshalStrict reads what a manifest has.
func (o *OnDisconnect) UnmarshalStrict(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) == nil {
		if word != string(OnDisconnectRun) && word != "" {
			return fmt.Errorf("%q is neither run nor {stopAfter: 30s}", word)
		}
		*o = OnDisconnect(word)
		return nil
	}
	var m struct {
		StopAfter Duration `json:"stopAfter"`
	}
	if problems := DecodeStrict(data, &m); len(problems) > 0 {
		return fmt.Errorf("must be run or {stopAfter: 30s}: %s", problems[0].Message)
	}
	if m.StopAfter < Duration(MinStopAfter) || m.StopAfter > Duration(MaxStopAfter) {
		return fmt.Errorf("stopAfter must be from %s to %s", MinStopAfter, MaxStopAfter)
	}
	*o = StopAfter(time.Duration(m.StopAfter))
	return nil
}

// Bounds of StopAfter: less than a second is within what a busy network takes to say anything.
const (
	MinStopAfter = time.Second
	MaxStopAfter = 7 * 24 * time.Hour
)

// Which copy stays when a worker that was cut off returns, and its instance runs elsewhere by then.
const (
	KeepReplacement = "keep-replacement"
	KeepOriginal    = "keep-original" // if it is ready
	KeepBest        = "keep-best"     // the one that is ready; of two the one whose SLA is kept; else the replacement
)

// clockDrift is by how much a machine's clock may run slower than another's.
const clockDrift = 0.02

// SurelyStopped gives the time after which a copy has stopped whose holder is out of touch, by the clock of whoever waits for
// that, from when it heard the holder last. spare is what may pass in the network. ok is false for a copy that runs on.
func (s *ServiceSpec) SurelyStopped(spare time.Duration) (after time.Duration, ok bool) {
	d, ok := s.OnDisconnect.StopAfter()
	if !ok {
		return 0, false
	}
	if g := s.TerminationGrace; g != nil {
		d += time.Duration(*g)
	}
	return d + time.Duration(clockDrift*float64(d)) + spare, true
}

// CopyState is what decides between two copies of an instance.
type CopyState struct {
	Ready    bool
	Violated string // how its SLA is not kept, or ""
}

// KeepsOriginal chooses, as onReconnect says, between a copy that was out of touch and the one that took its place meanwhile.
func (s *ServiceSpec) KeepsOriginal(original, replacement CopyState) (keep bool, why string) {
	switch {
	case !original.Ready:
		return false, "it is not ready"
	case !replacement.Ready:
		return true, "the other copy is not ready"
	case s.OnReconnect == KeepOriginal:
		return true, "onReconnect is " + KeepOriginal
	case s.OnReconnect != KeepBest:
		return false, "onReconnect is " + KeepReplacement
	case replacement.Violated == "":
		return false, "the SLA is kept by the other, too"
	case original.Violated != "":
		return false, "the SLA is not kept there either: " + original.Violated
	}
	return true, "it keeps the SLA, the other copy does not"
}
