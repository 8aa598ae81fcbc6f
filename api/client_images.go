package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"skerry.dev/skerry"
)

// DeleteImage deletes an image of the built-in registry, named as Images names it. Where the repository has other tags of the same image,
// only the tag goes. One that something uses is refused with skerry.CodeConflict, unless force is set.
func (c *Client) DeleteImage(ctx context.Context, name string, force bool) error {
	list, err := c.Images(ctx)
	if err != nil {
		return err
	}
	if !strings.ContainsRune(name[strings.LastIndexByte(name, '/')+1:], ':') {
		name += ":latest"
	}
	repo := func(name string) string {
		r, _, digest := strings.Cut(name, "@")
		if digest {
			return r
		}
		return r[:max(strings.LastIndexByte(r, ':'), 0)]
	}
	digest := ""
	for _, v := range list {
		if v.Name == name {
			digest = v.Digest
		}
	}
	if digest == "" {
		return skerry.Errorf(skerry.CodeNotFound, "there is no image %q in the built-in registry", name).
			WithHint("`skerry get images` lists them")
	}
	id := digest
	for _, v := range list {
		if v.Name != name && v.Digest == digest && repo(v.Name) == repo(name) {
			id = strings.TrimPrefix(name, repo(name)+":")
		}
	}
	at := c.base.JoinPath("v2", repo(name), "manifests", id)
	if force {
		at.RawQuery = "force=true"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, at.String(), nil)
	if err != nil {
		return err
	}
	res, err := c.Transport().RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusAccepted {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
	why := res.Status + ": " + strings.TrimSpace(string(text))
	var said struct{ Errors []struct{ Message string } }
	if json.Unmarshal(text, &said) == nil && len(said.Errors) == 1 {
		why = said.Errors[0].Message
	}
	code := skerry.CodeUnavailable
	switch res.StatusCode {
	case http.StatusForbidden, http.StatusUnauthorized:
		code = skerry.CodeForbidden
	case http.StatusNotFound:
		code = skerry.CodeNotFound
	case http.StatusConflict:
		return skerry.Errorf(skerry.CodeConflict, "image %s is in use: %s", name, why).
			WithHint("delete the applications, or apply versions that use another image; --force deletes the image all the same: " +
				"its instances run on, and do not start where it is not yet")
	}
	return skerry.Errorf(code, "delete image %s: %s", name, why)
}
