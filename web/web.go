// Package web holds the dashboard as it was built into the program: the files of web/dist, which `make web` makes from
// the TypeScript below web/src. Text is kept compressed alone, because a site's link is slow and so is its disk.
package web

import (
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed all:dist
var dist embed.FS

//go:embed unbuilt.html
var unbuilt []byte

// Policy is the Content-Security-Policy of the pages. Scripts come as files of ours alone; libraries for graphs, editors
// and terminals write their own style elements, so styles may be inline.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Built tells whether the dashboard was built before the program was.
func Built() bool {
	_, err := fs.Stat(dist, "dist/index.html.gz")
	return err == nil
}

// Handler serves the dashboard below a prefix that ends in a slash, such as /ui/. What names no file is a page of the
// application, which reads the path itself.
func Handler(prefix string) http.Handler {
	return http.StripPrefix(strings.TrimSuffix(prefix, "/"), http.HandlerFunc(serve))
}

func serve(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", Policy)
	if !Built() {
		head.Set("Content-Type", "text/html; charset=utf-8")
		w.Write(unbuilt)
		return
	}
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	if name == "" {
		name = "index.html"
	}
	f, err := dist.Open("dist/" + name + ".gz")
	switch {
	case err == nil:
		// Names of assets tell their content.
		if strings.HasPrefix(name, "assets/") {
			head.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
	case strings.Contains(path.Base(name), "."):
		http.Error(w, "there is no such file in the dashboard", http.StatusNotFound)
		return
	default:
		name = "index.html"
		if f, err = dist.Open("dist/index.html.gz"); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	defer f.Close()
	if name == "index.html" {
		head.Set("Cache-Control", "no-cache")
	}
	head.Set("Content-Type", contentType(name))
	head.Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		z, err := gzip.NewReader(f)
		if err == nil && r.Method != http.MethodHead {
			io.Copy(w, z)
		}
		return
	}
	head.Set("Content-Encoding", "gzip")
	if s, err := f.Stat(); err == nil {
		head.Set("Content-Length", strconv.FormatInt(s.Size(), 10))
	}
	if r.Method != http.MethodHead {
		io.Copy(w, f)
	}
}

// contentType does not ask the machine's tables, which differ.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".json":
		return "application/json"
	case ".webmanifest":
		return "application/manifest+json"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}
