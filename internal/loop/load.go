package loop

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/store"
)

// Decode takes a record in two steps. It is called by several goroutines at once, and changes nothing. The function that it returns takes
// the record; these are called one after the other, in the order of the records' keys.
type Decode func(key string, value []byte) (take func() error)

// InTurn is the Decode that does all of it in turn.
func InTurn(load func(key string, value []byte) error) Decode {
	return func(key string, value []byte) func() error { return func() error { return load(key, value) } }
}

// loadAhead is how many lists of loadBatch records are read, or decoded, before those in front of them are taken.
const loadAhead, loadBatch = 4, 256

// Load hands every record of a store to decode, and calls what that returns in the order of the keys. Further records are read and decoded
// on other processors meanwhile.
func Load(ctx context.Context, st store.Lister, decode Decode) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var failed error // of the store; it is set before read is closed
	undecoded, read := make(chan *loading, loadAhead), make(chan *loading, loadAhead)
	all.Go(func() {
		defer close(read)
		defer close(undecoded)
		failed = readAll(ctx, st, func(records []store.Record) error {
			batch := &loading{records: records, decoded: make(chan struct{})}
			for _, to := range []chan<- *loading{undecoded, read} {
				select {
				case to <- batch:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	})
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for batch := range undecoded {
				batch.err = batch.decode(decode)
				close(batch.decoded)
			}
		})
	}
	for batch := range read {
		<-batch.decoded
		for _, take := range batch.takes {
			if err := take(); err != nil {
				return err
			}
		}
		if batch.err != nil {
			return batch.err
		}
	}
	if failed != nil {
		return fmt.Errorf("read the store: %w", failed)
	}
	return nil
}

// readAll gives all records of a store, in lists. In a goroutine of its own a panic would end the program, and not this role alone; so
// would one of decode.
func readAll(ctx context.Context, st store.Lister, fn func([]store.Record) error) (err error) {
	defer panics.Error(&err)
	var batch []store.Record
	err = store.Scan(ctx, st, func(r store.Record) error {
		if batch = append(batch, r); len(batch) < loadBatch {
			return nil
		}
		full := batch
		batch = nil
		return fn(full)
	})
	if err == nil {
		err = fn(batch)
	}
	return err
}

// loading is a list of records that are loaded.
type loading struct {
	records []store.Record
	decoded chan struct{} // closed when takes and err are there
	takes   []func() error
	err     error // of the record after those
}

func (l *loading) decode(decode Decode) (err error) {
	defer panics.Error(&err)
	l.takes = make([]func() error, 0, len(l.records))
	for _, r := range l.records {
		l.takes = append(l.takes, decode(r.Key, r.Value))
	}
	return nil
}
