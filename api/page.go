package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// Page is a list, or a part of one. Its pages have a fixed order, so that nothing that stays is told twice or left out.
type Page[T any] struct {
	Items    []T    `json:"items" nullable:"false"`
	Continue string `json:"continue,omitempty" doc:"There is more: the parameter continue of the next request."`
}

type pageAnswer[T any] = answer[Page[T]]

// PageIn asks for a part of a list.
type PageIn struct {
	Limit    int    `query:"limit" minimum:"1" maximum:"10000" doc:"Return at most this many items. Default: all."`
	Continue string `query:"continue" doc:"Return what comes after an earlier answer, which had this token."`
}

// maxToken bounds a token in bytes; the names in it are shorter.
const maxToken = 2048

// errToken is answered with status 400: the request as a whole is no part of a listing.
type errToken struct{ err *skerry.Error }

func (e errToken) Error() string { return e.err.Message }
func (e errToken) Unwrap() error { return e.err }

// pageToken names the item of a list after which the next page begins.
func pageToken(list, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + "\x00" + key))
}

// readPageToken gives the key that pageToken was given for the same list.
func readPageToken(list, token string) (key string, err error) {
	bad := func(why string) error {
		return errToken{skerry.Errorf(skerry.CodeInvalid, "continue is not a token of this list: %s", why).
			WithHint("send what an answer of %s had as continue, unchanged, or begin without it", list)}
	}
	if len(token) > maxToken {
		return "", bad(fmt.Sprintf("it is longer than %d bytes", maxToken))
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || base64.RawURLEncoding.EncodeToString(text) != token { // the decoder skips line breaks
		return "", bad("it was changed or cut off")
	}
	of, key, ok := strings.Cut(string(text), "\x00")
	switch {
	case !ok || key == "":
		return "", bad("it was changed or cut off")
	case of != list:
		return "", bad("it is one of another list")
	}
	return key, nil
}

// pageOf gives the page of a list that is asked for: by key, which each item has its own of. Without a limit or a token, all are given as
// they are.
func pageOf[T any](list string, in PageIn, items []T, key func(*T) string) (*pageAnswer[T], error) {
	if in.Continue == "" && in.Limit <= 0 {
		if items == nil {
			items = []T{}
		}
		return &pageAnswer[T]{Page[T]{Items: items}}, nil
	}
	after := ""
	if in.Continue != "" {
		var err error
		if after, err = readPageToken(list, in.Continue); err != nil {
			return nil, err
		}
	}
	// Keys alone are sorted: items are large, and whoever wants all of them asks for each page.
	type place struct {
		key string
		at  int
	}
	var rest []place
	for at := range items {
		if k := key(&items[at]); in.Continue == "" || k > after {
			rest = append(rest, place{k, at})
		}
	}
	slices.SortFunc(rest, func(a, b place) int { return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.at, b.at)) })
	next := ""
	if in.Limit > 0 && len(rest) > in.Limit {
		rest = rest[:in.Limit]
		next = pageToken(list, rest[in.Limit-1].key)
	}
	page := make([]T, 0, len(rest))
	for _, p := range rest {
		page = append(page, items[p.at])
	}
	return &pageAnswer[T]{Page[T]{Items: page, Continue: next}}, nil
}

// pageBack gives the newest of a list that grows at its end, or those before an earlier answer, each time the oldest first.
func pageBack[T any](list string, limit int, token string, items []T, number func(*T) uint64) (*pageAnswer[T], error) {
	if token != "" {
		key, err := readPageToken(list, token)
		if err != nil {
			return nil, err
		}
		before, err := strconv.ParseUint(key, 10, 64)
		if err != nil {
			return nil, errToken{skerry.Errorf(skerry.CodeInvalid, "continue is not a token of this list: it was changed or cut off")}
		}
		items = items[:sort.Search(len(items), func(i int) bool { return number(&items[i]) >= before })]
	}
	if items == nil {
		items = []T{}
	}
	next := ""
	if len(items) > limit {
		items = items[len(items)-limit:]
		next = pageToken(list, strconv.FormatUint(number(&items[0]), 10))
	}
	return &pageAnswer[T]{Page[T]{Items: items, Continue: next}}, nil
}

// pageSeen gives the page of what of a list the user may see.
func pageSeen[T any](list string, in PageIn, items []T, err error, may func(*T) bool, key func(*T) string) (*pageAnswer[T], error) {
	if err != nil {
		return nil, err
	}
	return pageOf(list, in, slices.DeleteFunc(items, func(i T) bool { return !may(&i) }), key)
}

// pages asks for a list page by page, so that no answer is long. A server of an earlier version gives all at once.
func pages[T any](ctx context.Context, client *Client, path string, query url.Values) (out []T, err error) {
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		page, err := get[Page[T]](ctx, client, path, query)
		if err != nil && knowsNoPages(err) {
			query.Del("limit")
			page, err = get[Page[T]](ctx, client, path, query)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if page.Continue == "" {
			return out, nil
		}
		if page.Continue == query.Get("continue") {
			return nil, skerry.Errorf(skerry.CodeInternal, "%s gives the same page again and again", client.Server())
		}
		query.Set("continue", page.Continue)
	}
}

// pageSize is how many items a client asks for at once.
const pageSize = 1000

// knowsNoPages reports whether a server refused the parameter limit as one that it does not know.
func knowsNoPages(err error) bool {
	e, ok := errors.AsType[*skerry.Error](err)
	return ok && e.Code == skerry.CodeInvalid && slices.ContainsFunc(e.Problems, func(p skerry.Problem) bool {
		return p.Path == "query.limit" && p.Message == "unknown field"
	})
}

// statusOf gives the status of an error that has one of its own.
func statusOf(err error, code skerry.Code) int {
	switch {
	case errors.As(err, new(errMediaType)):
		return http.StatusUnsupportedMediaType
	case errors.As(err, new(errToken)):
		return http.StatusBadRequest
	}
	return code.HTTPStatus()
}
