package observe

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A browser sends the cookies of a host to all of its ports. To look at one node of a host must not
// end the page of another one that has another token.
func TestABrowserLooksAtTwoNodesOfAHost(t *testing.T) {
	tokens := []string{"0123456789abcdef-a", "0123456789abcdef-b"}
	jar := make(map[string]string) // of the browser, for the host
	look := func(node int, path string) int {
		seen := newAccess(Config{Addr: "127.0.0.1:1", Token: tokens[node]}).guard(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
		r := httptest.NewRequest(http.MethodGet, path, nil)
		for name, value := range jar {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		w := httptest.NewRecorder()
		seen.ServeHTTP(w, r)
		for _, c := range w.Result().Cookies() {
			jar[c.Name] = c.Value
		}
		return w.Code
	}
	for node, token := range tokens {
		if code := look(node, "/?token="+token); code != http.StatusSeeOther {
			t.Fatalf("the token of node %d is answered with %d", node, code)
		}
	}
	for node := range tokens {
		if code := look(node, "/"); code != http.StatusOK {
			t.Errorf("node %d: %d", node, code)
		}
	}
}
