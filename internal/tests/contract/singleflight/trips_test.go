package singleflight_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"
)

// counted is a connection whose writes are counted.
type counted struct {
	net.Conn
	w *wire
}

func (c *counted) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	if c.w.trips == nil {
		c.w.trips = map[string]int{}
	}
	for _, word := range []string{"get", "evalsha", "eval"} {
		if word == "eval" && bytes.Contains(b, []byte("redis_version")) {
			word = "time" // the question for the server's time and version
			c.w.trips[word]++
		} else if bytes.Contains(b, []byte("\n"+word+"\r\n")) {
			c.w.trips[word]++
		}
	}
	c.w.mu.Unlock()
	n, err := c.Conn.Write(b)
	return n, asNetwork(err)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, asNetwork(err)
}

func (c *counted) SetDeadline(t time.Time) error     { return asNetwork(c.Conn.SetDeadline(t)) }
func (c *counted) SetReadDeadline(t time.Time) error { return asNetwork(c.Conn.SetReadDeadline(t)) }

func (c *counted) SetWriteDeadline(t time.Time) error { return asNetwork(c.Conn.SetWriteDeadline(t)) }

// asNetwork makes the error of a pipe that is cut into that of a network.
func asNetwork(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return errCut
	}
	return err
}

type tripCount struct{ gets, scripts, times int }

// tripCounter counts round trips since it was last asked.
func tripCounter(w *wire) func() tripCount {
	now := func() tripCount { return tripCount{w.tripped("get"), w.tripped("evalsha", "eval"), w.tripped("time")} }
	last := now()
	return func() tripCount {
		n := now()
		d := tripCount{n.gets - last.gets, n.scripts - last.scripts, n.times - last.times}
		last = n
		return d
	}
}
