// Package redisstore keeps the entries by which nodes find each other in Redis, or in a server that
// speaks its protocol and runs Lua.
//
// It owns one sorted set per cluster and nothing else in the database. Members are entries in
// encoded form; scores are when they were written, by the server's clock. So the clocks of the
// hosts don't matter, and a script judges age and size before anything is sent.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/polyrail/polyrail/cluster"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options say where the server is.
type Options struct {
	Addr     string // HOST:PORT
	Username string // "": the server's default user
	Password string // "": none
	DB       int
	TLS      bool // with the system's certificates
}

// Store is a database of a Redis server. It connects for each call.
type Store struct {
	options Options
}

var _ cluster.Store = (*Store)(nil)

// New makes a store; nothing is contacted yet.
func New(o Options) *Store { return &Store{o} }

// String is the store's URL without user and password.
func (s *Store) String() string {
	scheme := "redis"
	if s.options.TLS {
		scheme = "rediss"
	}
	return scheme + "://" + s.options.Addr + "/" + strconv.Itoa(s.options.DB)
}

// Key is the sorted set of a cluster.
func Key(name string) string { return "polyrail:rendezvous:" + name }

// clock sets now to the server's clock in milliseconds.
const clock = `local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
`

// putScript adds ARGV[1], drops what is older than ARGV[2] milliseconds and all but the latest
// ARGV[3] entries, and lets the whole set expire. What claims to come from the future is dropped
// too: it would be the latest for ever.
var putScript = redis.NewScript(clock + `
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (now - ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

// listScript returns at most ARGV[2] members of at most ARGV[3] bytes that are at most ARGV[1]
// milliseconds old, the latest first.
var listScript = redis.NewScript(clock + `
local found = {}
for _, entry in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], now, now - ARGV[1], 'LIMIT', 0, ARGV[2])) do
	if #entry <= tonumber(ARGV[3]) then found[#found + 1] = entry end
end
return found`)

// Put writes or renews the entry.
func (s *Store) Put(ctx context.Context, e cluster.Entry, ttl time.Duration) error {
	return s.with(ctx, func(c *redis.Client) error {
		return putScript.Eval(ctx, c, []string{Key(e.Cluster)}, e.Encode(), ttl.Milliseconds(),
			cluster.MaxEntries).Err()
	})
}

// List returns the entries of a cluster that have not expired.
func (s *Store) List(ctx context.Context, name string, ttl time.Duration) (values [][]byte, err error) {
	err = s.with(ctx, func(c *redis.Client) error {
		found, err := listScript.Eval(ctx, c, []string{Key(name)}, ttl.Milliseconds(),
			cluster.MaxEntries, cluster.MaxEntryBytes).StringSlice()
		for _, v := range found {
			values = append(values, []byte(v))
		}
		return err
	})
	return values, err
}

// Remove takes the entry out.
func (s *Store) Remove(ctx context.Context, e cluster.Entry) error {
	return s.with(ctx, func(c *redis.Client) error {
		return c.ZRem(ctx, Key(e.Cluster), e.Encode()).Err()
	})
}

// with connects, calls f once, and disconnects. The connection is made here: go-redis would retry,
// and write to the process's standard error.
func (s *Store) with(ctx context.Context, f func(*redis.Client) error) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	return s.over(ctx, conn, f)
}

// noDeadlines keeps go-redis from replacing the deadline that over sets.
const noDeadlines = -2

// over calls f with a client of this one connection, and closes it.
func (s *Store) over(ctx context.Context, conn net.Conn, f func(*redis.Client) error) error {
	defer conn.Close()
	// A deadline in the past wakes whoever reads or writes when the context ends.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	dialed := false
	client := redis.NewClient(&redis.Options{
		Addr: s.options.Addr, Username: s.options.Username, Password: s.options.Password, DB: s.options.DB,
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		ReadTimeout: noDeadlines, WriteTimeout: noDeadlines,
		PoolSize: 1, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if dialed {
				return nil, errors.New("the connection was lost")
			}
			dialed = true
			return &guarded{Conn: conn}, nil
		},
	})
	defer client.Close()
	err := f(client)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

func (s *Store) dial(ctx context.Context) (net.Conn, error) {
	if s.options.TLS {
		return (&tls.Dialer{}).DialContext(ctx, "tcp", s.options.Addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", s.options.Addr)
}
