package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// value is one value of the Redis protocol, RESP2 or RESP3, as far as the proxy has to understand it.
type value struct {
	kind  byte
	text  string  // of what isn't an aggregate; a verbatim string keeps its prefix
	elems []value // of an aggregate, a map's keys and values in turn
}

// frame is a value with the bytes that it came in.
type frame struct {
	value
	raw []byte
}

func readFrame(r *bufio.Reader) (frame, error) {
	p := parser{r: r}
	v, err := p.value()
	return frame{value: v, raw: p.raw}, err
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
	for _, e := range f.elems {
		words = append(words, e.text)
	}
	return words, f.raw, err
}

type parser struct {
	r   *bufio.Reader
	raw []byte
}

// maxLength is the longest string that Redis itself takes. It also bounds the elements of an aggregate here.
const maxLength = 512 << 20

func (p *parser) value() (value, error) {
	line, err := p.line()
	if err != nil {
		return value{}, err
	}
	v := value{kind: line[0], text: line[1:]}
	switch v.kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return v, nil
	case '$', '=', '!':
		n, err := length(v.text)
		if err != nil || n < 0 {
			v.text = ""
			return v, err
		}
		v.text, err = p.bytes(n)
		return v, err
	case '*', '~', '>', '%':
		n, err := length(v.text)
		if err != nil {
			return v, err
		}
		v.text = ""
		if v.kind == '%' {
			n *= 2
		}
		for range n {
			e, err := p.value()
			if err != nil {
				return v, err
			}
			v.elems = append(v.elems, e)
		}
		return v, nil
	}
	return v, fmt.Errorf("a value can't begin with %q", v.kind)
}

func length(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < -1 || n > maxLength) {
		err = fmt.Errorf("length %d", n)
	}
	return n, err
}

// line reads a line of at least one byte and cuts its end off.
func (p *parser) line() (string, error) {
	line, err := p.r.ReadBytes('\n')
	p.raw = append(p.raw, line...)
	if err != nil {
		return "", err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return "", fmt.Errorf("bad line %q", line)
	}
	return string(line[:len(line)-2]), nil
}

func (p *parser) bytes(n int) (string, error) {
	start := len(p.raw)
	p.raw = append(p.raw, make([]byte, n+2)...)
	if _, err := io.ReadFull(p.r, p.raw[start:]); err != nil {
		return "", err
	}
	return string(p.raw[start : start+n]), nil
}
