package mcpclient

import (
	"bufio"
	"bytes"
	"io"
)

// An eventReader reads server-sent events by the rules of the WHATWG HTML
// standard, §9.2.6: lines end in LF, CR or CRLF, one leading byte order mark is
// dropped, a blank line dispatches, and an event without its blank line at the
// end of the stream is none. It differs in two points: an event without data
// is none either, and one that is larger than its limit ends the reading.
//
// Ids and retry times mean nothing here, since a stream is never resumed.
type eventReader struct {
	r       *bufio.Reader
	most    int // bytes of an event
	begun   bool
	afterCR bool // an LF that comes next belongs to a line that has ended
	line    []byte
}

// An event is one message of a stream. Its data is not read again by the reader.
type event struct {
	kind string // "message" unless the server named it
	data []byte
}

func newEventReader(r io.Reader, most int) *eventReader {
	return &eventReader{r: bufio.NewReader(r), most: most}
}

// next returns the next event with data. The error is io.EOF at the end of the
// stream.
func (r *eventReader) next() (event, error) {
	e := event{kind: "message"}
	for {
		room := r.most - len(e.data) - len(e.kind)
		if err := r.readLine(room); err != nil {
			return event{}, err
		}
		field, value, _ := bytes.Cut(r.line, []byte(":")) // a comment has no field name
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(r.line) == 0 && len(e.data) > 1:
			e.data = e.data[:len(e.data)-1]
			return e, nil
		case len(r.line) == 0:
			e = event{kind: "message"}
		case string(field) == "data":
			e.data = append(append(e.data, value...), '\n')
		case string(field) == "event":
			e.kind = string(value)
		}
	}
}

// readLine reads the next line of at most limit bytes. It does not wait for the
// LF of a CRLF: the server may send it with its next event.
func (r *eventReader) readLine(limit int) error {
	r.line = r.line[:0]
	for {
		b, err := r.r.ReadByte()
		if err != nil {
			return err
		}
		afterCR := r.afterCR
		r.afterCR = b == '\r'
		switch {
		case b == '\n' && afterCR:
			continue
		case b == '\n' || b == '\r':
			r.dropMark()
			return nil
		case len(r.line) >= limit:
			return errTooLarge
		}
		r.line = append(r.line, b)
	}
}

func (r *eventReader) dropMark() {
	if !r.begun {
		r.line = bytes.TrimPrefix(r.line, []byte("\ufeff"))
	}
	r.begun = true
}

// rest returns a reader of what has come in and was not read yet.
func (r *eventReader) rest() *eventReader {
	buffered, _ := r.r.Peek(r.r.Buffered())
	rest := *r
	rest.r, rest.line = bufio.NewReader(bytes.NewReader(buffered)), nil
	return &rest
}
