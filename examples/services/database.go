//go:build !wasip1

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
	"sync/atomic"

	_ "modernc.org/sqlite"
)

// The table has rows of a number, how often it was written, and a text of about 200 bytes. A request reads some, and writes others: in one
// transaction, of which the commit returns when they are on the disk.
const (
	rows   = 10000
	reads  = 40
	writes = 8
)

// openFile opens the database. FULL has each commit flushed (https://www.sqlite.org/pragma.html#pragma_synchronous).
func openFile(dir string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "rows.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(20000)&_txlock=immediate")
	if err == nil {
		db.SetMaxOpenConns(workers * threads)
		db.SetMaxIdleConns(workers * threads)
	}
	return db, err
}

// body is the text of a row.
func body(id int) string { return strings.Repeat(fmt.Sprintf("%08x ", uint32(id)*2654435761), 22) }

func prepareDatabase(dir string) (err error) {
	db, err := openFile(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec("CREATE TABLE row (id INTEGER PRIMARY KEY, written INTEGER NOT NULL, body TEXT NOT NULL)"); err != nil {
		return err
	}
	insert, err := tx.Prepare("INSERT INTO row VALUES (?, 0, ?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	for id := range rows {
		if _, err := insert.Exec(id, body(id)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// database is what a process keeps for the requests.
type database struct {
	db                   *sql.DB
	read, write, written *sql.Stmt
	// writer tells the writes of a request from those of others.
	writer atomic.Int64
}

// openDatabase gives what reads rows that are spread over the table, writes others, and reads what it has written. The sum is of the texts that it read.
func openDatabase(dir string) (_ kernel, err error) {
	d := &database{}
	if d.db, err = openFile(dir); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		to   **sql.Stmt
		text string
	}{{&d.read, "SELECT body FROM row WHERE id = ?"}, {&d.write, "UPDATE row SET written = ?, body = ? WHERE id = ?"}, {&d.written, "SELECT written, body FROM row WHERE id = ?"}} {
		if *s.to, err = d.db.Prepare(s.text); err != nil {
			return nil, err
		}
	}
	return d.request, nil
}

func (d *database) request(n int, _ string, loaded func()) (uint32, error) {
	var all bytes.Buffer
	id := draws(n + 1)
	for range reads {
		var text string
		if err := d.read.QueryRow(int(id.next(0, rows-1))).Scan(&text); err != nil {
			return 0, err
		}
		all.WriteString(text)
	}
	loaded()
	tx, err := d.db.Begin()
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	writer := d.writer.Add(1)
	var ids []int
	for range writes {
		at := int(id.next(0, rows-1))
		ids = append(ids, at)
		if res, err := tx.Stmt(d.write).Exec(writer, body(at), at); err != nil {
			return 0, err
		} else if n, err := res.RowsAffected(); err != nil || n != 1 {
			return 0, fmt.Errorf("row %d: %d rows were written: %v", at, n, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	for _, at := range ids {
		var by int64
		var text string
		if err := d.written.QueryRow(at).Scan(&by, &text); err != nil {
			return 0, err
		}
		if by < writer { // a later request may have written it again
			return 0, fmt.Errorf("row %d was written by request %d, and says %d", at, writer, by)
		}
		all.WriteString(text)
	}
	return crc32.ChecksumIEEE(all.Bytes()), nil
}
