package api

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// zipped compresses a watch. It compresses what was written since the last flush and remembers nothing of it: a watch that is silent holds
// a buffer and no window, of which there could be a thousand. Every flush ends a block, which a reader can decode at once.
type zipped struct {
	in  *bufio.Writer
	out *gzip.Writer
}

// zipBlock is how much is compressed at once, in bytes; less compresses worse.
const zipBlock = 32 << 10

func newZipped(to io.Writer) *zipped {
	out, err := gzip.NewWriterLevel(to, gzip.StatelessCompression)
	if err != nil {
		panic("api: compression without a state: " + err.Error())
	}
	return &zipped{in: bufio.NewWriterSize(out, zipBlock), out: out}
}

// close ends the stream, so that a reader knows that it is whole.
func (z *zipped) close() {
	if z.in.Flush() == nil {
		_ = z.out.Close() // who does not read any more needs no end
	}
}

// acceptsGzip reads the header Accept-Encoding. Without a word about gzip it is not used.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, given := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			value, err := strconv.ParseFloat(q, 64)
			return !given || err == nil && value > 0
		}
	}
	return false
}
