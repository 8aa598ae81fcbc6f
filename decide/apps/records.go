package apps

import (
	"encoding/json"
	"strconv"
)

// Record keys.
const (
	prefixApp   = "app/"
	prefixInst  = "inst/"
	prefixOrg   = "org/"
	prefixSpace = "ns/"
)

// read has a record be taken that can be read.
func read[T any](value []byte, take func(*T)) error {
	x := new(T)
	err := json.Unmarshal(value, x)
	if err == nil {
		take(x)
	}
	return err
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return data
}

func itoa(n int) string { return strconv.Itoa(n) }
