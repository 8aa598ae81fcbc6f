package store

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// checkOps refuses what no implementation takes, before anything is touched.
func checkOps(ops []Op) error {
	if len(ops) > MaxOps {
		return fmt.Errorf("commit of %d writes: %w, which is %d; split it", len(ops), ErrTooLarge, MaxOps)
	}
	size := 0
	var seen map[string]struct{}
	if len(ops) > 1 {
		seen = make(map[string]struct{}, len(ops))
	}
	for _, op := range ops {
		if err := op.Check(); err != nil {
			return err
		}
		size += len(op.Key) + len(op.Value)
		if seen != nil {
			if _, twice := seen[op.Key]; twice {
				return fmt.Errorf("%w: %s is written twice in one commit", ErrInvalid, op.Key)
			}
			seen[op.Key] = struct{}{}
		}
	}
	if size > MaxCommit {
		return fmt.Errorf("commit of %d bytes: %w, which is %d; split it", size, ErrTooLarge, MaxCommit)
	}
	return nil
}

// Check refuses a write that no store takes.
func (op Op) Check() error {
	if err := checkKey(op.Key); err != nil {
		return err
	}
	if len(op.Value) > MaxValue {
		return fmt.Errorf("value of %s has %d bytes: %w, which is %d", op.Key, len(op.Value), ErrTooLarge, MaxValue)
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(key) > MaxKey:
		return fmt.Errorf("key %q...: %w, which is %d bytes", key[:32], ErrTooLarge, MaxKey)
	case key[0] == '/':
		return fmt.Errorf("%w: key %q begins with a slash", ErrInvalid, key)
	case !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0:
		return fmt.Errorf("%w: key %q is not UTF-8 without NUL", ErrInvalid, key)
	}
	return nil
}

func conflict(op Op, have int64) error {
	switch {
	case *op.Expect == 0:
		return fmt.Errorf("%s: %w: it exists already, at revision %d", op.Key, ErrConflict, have)
	case have == 0:
		return fmt.Errorf("%s: %w: it does not exist, revision %d was expected", op.Key, ErrConflict, *op.Expect)
	}
	return fmt.Errorf("%s: %w: it is at revision %d, %d was expected", op.Key, ErrConflict, have, *op.Expect)
}

// prefixEnd gives the first key after all keys with the prefix, or "" when there is none.
func prefixEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}
