package observe

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
)

// access decides who may look. There are three ways: a certificate that TLS has verified, the token,
// and, where there is no token, reaching the address.
type access struct {
	token    [sha256.Size]byte
	cookie   string // holds the token in a browser
	required bool   // a token is
	secure   bool   // the address speaks TLS
	loopback bool
}

// cookiePrefix begins the name of the cookie. The rest follows from the token: a browser has the same
// cookies for all ports of a host, and so for all nodes there.
const cookiePrefix = "polyrail_token_"

func newAccess(c Config) *access {
	host, _, _ := net.SplitHostPort(c.Addr)
	token := sha256.Sum256([]byte(c.Token))
	return &access{token: token, cookie: cookiePrefix + hex.EncodeToString(token[:4]), required: c.Token != "",
		secure: c.TLS != nil, loopback: Loopback(host)}
}

// Loopback reports whether only processes of this host reach an address.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// guard lets those in who may look. A token in the query of a page's address is moved into a cookie,
// so that it stays in no history.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.sameHost(r) {
			http.Error(w, "unknown host name", http.StatusMisdirectedRequest)
			return
		}
		if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet && a.knows(token) {
			http.SetCookie(w, &http.Cookie{Name: a.cookie, Value: token, Path: "/", HttpOnly: true, Secure: a.secure,
				SameSite: http.SameSiteStrictMode})
			http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
			return
		}
		if !a.admits(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="polyrail"`)
			http.Error(w, "this page needs a token: open it as /?token=TOKEN, or send \"Authorization: Bearer TOKEN\"",
				http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *access) admits(r *http.Request) bool {
	if !a.required || r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return true
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return a.knows(token)
	}
	c, err := r.Cookie(a.cookie)
	return err == nil && a.knows(c.Value)
}

// knows compares in constant time, whatever the lengths.
func (a *access) knows(token string) bool {
	got := sha256.Sum256([]byte(token))
	return a.required && subtle.ConstantTimeCompare(got[:], a.token[:]) == 1
}

// sameHost turns requests away that reach a loopback address under a name. A page of another site
// whose name was made to point here could read what an open address shows to this host alone.
func (a *access) sameHost(r *http.Request) bool {
	if a.required || !a.loopback {
		return true
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return Loopback(strings.Trim(host, "[]"))
}
