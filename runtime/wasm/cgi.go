//go:build linux

package wasm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// cgi gives the meta-variables of a request (RFC 3875, section 4.1).
func cgi(r *http.Request, port string) []string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	client, clientPort, _ := net.SplitHostPort(r.RemoteAddr)
	env := []string{
		"GATEWAY_INTERFACE=CGI/1.1", "SERVER_SOFTWARE=skerry", "SERVER_PROTOCOL=" + r.Proto, "SERVER_NAME=" + host, "SERVER_PORT=" + port,
		"REQUEST_METHOD=" + r.Method, "REQUEST_URI=" + r.URL.RequestURI(), "SCRIPT_NAME=", "PATH_INFO=" + r.URL.Path,
		"QUERY_STRING=" + r.URL.RawQuery,
		"REMOTE_ADDR=" + client, "REMOTE_HOST=" + client, "REMOTE_PORT=" + clientPort, "HTTP_HOST=" + r.Host,
	}
	if r.ContentLength > 0 {
		env = append(env, "CONTENT_LENGTH="+strconv.FormatInt(r.ContentLength, 10))
	}
	if t := r.Header.Get("Content-Type"); t != "" {
		env = append(env, "CONTENT_TYPE="+t)
	}
	for name, values := range r.Header {
		// HTTP_PROXY would be taken for a setting; a name with _ could pass for one with -.
		if name == "Proxy" || name == "Content-Type" || name == "Content-Length" || strings.ContainsRune(name, '_') {
			continue
		}
		sep := ", "
		if name == "Cookie" {
			sep = "; "
		}
		env = append(env, "HTTP_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+strings.Join(values, sep))
	}
	return env
}

// parseAnswer reads the header of what a module answers (RFC 3875, section 6), with the empty line at its end.
func parseAnswer(header []byte) (int, http.Header, error) {
	fields, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(header))).ReadMIMEHeader()
	if err != nil {
		return 0, nil, fmt.Errorf("the header of its answer cannot be read: %w", err)
	}
	h := http.Header(fields)
	for name, values := range h {
		for _, v := range values {
			if strings.ContainsFunc(name, notToken) || strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
				return 0, nil, fmt.Errorf("the header of its answer has an invalid field %q", name)
			}
		}
	}
	status := http.StatusOK
	switch text := h.Get("Status"); {
	case text != "":
		number, _, _ := strings.Cut(text, " ")
		status, err = strconv.Atoi(number)
		if err != nil || status < 200 || status > 599 || len(number) != 3 {
			return 0, nil, fmt.Errorf("the status of its answer is %q; a number from 200 to 599 begins one", text)
		}
	case h.Get("Location") != "":
		status = http.StatusFound
	case h.Get("Content-Type") == "":
		return 0, nil, errors.New("its answer has neither Content-Type nor Location nor Status")
	}
	// How the answer gets to the client is the server's affair.
	for _, name := range []string{"Status", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length"} {
		h.Del(name)
	}
	return status, h, nil
}

// notToken finds what the name of a field cannot have (RFC 9110, section 5.6.2).
func notToken(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
}

// answer takes what a module prints, and hands it to the client as it comes.
type answer struct {
	w     http.ResponseWriter
	left  int64 // of the body
	full  context.CancelFunc
	head  []byte
	line  int // where its last line begins
	begun bool
	err   error // why no more is taken
}

func (a *answer) Write(data []byte) (int, error) {
	n := len(data)
	if a.err != nil {
		return 0, a.err
	}
	if !a.begun {
		before := len(a.head)
		a.head = append(a.head, data[:min(len(data), maxHeader-before)]...)
		end := a.headerEnd()
		switch {
		case end < 0 && len(a.head) == maxHeader:
			return a.fail(fmt.Errorf("the header of its answer has more than %d bytes", maxHeader))
		case end < 0:
			return n, nil
		}
		status, h, err := parseAnswer(a.head[:end])
		if err != nil {
			return a.fail(err)
		}
		data = data[end-before:] // the rest is of the body
		a.head, a.begun = nil, true
		for name, values := range h {
			a.w.Header()[name] = values
		}
		a.w.WriteHeader(status)
	}
	if int64(len(data)) > a.left {
		return a.fail(errors.New("the body of its answer is too large"))
	}
	a.left -= int64(len(data))
	if len(data) == 0 {
		return n, nil
	}
	if _, err := a.w.Write(data); err != nil {
		if errors.Is(err, http.ErrBodyNotAllowed) {
			return n, nil
		}
		return a.fail(err)
	}
	return n, nil
}

// fail ends the run, too.
func (a *answer) fail(err error) (int, error) {
	a.err, a.head = err, nil
	a.full()
	return 0, err
}

// headerEnd gives the length of the header with the empty line after it; -1 while that is missing.
func (a *answer) headerEnd() int {
	for {
		n := bytes.IndexByte(a.head[a.line:], '\n')
		if n < 0 {
			return -1
		}
		empty := n == 0 || n == 1 && a.head[a.line] == '\r'
		if a.line += n + 1; empty {
			return a.line
		}
	}
}
