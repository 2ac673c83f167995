// Package connect makes the client of a command from a URL, the environment and
// files, so that no password has to stand on a command line.
package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"
)

// Options say where Redis is and how to get in.
type Options struct {
	URL          string
	URLFile      string
	Username     string
	PasswordFile string
	CA           string
	Cert, Key    string

	flags *pflag.FlagSet
}

// Flags adds the flags; what they leave out comes from the environment.
func (o *Options) Flags(f *pflag.FlagSet) {
	o.flags = f
	f.StringVar(&o.URL, "redis", "", "URL of Redis or Valkey (default $REDIS_URL, or redis://127.0.0.1:6379)")
	f.StringVar(&o.URLFile, "redis-file", "", "file that holds the URL ($REDIS_URL_FILE)")
	f.StringVar(&o.Username, "redis-user", "", "user, where the URL names none ($REDIS_USERNAME)")
	f.StringVar(&o.PasswordFile, "redis-password-file", "", "file that holds the password ($REDIS_PASSWORD_FILE, or $REDIS_PASSWORD)")
	f.StringVar(&o.CA, "tls-ca", "", "file with the authority of the server's certificate ($REDIS_TLS_CA)")
	f.StringVar(&o.Cert, "tls-cert", "", "file with the client's certificate ($REDIS_TLS_CERT)")
	f.StringVar(&o.Key, "tls-key", "", "file with the client's key ($REDIS_TLS_KEY)")
}

// Named reports whether anybody said where Redis is.
func (o Options) Named() bool {
	return o.empty() != "" || o.URL != "" || o.URLFile != "" || os.Getenv("REDIS_URL_FILE") != "" || os.Getenv("REDIS_URL") != ""
}

// ErrUsage says that what was given can't be used, whatever Redis does.
var ErrUsage = errors.New("the settings of the connection can't be used")

// Client makes a client. A single server that turns out to be a node of a Cluster is used as a Cluster.
func (o Options) Client(ctx context.Context) (redis.UniversalClient, error) {
	rdb, u, err := o.Server()
	if single, ok := rdb.(*redis.Client); ok && u.MasterName == "" && inCluster(ctx, single) {
		_ = rdb.Close()
		u.IsClusterMode = true
		return redis.NewUniversalClient(u), nil
	}
	return rdb, err
}

// Server makes a client, and asks nothing.
func (o Options) Server() (redis.UniversalClient, *redis.UniversalOptions, error) {
	u, err := o.universal()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return redis.NewUniversalClient(u), u, nil
}

// inCluster asks a server whether it is a node of a Cluster: HELLO without arguments
// changes nothing, and every user may call it.
func inCluster(ctx context.Context, rdb *redis.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	return rdb.Process(ctx, hello) == nil && hello.Val()["mode"] == "cluster"
}

// universal reads everything into the client library's options.
func (o Options) universal() (*redis.UniversalOptions, error) {
	text, err := o.url()
	if err != nil {
		return nil, err
	}
	u, err := parse(text)
	if err != nil {
		return nil, err
	}
	if u.Username == "" {
		u.Username = cmp.Or(o.Username, os.Getenv("REDIS_USERNAME"))
	}
	if u.Password == "" {
		u.Password = os.Getenv("REDIS_PASSWORD")
		if file := cmp.Or(o.PasswordFile, os.Getenv("REDIS_PASSWORD_FILE")); file != "" {
			if u.Password, err = secret(file); err != nil {
				return nil, err
			}
		}
	}
	if err := o.tls(u); err != nil {
		return nil, err
	}
	u.MaxRetries, u.ContextTimeoutEnabled = 2, true
	// Most commands end after a few calls. Over a long way, connections of their own for pipelines, and commands that
	// prepare a connection, would take half of the time.
	u.PipelinePoolSize, u.DisableIdentity = -1, true
	u.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return u, nil
}

// empty is the flag of a URL that has an empty value, such as that of a variable that is not set: it must not mean
// another server.
func (o Options) empty() string {
	for name, value := range map[string]string{"redis": o.URL, "redis-file": o.URLFile} {
		if o.flags != nil && o.flags.Changed(name) && value == "" {
			return name
		}
	}
	return ""
}

func (o Options) url() (string, error) {
	if name := o.empty(); name != "" {
		return "", fmt.Errorf("--%s is empty", name)
	}
	if o.URL != "" {
		return o.URL, nil
	}
	if file := cmp.Or(o.URLFile, os.Getenv("REDIS_URL_FILE")); file != "" {
		return secret(file)
	}
	return cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"), nil
}

