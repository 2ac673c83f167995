package call

// A place is where a call stands among the waiting calls of its rank.
type place struct {
	order int64 // the call with the smallest order is sent first
	index int   // in the heap, plus one; 0: not in it
}

// waiting is a heap of the waiting calls of one rank. A call in the middle can be taken out,
// because its caller may leave.
type waiting []*Call

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].place.order < w[j].place.order }
func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place.index, w[j].place.index = i+1, j+1
}

func (w *waiting) Push(one any) {
	*w = append(*w, one.(*Call))
	one.(*Call).place.index = len(*w)
}

func (w *waiting) Pop() any {
	last := len(*w) - 1
	one := (*w)[last]
	(*w)[last], *w = nil, (*w)[:last]
	one.place.index = 0
	return one
}

// size returns the length of the call in the protocol in bytes, or slightly more, together
// with the call that goes right behind it.
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
	if c.behind != nil {
		n += c.behind.size()
	}
	return n
}
