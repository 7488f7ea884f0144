package observe

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"
)

// Bounds of a profile over time.
const (
	defaultProfile = 30 * time.Second
	defaultTrace   = time.Second
	maxProfile     = 5 * time.Minute
)

// routeProfiles adds what go tool pprof and go tool trace read.
func (s *Server) routeProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/{$}", s.listProfiles)
	mux.HandleFunc("GET /debug/pprof/profile", func(w http.ResponseWriter, r *http.Request) {
		s.record(w, r, defaultProfile, func() error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
	})
	mux.HandleFunc("GET /debug/pprof/trace", func(w http.ResponseWriter, r *http.Request) {
		s.record(w, r, defaultTrace, func() error { return trace.Start(w) }, trace.Stop)
	})
	mux.HandleFunc("GET /debug/pprof/{name}", s.snapshot)
}

func (s *Server) listProfiles(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "profile?seconds=30\ntrace?seconds=1")
	for _, p := range pprof.Profiles() {
		fmt.Fprintf(w, "%s (%d)\n", p.Name(), p.Count())
	}
}

// snapshot writes a profile of now: heap, goroutine …; with debug=1 as text.
func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) {
	p := pprof.Lookup(r.PathValue("name"))
	if p == nil {
		http.Error(w, "unknown profile", http.StatusNotFound)
		return
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	contentType := "application/octet-stream"
	if debug > 0 {
		contentType = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", contentType)
	_ = p.WriteTo(w, debug) // the caller has gone
}

// record runs a profile for some seconds, or until the caller goes or the node closes.
func (s *Server) record(w http.ResponseWriter, r *http.Request, length time.Duration, start func() error, stop func()) {
	if text := r.FormValue("seconds"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		length = time.Duration(seconds * float64(time.Second))
		if err != nil || length <= 0 || length > maxProfile {
			http.Error(w, fmt.Sprintf("seconds must be above 0 and at most %v", maxProfile.Seconds()), http.StatusBadRequest)
			return
		}
	}
	if !s.profile.TryLock() {
		http.Error(w, "another profile is being taken", http.StatusConflict)
		return
	}
	defer s.profile.Unlock()
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(); err != nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer stop()
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-s.source.Closing():
	}
}
