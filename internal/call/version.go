package call

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// minVersion is the first major version of Redis that has all the commands of the scripts.
const minVersion = 7

// ensureSupported makes sure, before the first call, that the scripts run on the server. It asks
// for the server's time, because that question also checks the version.
func (c *Client) ensureSupported(ctx context.Context, key string) error {
	if c.checked.Load() {
		return nil
	}
	if _, err := c.askTime(c.clockOf(c.Node(key)), key).answer.wait(ctx); err != nil {
		return notSent(err)
	}
	return nil
}

// supported returns an error if the server that answered with o cannot be used. It sends INFO
// if the server refused the script, or if the client may hide a Cluster client.
func (c *link) supported(ctx context.Context, o outcome) error {
	var version, mode string
	switch {
	case o.err == nil && o.text[0] != "" && c.known:
		version = o.text[0]
	case o.err == nil && c.known:
	case o.err == nil || Classify(o.err) == Refused:
		// INFO fails if the user may not run it, or if the server does not know it.
		info, _ := within(hardBound, func() string {
			defer func() { _ = recover() }() // a hook panicked: the version stays unknown
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

// field returns the value of a field of INFO.
func field(info, name string) string {
	m := regexp.MustCompile(`(?m)^` + name + `:(\S+)`).FindStringSubmatch(info)
	if m == nil {
		return ""
	}
	return m[1]
}
