package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"skerry.dev/skerry/store"
)

// ImageNames is the part of a role's store that says what its images are called, as an artifact.Depot of names alone.
type ImageNames struct{ Store store.Store }

// keyImages begins the keys of names. No core has a part in them.
const keyImages = "meta/images/"

// Put implements artifact.Depot.
func (n ImageNames) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	value, err := io.ReadAll(io.LimitReader(from, store.MaxValue+1))
	if err != nil {
		return err
	}
	if int64(len(value)) != size {
		return fmt.Errorf("record %s has %d bytes and not %d", name, len(value), size)
	}
	_, err = n.Store.Commit(ctx, []store.Op{{Key: keyImages + name, Value: value}})
	return err
}

// Get implements artifact.Depot.
func (n ImageNames) Get(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	rec, err := n.Store.Get(ctx, keyImages+name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("record %s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(rec.Value[min(offset, int64(len(rec.Value))):])), nil
}

// Delete implements artifact.Depot.
func (n ImageNames) Delete(ctx context.Context, name string) error {
	_, err := n.Store.Commit(ctx, []store.Op{{Key: keyImages + name, Delete: true}})
	return err
}

// List implements artifact.Depot.
func (n ImageNames) List(ctx context.Context, prefix string, each func(name string, size int64, modified time.Time) error) error {
	return n.ListRecords(ctx, prefix, func(name string, value []byte) error { return each(name, int64(len(value)), time.Time{}) })
}

// ListRecords gives names with what the store says of them, all of one moment.
func (n ImageNames) ListRecords(ctx context.Context, prefix string, each func(name string, value []byte) error) error {
	list, _, err := n.Store.List(ctx, keyImages+prefix)
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := each(r.Key[len(keyImages):], r.Value); err != nil {
			return err
		}
	}
	return nil
}

func (ImageNames) String() string { return "the store of this role" }

// ForgetImageNames takes all names out of a role's store, where a bucket has them from now on.
func ForgetImageNames(ctx context.Context, st store.Store) error {
	list, _, err := st.List(ctx, keyImages)
	for len(list) > 0 && err == nil {
		var ops []store.Op
		for _, r := range list[:min(len(list), store.MaxOps)] {
			ops = append(ops, store.Op{Key: r.Key, Delete: true})
		}
		list = list[len(ops):]
		_, err = st.Commit(ctx, ops)
	}
	return err
}