// secret is a file's text without the line's end that editors put there.
func secret(file string) (string, error) {
	text, err := os.ReadFile(file)
	return strings.TrimRight(string(text), "\r\n"), err
}

func (o Options) tls(u *redis.UniversalOptions) error {
	ca := cmp.Or(o.CA, os.Getenv("REDIS_TLS_CA"))
	cert, key := cmp.Or(o.Cert, os.Getenv("REDIS_TLS_CERT")), cmp.Or(o.Key, os.Getenv("REDIS_TLS_KEY"))
	if ca == "" && cert == "" && key == "" {
		return nil
	}
	if u.TLSConfig == nil {
		return errors.New("certificates are given, but the URL does not begin with rediss")
	}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return err
		}
		u.TLSConfig.RootCAs = x509.NewCertPool()
		if !u.TLSConfig.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s: no certificate in it", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return err
		}
		u.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// parse reads a URL. redis and rediss (TLS) name a single server, with +cluster a Cluster, with +sentinel
// sentinels. Errors do not show it: it may hold a password.
func parse(text string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, errors.New("the URL has no scheme: want redis://, rediss:// (TLS), redis+cluster://, redis+sentinel:// or unix://")
	}
	// A character that ends the part with the password leaves the rest of it in the path:
	// from there the client would take it for a name, and show it.
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && (scheme != "unix" || i > 0) && strings.Contains(rest[i:], "@") {
		return nil, errors.New(escapes)
	}
	base, kind, _ := strings.Cut(scheme, "+")
	if base != "redis" && base != "rediss" && scheme != "unix" {
		return nil, errors.New("the URL's scheme is unknown; want redis, rediss, either with +cluster or +sentinel, or unix")
	}
	switch kind {
	case "":
		p, err := redis.ParseURL(text)
		if err != nil {
			return nil, hidden(err)
		}
		u := &redis.UniversalOptions{
			Addrs: []string{p.Addr}, Username: p.Username, Password: p.Password, DB: p.DB, TLSConfig: p.TLSConfig, Protocol: p.Protocol,
			DialTimeout: p.DialTimeout, ReadTimeout: p.ReadTimeout, WriteTimeout: p.WriteTimeout, PoolSize: p.PoolSize,
		}
		if p.Network == "unix" {
			u.Dialer = redis.NewDialer(p)
		}
		return u, nil
	case "cluster":
		p, err := redis.ParseClusterURL(base + "://" + rest)
		if err != nil {
			return nil, hidden(err)
		}
		return &redis.UniversalOptions{
			Addrs: p.Addrs, IsClusterMode: true, Username: p.Username, Password: p.Password, TLSConfig: p.TLSConfig,
			Protocol: p.Protocol, DialTimeout: p.DialTimeout, ReadTimeout: p.ReadTimeout, WriteTimeout: p.WriteTimeout, PoolSize: p.PoolSize,
		}, nil
	case "sentinel":
		p, err := redis.ParseFailoverURL(base + "://" + rest)
		if err != nil {
			return nil, hidden(err)
		}
		if p.MasterName == "" {
			return nil, errors.New("the URL of sentinels names no primary: add ?master_name=NAME")
		}
		return &redis.UniversalOptions{
			Addrs: p.SentinelAddrs, MasterName: p.MasterName, Username: p.Username, Password: p.Password, DB: p.DB, TLSConfig: p.TLSConfig,
			SentinelUsername: p.SentinelUsername, SentinelPassword: p.SentinelPassword, Protocol: p.Protocol,
			DialTimeout: p.DialTimeout, ReadTimeout: p.ReadTimeout, WriteTimeout: p.WriteTimeout, PoolSize: p.PoolSize,
		}, nil
	}
	return nil, errors.New("the URL's scheme is unknown; want redis or rediss, alone or with +cluster or +sentinel")
}

// escapes says what is wrong with most URLs that can't be read.
const escapes = "the URL can't be read; in the user name and the password, write / ? # @ : and % as %2F %3F %23 %40 %3A and %25, or use --redis-password-file"

// hidden is an error without anything of the URL: any part of it may be one of a password that was not escaped.
func hidden(err error) error {
	text := err.Error()
	for _, known := range []struct{ of, says string }{
		{"unexpected option", "the URL has a parameter that is unknown"},
		{"invalid database number", "the URL's database is no number"},
		{"invalid URL path", "the URL's path is no database; want /0 or the like"},
		{" duration:", "a parameter of the URL is no duration"},
		{" number:", "a parameter of the URL is no number"},
		{" boolean:", "a parameter of the URL is neither true nor false"},
	} {
		if strings.Contains(text, known.of) {
			return errors.New(known.says)
		}
	}
	return errors.New(escapes)
}
