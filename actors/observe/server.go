package observe

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"expvar"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/polyrail/polyrail/actors/membership"
)

// Source is the node that is looked at. Its methods may be called at any time, and don't block for
// long.
type Source interface {
	Status(ctx context.Context, detail membership.Detail) membership.Status
	Obstacles() []string
	// AskOthers asks the other nodes for what Others tells from then on.
	AskOthers()
	Others() []membership.Neighbour
	// Subscribe tells of events; cancel closes the channel, and so does the node's end.
	Subscribe() (events <-chan membership.Event, cancel func())
	// Closing is closed when the node's end begins.
	Closing() <-chan struct{}
}

// Config says where, and to whom, a node shows itself.
type Config struct {
	Addr string // ADDR:PORT; port 0 takes a free one
	// Token is what callers must know, besides those of /healthz and /readyz; "": all who reach the
	// address are let in.
	Token string
	// TLS, if set, is what the address speaks. Where it asks for certificates of clients and
	// verifies them, whoever has one needs no token.
	TLS *tls.Config
	Log *slog.Logger
}

// Limits of the server.
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	maxConnections = 256
	statusTimeout  = 2 * time.Second  // for what a status asks of others
	maxScrapes     = 4                // of metrics, at once
	writeTimeout   = 10 * time.Second // of one write to a connection
)

// Listener is an address that is listened on, before there is a node to show.
type Listener struct {
	config   Config
	listener net.Listener
}

// Listen takes the address, so that one that can't be had is found out before the node starts.
func Listen(cfg Config) (*Listener, error) {
	l, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, err
	}
	l = &limited{Listener: l}
	if cfg.TLS != nil {
		l = tls.NewListener(l, cfg.TLS)
	}
	return &Listener{cfg, l}, nil
}

// Addr is where it listens: ADDR:PORT.
func (l *Listener) Addr() string { return l.listener.Addr().String() }

// Close gives the address up, where no server was made of it.
func (l *Listener) Close() error { return l.listener.Close() }

// Server answers who looks at a node.
type Server struct {
	source  Source
	addr    string
	http    *http.Server
	group   sync.WaitGroup // the serving goroutine, and handlers
	mu      sync.Mutex
	closed  bool       // no handler begins any more
	profile sync.Mutex // one CPU profile at a time
	access  *access
	hub     hub
}

// Serve begins to answer.
func (l *Listener) Serve(source Source) *Server {
	s := &Server{source: source, addr: l.Addr(), access: newAccess(l.config), hub: hub{source: source}}
	s.http = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(l.config.Log.Handler(), slog.LevelDebug),
	}
	s.group.Go(func() {
		if err := s.http.Serve(l.listener); !errors.Is(err, http.ErrServerClosed) {
			l.config.Log.Warn("http address given up", "addr", s.addr, "error", err)
		}
	})
	return s
}

// Addr is where it listens: ADDR:PORT.
func (s *Server) Addr() string { return s.addr }

// Close ends all answers, and waits for that.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.http.Close()
	s.group.Wait()
	s.hub.group.Wait() // the last handler has stopped it
	return err
}

// handler routes requests. What is not said to be open needs access.
func (s *Server) handler() http.Handler {
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", s.health)
	open.HandleFunc("GET /readyz", s.ready)

	registry := s.registry()
	closed := http.NewServeMux()
	closed.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: 2 * statusTimeout}))
	closed.HandleFunc("GET /api/status", s.status)
	closed.HandleFunc("GET /api/live", s.live)
	closed.Handle("GET /", page())
	closed.HandleFunc("GET /debug/vars", variables)
	s.routeProfiles(closed)
	open.Handle("/", s.access.guard(closed))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			return
		}
		defer s.group.Done()
		if r.ContentLength != 0 {
			// The server waits for it behind the answer, and it may never come.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "a node is only looked at here", http.StatusMethodNotAllowed)
			return
		}
		if r.ContentLength != 0 {
			http.Error(w, "a request has no body here", http.StatusBadRequest)
			return
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		open.ServeHTTP(w, r)
	})
}

// begin counts a handler. False if the server closes.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.group.Add(1)
	}
	return !s.closed
}

// registry has the node's metrics, those of the Go runtime, and those of the process.
func (s *Server) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	for _, c := range collectorsOf(s.source) {
		r.MustRegister(c)
	}
	return r
}

// health says that the process serves; it is not well when the node has begun to end.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-s.source.Closing():
		http.Error(w, "the node closes", http.StatusServiceUnavailable)
	default:
		_, _ = w.Write([]byte("ok\n"))
	}
}

// ready says whether communicators can be formed, or what stands in the way.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	obstacles := s.source.Obstacles()
	if len(obstacles) == 0 {
		_, _ = w.Write([]byte("ok\n"))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, o := range obstacles {
		_, _ = w.Write([]byte(o + "\n"))
	}
}

// variables are those of expvar, but for the command line: it may hold a token or a password.
func variables(w http.ResponseWriter, _ *http.Request) {
	shown := make(map[string]json.RawMessage)
	expvar.Do(func(v expvar.KeyValue) {
		if v.Key != "cmdline" {
			shown[v.Key] = json.RawMessage(v.Value.String())
		}
	})
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(shown) // the caller has gone
}

// status is a snapshot as JSON.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), statusTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.source.Status(ctx, membership.Full)) // the caller has gone
}
