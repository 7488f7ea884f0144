package polyrail

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/cluster/dirstore"
	"github.com/polyrail/polyrail/cluster/redisstore"
	"github.com/polyrail/polyrail/collective/fault"
)

// Rendezvous is a place that all nodes reach, where each leaves its gossip address for the others
// to join by. At most one field is set; none of them means that there is no such place. See
// docs/rendezvous.md.
type Rendezvous struct {
	Redis     RedisOptions // Addr is set if Redis is used
	Directory string       // absolute; on a file system that all hosts mount
}

// RedisOptions say where a Redis server is, and how to be let in.
type RedisOptions = redisstore.Options

const redisPort = "6379"

// ParseRendezvous reads a rendezvous as the command line writes it:
// redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, dir:///PATH or file:///PATH; "" is
// none. Errors don't repeat a password.
func ParseRendezvous(s string) (Rendezvous, error) {
	var none Rendezvous
	if s == "" {
		return none, nil
	}
	bad := func(format string, args ...any) (Rendezvous, error) {
		return none, fmt.Errorf(
			"%w: rendezvous: %w (want redis://HOST:PORT/DB, rediss://HOST:PORT/DB or dir:///PATH)",
			fault.ErrConfig, fmt.Errorf(format, args...))
	}
	// Where a password holds what is to be escaped, any part of the URL may be a piece of it.
	u, err := url.Parse(s)
	if err != nil {
		return bad("it is no URL: a port is a number, and names and passwords have %%2F for /, and so on")
	}
	switch {
	case u.RawQuery != "" || u.Fragment != "":
		return bad("nothing can follow the path, and passwords have %%3F for ? and %%23 for #")
	case u.Scheme != "dir" && u.Scheme != "file" && strings.Contains(u.Opaque+u.Path, "@"):
		return bad("an @ comes late: names and passwords have %%2F for /")
	}
	var r Rendezvous
	switch u.Scheme {
	case "redis", "rediss":
		db := 0
		if path := strings.Trim(u.Path, "/"); path != "" {
			if db, err = strconv.Atoi(path); err != nil {
				return bad("database %q is not a number", path)
			}
		}
		port := u.Port()
		if port == "" {
			port = redisPort
		}
		password, _ := u.User.Password()
		r.Redis = RedisOptions{
			Addr: net.JoinHostPort(u.Hostname(), port), Username: u.User.Username(), Password: password,
			DB: db, TLS: u.Scheme == "rediss",
		}
	case "dir", "file":
		if u.Host != "" || u.User != nil || u.Path == "" {
			return bad("a directory is an absolute path after three slashes")
		}
		r.Directory = filepath.Clean(filepath.FromSlash(u.Path))
	case "list":
		return bad("a fixed list of addresses is what --join takes")
	default:
		return bad("unknown scheme %q", u.Scheme)
	}
	if faults := r.faults(); len(faults) > 0 {
		return bad("%w", errors.Join(faults...))
	}
	return r, nil
}

// URL writes the rendezvous as ParseRendezvous reads it, with the password.
func (r Rendezvous) URL() string {
	switch {
	case r.Redis.Addr != "":
		u := url.URL{Scheme: "redis", Host: r.Redis.Addr, Path: "/" + strconv.Itoa(r.Redis.DB)}
		if r.Redis.TLS {
			u.Scheme = "rediss"
		}
		if r.Redis.Username != "" || r.Redis.Password != "" {
			u.User = url.UserPassword(r.Redis.Username, r.Redis.Password)
		}
		return u.String()
	case r.Directory != "":
		return (&url.URL{Scheme: "dir", Path: filepath.ToSlash(r.Directory)}).String()
	}
	return ""
}

func (r Rendezvous) faults() (faults []error) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if r.Redis.Addr != "" && r.Directory != "" {
		add("rendezvous: Redis at %s and directory %q: needs one of them", r.Redis.Addr, r.Directory)
	}
	if r.Directory != "" && !filepath.IsAbs(r.Directory) {
		add("rendezvous directory %q: needs an absolute path", r.Directory)
	}
	if r.Redis.Addr == "" {
		if r.Redis != (RedisOptions{}) {
			add("rendezvous: Redis without an address")
		}
		return faults
	}
	host, port, err := net.SplitHostPort(r.Redis.Addr)
	if err != nil {
		add("rendezvous: Redis address %q: %w", r.Redis.Addr, err)
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		add("rendezvous: Redis address %q: needs a host, and a port from 1 to 65535", r.Redis.Addr)
	}
	if r.Redis.DB < 0 {
		add("rendezvous: Redis database %d: must not be negative", r.Redis.DB)
	}
	return faults
}

// store is nil if there is no rendezvous.
func (r Rendezvous) store() cluster.Store {
	switch {
	case r.Redis.Addr != "":
		return redisstore.New(r.Redis)
	case r.Directory != "":
		return dirstore.New(r.Directory)
	}
	return nil
}
