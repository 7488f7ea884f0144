package polyrail

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	"github.com/polyrail/polyrail/actors/membership"
	"github.com/polyrail/polyrail/actors/observe"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// HTTP says where, and to whom, a node shows itself: metrics for Prometheus, health, profiles and a
// page (docs/operations.md). Nothing that is asked there changes the node.
type HTTP struct {
	// Addr is ADDR:PORT; port 0 takes a free one (Node.HTTPAddr). Empty: the node shows nothing, and
	// counts no operations.
	Addr string
	// Token is what callers must know, besides those of /healthz and /readyz. Without one, and
	// without certificates of clients, Addr must be of loopback.
	Token string
	// TLS, if set, is what the address speaks. Whoever has a certificate that it asks for and
	// verifies needs no token.
	TLS *tls.Config
	// Sealed has the address speak TLS with the node's own keys, those of Config.TLS. Whoever has a
	// certificate of the cluster needs no token; where there is no token, all need one.
	Sealed bool
}

// minToken is the least length of a token, in bytes.
const minToken = 16

// notInToken reports whether a character gets lost in a header or in a browser's cookie.
func notInToken(r rune) bool { return r < ' ' || r >= 0x7f || strings.ContainsRune("\";\\", r) }

func (h HTTP) faults(keys TLS) (faults []error) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if h.Addr == "" {
		// A token alone is none: the environment has it for who looks at another node.
		if h.TLS != nil || h.Sealed {
			add("http: TLS without an address")
		}
		return faults
	}
	switch {
	case h.Sealed && keys == TLS{}:
		add("http: to be sealed by the node's keys (TLS), of which there are none")
	case h.Sealed && h.TLS != nil:
		add("http: to be sealed by the node's keys, and by TLS of its own: choose one")
	}
	host, port, err := net.SplitHostPort(h.Addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		add("http address %q: %w", h.Addr, err)
		return faults
	}
	mutual := h.Sealed || h.TLS != nil && h.TLS.ClientAuth == tls.RequireAndVerifyClientCert
	switch {
	case h.Token != "" && len(h.Token) < minToken:
		add("http token: needs at least %d bytes", minToken)
	case strings.ContainsFunc(h.Token, notInToken) || strings.Trim(h.Token, " ") != h.Token:
		add("http token: needs to be printable ASCII without quotes, semicolons, backslashes, and spaces at its ends")
	case h.Token == "" && !mutual && !observe.Loopback(host):
		add("http address %q: others than this host reach it, so it needs a token, or TLS that verifies clients", h.Addr)
	}
	return faults
}

// listenHTTP takes the address; nil if there is none.
func (c Config) listenHTTP(own *keys.Source) (*observe.Listener, error) {
	h := c.HTTP
	if h.Addr == "" {
		return nil, nil
	}
	if h.Sealed {
		h.TLS = own.ServeHTTP(h.Token == "")
	}
	return observe.Listen(observe.Config{Addr: h.Addr, Token: h.Token, TLS: h.TLS, Log: c.Logger.With("node", c.Name)})
}

// HTTPAddr is where the node shows itself: ADDR:PORT; empty if it does not.
func (n *Node) HTTPAddr() string {
	if n == nil || n.shows == nil {
		return ""
	}
	return n.shows.Addr()
}

// NodeStatus is what a node is and did until now: what its metrics and its page show, and what GET
// /api/status answers as JSON.
type NodeStatus = membership.Status

// EventRecord is an event of a NodeStatus.
type EventRecord = membership.EventRecord

// ClusterStatus is a node and what it knows of the others. GET /api/live sends one each second, and
// after each event, as server-sent events.
type ClusterStatus = observe.Cluster

// Status takes a snapshot of the node. Where a rank 0's balancer is busy, the context bounds the
// wait for what it knows. It works without Config.HTTP, but then operations are not counted.
func (n *Node) Status(ctx context.Context) (NodeStatus, error) {
	inner, err := n.with(ctx)
	if err != nil {
		return NodeStatus{}, err
	}
	if ctx.Err() != nil {
		return NodeStatus{}, fmt.Errorf("node %q: status: %w", n.config.Name, context.Cause(ctx))
	}
	return inner.Status(ctx, membership.Full), nil
}
