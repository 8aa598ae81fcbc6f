package tier

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/wire"
)

// kept is a record as this program knows it, later as one to come does.
type (
	kept struct {
		Name  string `json:"name"`
		Ports []int  `json:"ports,omitempty"`
	}
	later struct {
		kept
		Limit int      `json:"limit,omitempty"`
		Asks  []string `json:"asks,omitempty"`
	}
)

// TestCheckWriter: a program goes on with the store of another one, older or newer, as long as it would lose nothing of it.
func TestCheckWriter(t *testing.T) {
	thing := map[string]func() any{"thing/": func() any { return new(kept) }, "raw/": nil}
	for name, c := range map[string]struct {
		by      string // empty: the store says nothing
		records map[string]any
		lost    []string
		notes   bool
	}{
		"a new store":                {notes: true},
		"its own":                    {by: "v2", records: map[string]any{"thing/a": later{Limit: 1}}},
		"from before versions":       {records: map[string]any{"thing/a": later{Limit: 1}}, notes: true},
		"nothing new in it":          {by: "v3", records: map[string]any{"thing/a": later{kept: kept{"a", []int{1}}}, "raw/a": 7, "meta/more": 1}, notes: true},
		"a new field":                {by: "v3", records: map[string]any{"thing/a": later{Limit: 1}, "thing/b": later{Limit: 2, Asks: []string{"x"}}}, lost: []string{"thing: asks", "thing: limit"}},
		"a new kind":                 {by: "v3", records: map[string]any{"other/a": 1, "other/b": 2}, lost: []string{"records other"}},
		"a new field of an event":    {by: "v3", records: map[string]any{"event/00000000000000000001": map[string]any{"reason": "R", "colour": "red"}}, notes: true},
		"a new field of a user":      {by: "v3", records: map[string]any{"user/name/admin": map[string]any{"name": "admin", "badge": 7}}, lost: []string{"user/name: badge"}},
		"what it cannot read at all": {by: "v3", records: map[string]any{"thing/a": "text"}, notes: true}, // its core says so
	} {
		t.Run(name, func(t *testing.T) {
			st, err := store.Open(t.Context(), "memory:", store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			put := func(key string, v any) {
				t.Helper()
				data, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := st.Commit(t.Context(), []store.Op{{Key: key, Value: data}}); err != nil {
					t.Fatal(err)
				}
			}
			for k, v := range c.records {
				put(k, v)
			}
			if c.by != "" {
				put(KeyWriter, c.by)
			}
			loaded := 0
			writes, err := LoadCore(t.Context(), st, Program{Version: "v2", Records: thing}, journal.New(journal.Limits{}),
				loop.InTurn(func(string, []byte) error { loaded++; return nil }))
			var loss *LossError
			var told *skerry.Error
			switch {
			case c.lost != nil:
				if !errors.As(err, &loss) || !slices.Equal(loss.Lost, c.lost) || !errors.Is(err, store.ErrNewer) || loaded > 0 {
					t.Fatalf("%v, %d records were loaded", err, loaded)
				}
				if !errors.As(err, &told) || !strings.Contains(told.Message, "written by version v3, and this program (version v2) would lose") || !strings.Contains(told.Hint, "v3") {
					t.Errorf("%v", told)
				}
			case err != nil:
				t.Fatal(err)
			case c.notes != (len(writes) == 1 && writes[0].Key == KeyWriter && string(writes[0].Value) == `"v2"`):
				t.Errorf("writes %v", writes)
			}
		})
	}
}

// TestSkippedRecords: a core gets those of its records below wire.PrefixSkipped that it knows. Others stay as they are, and keep no program
// from opening the store.
func TestSkippedRecords(t *testing.T) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	known, unknown := wire.PrefixSkipped+"ours/a", wire.PrefixSkipped+"theirs/a"
	for _, op := range []store.Op{{Key: known, Value: []byte("1")}, {Key: unknown, Value: []byte("2")}, {Key: KeyWriter, Value: []byte(`"v3"`)}} {
		if _, err := st.Commit(t.Context(), []store.Op{op}); err != nil {
			t.Fatalf("write %s: %v", op.Key, err)
		}
	}
	var loaded []string
	_, err = LoadCore(t.Context(), st, Program{Version: "v2", Records: map[string]func() any{wire.PrefixSkipped + "ours/": nil}},
		journal.New(journal.Limits{}), loop.InTurn(func(key string, _ []byte) error {
			loaded = append(loaded, key)
			return nil
		}))
	if err != nil || !slices.Equal(loaded, []string{known}) {
		t.Errorf("the core gets %v, %v; want %s alone, and no error", loaded, err, known)
	}
	if r, err := st.Get(t.Context(), unknown); err != nil || string(r.Value) != "2" {
		t.Errorf("the record that is not known: %q, %v; want it as it was", r.Value, err)
	}
}
