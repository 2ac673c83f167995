package call

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// minVersion is the first version of Redis that the scripts need: 7.0 has the
// commands that they use.
const minVersion = 7

// check sees to it, before the first call, that the server is one that the
// scripts run on.
func (c *Client) check(ctx context.Context, key string) error {
	if c.checked.Load() {
		return nil
	}
	if _, err := c.askTime(c.clockOf(c.Node(key)), key).answer.wait(ctx); err != nil {
		return notSent(err)
	}
	return nil
}

// supported says what is wrong with the server that answered with o. A server
// that refuses the script, or a client that may hide a Cluster, takes another
// question.
func (c *Client) supported(ctx context.Context, o outcome) error {
	var version, mode string
	switch {
	case o.err == nil && o.text[0] != "" && c.known:
		version = o.text[0]
	case o.err == nil && c.known:
	case o.err == nil || Classify(o.err) == Refused:
		// It fails where the user may not ask, or the server does not know it.
		info, _ := within(hardBound, func() string {
			defer func() { _ = recover() }() // of a hook: the version stays unknown
			return c.rdb.Info(c.bounded(ctx, time.Now()), "server").Val()
		})
		version, mode = field(info, "redis_version"), field(info, "redis_mode")+field(info, "server_mode")
	}
	if major, err := strconv.Atoi(firstNumber.FindString(version)); err == nil && major < minVersion {
		return &unsupported{fmt.Sprintf("the server is Redis %s; want Redis %d.0 or later", version, minVersion)}
	}
	if !c.known && mode == "cluster" {
		return &unsupported{fmt.Sprintf("rdb is a %T, which hides a Cluster client; "+
			"want one that embeds it or has a method Unwrap() redis.UniversalClient", c.rdb)}
	}
	if o.err == nil {
		c.checked.Store(true)
	}
	return nil
}

var firstNumber = regexp.MustCompile(`^\d+`)

// field is the value of a field of INFO.
func field(info, name string) string {
	m := regexp.MustCompile(`(?m)^` + name + `:(\S+)`).FindStringSubmatch(info)
	if m == nil {
		return ""
	}
	return m[1]
}
