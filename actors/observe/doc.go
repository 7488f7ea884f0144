// Package observe is a node's face over HTTP: metrics for Prometheus, health, profiles, and a page
// for people. It only reads: nothing that is asked here changes a node.
//
// All that it shows comes from snapshots of package membership (Status). A snapshot reads counters
// that exist anyway; it is taken when somebody asks. What the page sends is bounded, and a viewer
// that is slow misses snapshots (hub.go). Who may look is in access.go.
//
// It does not use net/http/pprof, which adds itself to http.DefaultServeMux of every program that
// links it: an embedding service would publish its memory without knowing.
package observe
