package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	sealing "filippo.io/age"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/internal/s3"
	"skerry.dev/skerry/spec"
)

// Place is where the operator of a site lets the snapshots of schedules go: a part of a bucket, with what gets there. A manifest only names
// it, so that nobody else says where the site sends requests, or knows the credentials.
type Place struct {
	To           string `json:"to"`                 // s3://BUCKET or s3://BUCKET/PREFIX
	Endpoint     string `json:"endpoint,omitempty"` // default: that of AWS
	Region       string `json:"region,omitempty"`
	AccessKey    string `json:"accessKey"`
	SecretKey    string `json:"secretKey"`
	SessionToken string `json:"sessionToken,omitempty"`
	CA           string `json:"ca,omitempty"` // file with the authority of the server
	// Recipients are age public keys, to which is encrypted what a manifest has none for.
	Recipients []string `json:"recipients,omitempty"`
	// Organisations may use it; without any, all may.
	Organisations []string `json:"organisations,omitempty"`
}

// Places are those of a site, by name.
type Places map[string]Place

// Problems lists what is wrong with places.
func (p Places) Problems() (out []skerry.Problem) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		place, bad := p[name], func(field, hint string, err error) {
			if err != nil {
				out = append(out, skerry.Problem{Path: name + field, Message: err.Error(), Hint: hint})
			}
		}
		bad("", "", skerry.CheckName(name))
		_, err := place.object("probe")
		bad("", "", err)
		_, err = recipientsOf(place.Recipients)
		bad(".recipients", "age-keygen prints one; it begins with age1", err)
	}
	return out
}

// object gives a client for an object in a place.
func (p *Place) object(key string) (*s3.Client, error) {
	if p.AccessKey == "" || p.SecretKey == "" { // those of the process are not for it
		return nil, skerry.Errorf(skerry.CodeInvalid, "it has no accessKey or no secretKey")
	}
	c := s3.Config{Endpoint: p.Endpoint, Region: p.Region, AccessKey: p.AccessKey, SecretKey: p.SecretKey, SessionToken: p.SessionToken,
		CA: p.CA}
	return s3.New(strings.TrimSuffix(p.To, "/")+"/"+key, c)
}

func recipientsOf(list []string) (out []sealing.Recipient, err error) {
	for _, text := range list {
		r, err := sealing.ParseX25519Recipient(text)
		if err != nil {
			return nil, fmt.Errorf("recipient %.100q: %w", text, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// placeOf gives a place to which an organisation may send snapshots, as the operator's file says now.
func placeOf(s *Server, name, org string) (Place, error) {
	var all Places
	var err error
	if s.opt.Places != nil {
		all, err = s.opt.Places()
	}
	p, ok := all[name]
	switch {
	case err != nil: // it is about the places of all, and where they stand
		s.opt.Log.Error("the places for snapshots cannot be read", "err", err)
		return p, fmt.Errorf("the site's places for snapshots cannot be read; its operator finds the reason in the cluster's log")
	case !ok:
		return p, fmt.Errorf("the site has no place %q for snapshots; its operator adds it to the file of --snapshot-places", name)
	case len(p.Organisations) > 0 && !slices.Contains(p.Organisations, org):
		return p, fmt.Errorf("place %q is not there for organisation %s; the operator of the site lists organisations beside it", name, org)
	}
	return p, nil
}

// export sends a snapshot away, whole, and deletes old ones only then.
func export(ctx context.Context, server *Server, msg core.ExportSnapshot) (end core.EndExport) {
	snap := msg.Snapshot
	end = core.EndExport{Snapshot: snap, Object: volumes.Object{ID: snap.ID, To: msg.To, Key: exportKey(server, &snap)}}
	object, err := upload(ctx, server, msg, end.Object.Key)
	if err != nil {
		end.Err = err.Error()
		return end
	}
	end.Where = object.String()
	failed := map[string]string{} // by place; what one of them refuses holds up no other
	for _, old := range msg.Old {
		if failed[old.To] != "" {
			continue
		}
		moved, err := deleteObject(ctx, server, old, snap.Org)
		switch {
		case moved:
			end.Left = err.Error()
		case err != nil:
			failed[old.To] = err.Error()
			continue
		}
		end.Gone = append(end.Gone, old)
	}
	for _, place := range slices.Sorted(maps.Keys(failed)) {
		end.Left = strings.TrimPrefix(end.Left+"; "+failed[place], "; ")
	}
	return end
}

// exportKey is where a snapshot is in a place: apart from those of other sites, and always the same, so that it is never there twice.
func exportKey(s *Server, snap *spec.Snapshot) string {
	return path.Join(s.opt.Name, snap.Namespace, snap.App, snap.Service, fmt.Sprint(snap.Replica), string(snap.ID)+".snapshot")
}

func upload(ctx context.Context, server *Server, msg core.ExportSnapshot, key string) (*s3.Client, error) {
	p, err := placeOf(server, msg.To, msg.Snapshot.Org)
	if err != nil {
		return nil, err
	}
	list := msg.Recipients
	if len(list) == 0 {
		list = p.Recipients
	}
	to, err := recipientsOf(list)
	if err == nil && len(to) == 0 {
		err = fmt.Errorf("it would not be encrypted: neither snapshots.export.recipients nor place %q names a recipient", msg.To)
	}
	if err != nil {
		return nil, err
	}
	object, err := p.object(key)
	if err != nil {
		return nil, err
	}
	from, length, err := server.OpenSnapshot(ctx, msg.Snapshot.ID)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	r := encrypted(from, msg.Snapshot.SHA256, to)
	defer r.Close()
	_, err = object.Upload(ctx, r, length)
	return object, err
}

// encrypted gives a snapshot encrypted, and ends with an error if it is not the one with this SHA-256: what a disk has damaged, or a worker
// exchanged, does not count as sent.
func encrypted(from io.Reader, sum string, to []sealing.Recipient) io.ReadCloser {
	r, w := io.Pipe()
	go func() { // ends with the pipe
		hash := sha256.New()
		out, err := sealing.Encrypt(w, to...)
		if err == nil {
			_, err = io.Copy(out, io.TeeReader(from, hash))
		}
		if got := hex.EncodeToString(hash.Sum(nil)); err == nil && got != sum {
			err = skerry.Errorf(skerry.CodeConflict, "the snapshot is damaged: it has SHA-256 %s, and not %s", got, sum)
		}
		if err == nil {
			err = out.Close()
		}
		w.CloseWithError(err)
	}()
	return r
}

// deleteObject deletes an object. moved says that the place of its name is another one now, where it never was.
func deleteObject(ctx context.Context, s *Server, o volumes.Object, org string) (moved bool, err error) {
	p, err := placeOf(s, o.To, org)
	if err != nil {
		return false, err
	}
	object, err := p.object(o.Key)
	if err != nil {
		return false, err
	}
	if o.Where != "" && o.Where != object.String() {
		return true, fmt.Errorf("place %q is another one now; %s stays where it is, for good", o.To, o.Where)
	}
	return false, object.Delete(ctx)
}
