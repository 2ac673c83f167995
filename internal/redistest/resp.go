package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// frame is one value of the Redis protocol, as far as the proxy has to understand it.
type frame struct {
	kind  byte
	text  string   // of what isn't an aggregate; a verbatim string keeps its prefix
	words []string // the texts of an aggregate's elements, of a map its keys and values in turn
	raw   []byte   // the bytes that it came in
}

// maxLength is the longest string that Redis itself takes. It also bounds the elements of an aggregate here.
const maxLength = 512 << 20

func readFrame(r *bufio.Reader) (f frame, err error) {
	if f.raw, err = r.ReadBytes('\n'); err != nil {
		return f, err
	}
	line, ended := strings.CutSuffix(string(f.raw), "\r\n")
	if !ended || line == "" {
		return f, fmt.Errorf("bad line %q", f.raw)
	}
	f.kind, f.text = line[0], line[1:]
	if strings.IndexByte("+-:_,#(", f.kind) >= 0 {
		return f, nil
	}
	n, err := strconv.Atoi(f.text)
	if f.text = ""; err != nil || n < -1 || n > maxLength {
		return f, fmt.Errorf("bad length in %q", line)
	}
	switch f.kind {
	case '$', '=', '!':
		if n < 0 {
			return f, nil
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(r, text)
		f.text, f.raw = string(text[:n]), append(f.raw, text...)
		return f, err
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return f, fmt.Errorf("a value can't begin with %q", f.kind)
	}
	for range n {
		element, err := readFrame(r)
		if f.raw = append(f.raw, element.raw...); err != nil {
			return f, err
		}
		f.words = append(f.words, element.text)
	}
	return f, nil
}

// readCommand reads what a client sends: an array of bulk strings, or a line of words.
func readCommand(r *bufio.Reader) (words []string, raw []byte, err error) {
	if first, err := r.Peek(1); err != nil {
		return nil, nil, err
	} else if first[0] != '*' {
		line, err := r.ReadString('\n')
		return strings.Fields(line), []byte(line), err
	}
	f, err := readFrame(r)
	return f.words, f.raw, err
}
