package call

// A queue is a list of calls in the order in which they came. Any of them can be taken out.
type queue struct {
	first, last *Call
	n           int
}

func (q *queue) push(one *Call) {
	one.waitsIn, one.ahead, one.next = q, q.last, nil
	if q.last == nil {
		q.first = one
	} else {
		q.last.next = one
	}
	q.last = one
	q.n++
}

func (q *queue) remove(one *Call) {
	if one.ahead == nil {
		q.first = one.next
	} else {
		one.ahead.next = one.next
	}
	if one.next == nil {
		q.last = one.ahead
	} else {
		one.next.ahead = one.ahead
	}
	one.waitsIn, one.ahead, one.next = nil, nil, nil
	q.n--
}

// size returns the length of the call in the protocol in bytes, or slightly more.
func (c *Call) size() int {
	const word, number = 10, 20 // the frame of an argument; the longest integer
	n := word
	for _, arg := range c.args {
		switch arg := arg.(type) {
		case string:
			n += word + len(arg)
		case *string:
			n += word + len(*arg)
		case []byte:
			n += word + len(arg)
		default:
			n += word + number
		}
	}
	return n
}

// fitting returns how many of calls, counted from the first, fit into one pipeline.
func fitting(calls []*Call) int {
	n, size := 1, calls[0].size()
	for n < len(calls) {
		if size += calls[n].size(); size > maxPipelineBytes {
			break
		}
		n++
	}
	return n
}
