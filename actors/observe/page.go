package observe

import (
	"embed"
	"io/fs"
	"net/http"
)

// files are the page: no build step made them, and they ask no other host for anything.
//
//go:embed page
var files embed.FS

// policy lets the page load what this address serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page serves the files.
func page() http.Handler {
	dir, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the directory is embedded
	}
	server := http.FileServerFS(dir)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		server.ServeHTTP(w, r)
	})
}
