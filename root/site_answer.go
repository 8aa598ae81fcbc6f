package root

import "bytes"

// What of an answer is decoded. An entry of three bytes, as {}, is hundreds in memory, so that the bytes alone do not bound what an answer
// costs. A worker has some hundred values.
const (
	maxSiteList   = 16 << 10 // entries of the list, which are the largest
	maxSiteValues = 1 << 20  // of everything
)

// costly reports whether an answer holds more than is decoded. It counts what separates and opens values, outside of texts, and no more:
// whether it is JSON is for the decoder to say.
func costly(data []byte) bool {
	values, list, depth := 0, 0, 0
	for len(data) > 0 {
		at := bytes.IndexAny(data, `",[]{}`)
		if at < 0 {
			break
		}
		c := data[at]
		data = data[at+1:]
		switch c {
		case '"':
			data = afterText(data)
			continue
		case ']', '}':
			depth--
			continue
		case '[', '{':
			depth++
		}
		values++
		if depth <= 2 {
			list++
		}
		if values > maxSiteValues || list > maxSiteList {
			return true
		}
	}
	return false
}

// afterText gives what follows a text whose opening quotation mark has been read.
func afterText(data []byte) []byte {
	for n := 0; n < len(data); n++ {
		switch data[n] {
		case '\\':
			n++
		case '"':
			return data[n+1:]
		}
	}
	return nil
}
