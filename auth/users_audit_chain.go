package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// auditHash is what the next record says of a stored one.
func auditHash(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// AuditMark names a record and its content: SEQ:HASH. A mark that is kept elsewhere proves later that neither the record
// nor any kept one before it was changed since, and that none between them was removed; without one, whoever can write the
// store can chain a log of their own. The oldest may be removed: it looks as if they were dropped by age or number.
type AuditMark struct {
	Seq  uint64
	Hash string // SHA-256, in hexadecimal
}

func (m AuditMark) String() string { return fmt.Sprintf("%d:%s", m.Seq, m.Hash) }

// ParseAuditMark reads a mark as String writes it.
func ParseAuditMark(s string) (AuditMark, error) {
	number, hash, _ := strings.Cut(s, ":")
	seq, err := strconv.ParseUint(number, 10, 64)
	sum, notHex := hex.DecodeString(hash)
	if err != nil || seq == 0 || notHex != nil || len(sum) != sha256.Size || strings.ToLower(hash) != hash {
		return AuditMark{}, skerry.Errorf(skerry.CodeInvalid, "%q is no mark of the audit", s).
			WithHint("a mark is SEQ:HASH, as `skerry audit verify` prints it")
	}
	return AuditMark{seq, hash}, nil
}

// AuditReport says whether the kept audit records are those that were written.
type AuditReport struct {
	Records int      `json:"records" doc:"Number of retained records."`
	First   uint64   `json:"first,omitempty" doc:"Sequence number of the oldest retained record. Older ones were dropped by age or count."`
	Chained uint64   `json:"chained,omitempty" doc:"Sequence number of the first record that holds the hash of its predecessor. Earlier records cannot be verified."`
	Head    string   `json:"head,omitempty" doc:"SEQ:HASH of the newest record. Keep it elsewhere and pass it later as since."`
	Faults  []string `json:"faults,omitempty" doc:"Records found changed or removed, at most 100."`
}

// maxAuditFaults bounds a report.
const maxAuditFaults = 100

// VerifyAudit checks the chain of the kept records, and that the record that since names, if any, is one of them.
func (p *People) VerifyAudit(ctx context.Context, since *AuditMark) (AuditReport, error) {
	recs, _, err := p.cfg.Store.List(ctx, p.cfg.Prefix+recAudit)
	if err != nil {
		return AuditReport{}, err
	}
	r := AuditReport{Records: len(recs)}
	fault := func(format string, args ...any) {
		if len(r.Faults) < maxAuditFaults {
			r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
		}
	}
	var last AuditMark
	seen := since == nil
	for i, rec := range recs {
		var a AuditRecord
		n, err := strconv.ParseUint(strings.TrimPrefix(rec.Key, p.cfg.Prefix+recAudit), 10, 64)
		if err != nil {
			fault("record %s has no number: %v", rec.Key, err)
			continue
		}
		err = readAudit(rec.Value, &a)
		switch {
		case err != nil:
			fault("record %d cannot be read: %v", n, err)
		case a.Seq != n:
			fault("record %d was put into the place of %d", a.Seq, n)
		case i == 0:
			r.First = n
		case n > last.Seq+1:
			fault("records %d to %d are missing: they were removed, or could not be stored when the disk was full or the role killed",
				last.Seq+1, n-1)
		case a.Prev != last.Hash && (a.Prev != "" || r.Chained > 0):
			fault("record %d or %d was changed", last.Seq, n)
		}
		if a.Prev != "" && r.Chained == 0 {
			r.Chained = n
		}
		last = AuditMark{n, auditHash(rec.Value)}
		if since != nil && since.Seq == n {
			seen = true
			if since.Hash != last.Hash {
				fault("record %d is not the one of the mark: it or one before it was changed, or others were written after a backup was restored", n)
			}
		}
	}
	if last.Seq > 0 {
		r.Head = last.String()
	}
	switch {
	case seen:
	case since.Seq > last.Seq:
		fault("records %d to %d are missing: they were removed, or a backup was restored", last.Seq+1, since.Seq)
	case since.Seq < r.First:
		fault("record %d, which the mark names, is no longer kept: compare marks more often, or keep more records", since.Seq)
	}
	return r, nil
}
